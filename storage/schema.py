"""The common basis of all tables: their metadata, and types that mean the same in both databases."""

from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeVar

from sqlalchemy import (
    BigInteger,
    BindParameter,
    Column,
    DateTime,
    Dialect,
    ForeignKey,
    Integer,
    MetaData,
    String,
    TypeDecorator,
    bindparam,
)

FEDERATION_MAX = 64
CLIENT_ID_MAX = 64
UPDATE_ID_MAX = 36
SHORT_TEXT_MAX = 64
DETAIL_MAX = 500
INTEGER_MAX = 2**31 - 1
_STATE_MAX = 16

E = TypeVar("E", bound=StrEnum)


class UtcDateTime(TypeDecorator[datetime]):
    """A moment: aware and in UTC in Python, ``timestamptz`` on PostgreSQL, readable UTC text on SQLite."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value!r} has no time zone; storage takes aware datetimes only")
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if dialect.name == "sqlite" else value.astimezone(UTC)


class Member(TypeDecorator[E]):
    """A member of an enum in Python, its text in the database; a constraint by `one_of` allows no other text."""

    impl = String
    cache_ok = True

    def __init__(self, kind: type[E], length: int = _STATE_MAX) -> None:
        super().__init__(length)
        self.kind = kind

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002 (as the base has it)
        return None if value is None else str(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> E | None:  # noqa: ARG002
        return None if value is None else self.kind(value)


def one_of(column: str, members: Iterable[StrEnum]) -> str:
    """SQL that says which texts a column may have."""
    return f"{column} IN ({', '.join(repr(str(member)) for member in members)})"


def in_words(members: Iterable[StrEnum]) -> str:
    """Their texts for a comment: "running, paused or done"."""
    *first, last = members
    return f"{', '.join(first)} or {last}"


# Rows are replayed in client_id order. Only byte order is the same in SQLite, PostgreSQL and every C library's locale,
# so that a replay on another machine sums in the same order.
ClientId = String(CLIENT_ID_MAX).with_variant(String(CLIENT_ID_MAX, collation="C"), "postgresql")
# SQLite autoincrements only a column declared INTEGER, which is 64 bits wide there.
RowId = BigInteger().with_variant(Integer(), "sqlite")

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


# Parameters of statements that are made once. INSERT and UPDATE reserve a column's own name.
OF_FEDERATION: BindParameter[str] = bindparam("of_federation", type_=String())
OF_ROUND = bindparam("of_round", type_=Integer())


def federation_column(**options: Any) -> "Column[str]":
    return Column("federation", String(FEDERATION_MAX), nullable=False, comment="Federation", **options)


def client_column(comment: str, **options: Any) -> "Column[int]":
    """Make the column with a client's key; only ``clients`` has its name.

    It needs an index: before a client's row is deleted the database looks for rows that refer to it.
    """
    return Column("client", RowId, ForeignKey("clients.id"), comment=comment, **options)
