"""What all tables are made of: the metadata they belong to, and the types that mean the same in both databases."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, Column, DateTime, Dialect, Integer, MetaData, String, TypeDecorator

FEDERATION_MAX = 64
CLIENT_ID_MAX = 64
UPDATE_ID_MAX = 36
SHORT_TEXT_MAX = 64
DETAIL_MAX = 500
INTEGER_MAX = 2**31 - 1


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


# Rows are replayed in client_id order. Byte order is the one order that SQLite, PostgreSQL and every
# C library's locale agree on, so a replay on another machine sums in the same order.
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


def federation_column(**options: Any) -> "Column[str]":
    return Column("federation", String(FEDERATION_MAX), nullable=False, comment="Federation", **options)
