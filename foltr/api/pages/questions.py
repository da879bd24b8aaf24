"""Reads what a form asks for: a field that was left empty asks for nothing."""

import re
from enum import StrEnum
from typing import TypeVar

from fastapi import HTTPException, Request

from foltr.api.paging import LARGEST
from foltr.core.protocol.fields import NAME_PATTERN

E = TypeVar("E", bound=StrEnum)


def text_of(request: Request, field: str, pattern: str = NAME_PATTERN) -> str | None:
    """Return a text. Raises HTTPException 422 if it does not match the pattern."""
    value = request.query_params.get(field, "").strip()
    if value and re.fullmatch(pattern, value) is None:
        raise HTTPException(422, f"{field}: this is no name. It has letters, digits, dots, dashes and underscores.")
    return value or None


def number_of(request: Request, field: str, largest: int = LARGEST) -> int | None:
    """Return a number from 0. Raises HTTPException 422 if it is none, or too large."""
    value = request.query_params.get(field, "").strip()
    if not value:
        return None
    if not (value.isascii() and value.isdigit()) or len(value) > len(str(largest)) or int(value) > largest:
        raise HTTPException(422, f"{field}: this is no number from 0 to {largest:,}.")
    return int(value)


def member_of(request: Request, field: str, kind: type[E]) -> E | None:
    """Return a member of an enum. Raises HTTPException 422 for another text."""
    value = request.query_params.get(field, "").strip()
    try:
        return kind(value) if value else None
    except ValueError as error:
        raise HTTPException(422, f"{field}: choose one of the list.") from error
