"""Pages of lists: the one shape of a list's answer, with the path of the next page."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Annotated, Any, Generic, Self, TypeVar
from urllib.parse import urlencode

from fastapi import Query, Request
from pydantic import Field

from foltr.api.schemas import RowModel

T = TypeVar("T")

LARGEST = 2**31 - 1
Limit = Annotated[int, Query(ge=1, le=1000, description="At most so many")]
Before = Annotated[int | None, Query(ge=0, le=LARGEST, description="Only those with a lower number")]


class Page(RowModel, Generic[T]):
    """Items of a list, and where more of them are."""

    items: list[T]
    next: str | None = Field(description="Path and query of the next page; null: this is the last one")

    @classmethod
    def of(cls, request: Request, rows: Sequence[Any], limit: int, cursor: str, field: str) -> Self:
        """Make the page of ``rows``, read with a limit one higher; its last ``field`` continues it as ``cursor``."""
        items, following = cut(rows, limit, field)
        return cls(items=items, next=next_page(request, cursor, following))


def cut(rows: Sequence[T], limit: int, field: str) -> tuple[Sequence[T], Any]:
    """Return at most ``limit`` rows, and the field of the last one if more rows follow, else None."""
    items = rows[:limit]
    return items, attrgetter(field)(items[-1]) if len(rows) > limit else None


def next_page(request: Request, cursor: str, following: str | int | None) -> str | None:
    """Return the path of the same list from a cursor on. None without one."""
    if following is None:
        return None
    return f"{request.scope['path']}?{urlencode({**request.query_params, cursor: following})}"
