"""Statements that are made once reach SQLite without SQLAlchemy, and come to the same as with it."""

import sqlite3
from datetime import UTC, datetime

import pytest
from sqlalchemy import Boolean, Column, Integer, LargeBinary, MetaData, Table, bindparam, insert, select, text, update
from sqlalchemy.exc import IntegrityError, MultipleResultsFound, NoResultFound

from foltr.protocol.states import RoundState
from storage.constants import _CONSTANTS, Answer, compile_constant, constant, is_constant
from storage.database import Database, fetch_all, fetch_one
from storage.schema import Member, UtcDateTime

AT = datetime(2026, 11, 23, 20, 15, 1, 250_000, UTC)
THINGS = Table(
    "things",
    MetaData(),
    Column("number", Integer, primary_key=True),
    Column("at", UtcDateTime),
    Column("state", Member(RoundState)),
    Column("raw", LargeBinary),
    Column("is_new", Boolean),
)
ROW = {"number": 1, "at": AT, "state": RoundState.COLLECTING, "raw": b"\0\1", "is_new": True}
EMPTY = dict.fromkeys(ROW) | {"number": 2}
INSERT = constant(insert(THINGS))
OF_NUMBER = constant(select(THINGS).where(THINGS.c.number == bindparam("of_number")))
COLLECTING = constant(
    select(THINGS.c.number).where(THINGS.c.state == RoundState.COLLECTING, THINGS.c.at == bindparam("at"))
)


@pytest.fixture
async def db(tmp_path):
    async with await Database.connect(f"sqlite:///{tmp_path / 'a.sqlite'}") as database:
        async with database.transaction() as connection:
            await connection.run_sync(THINGS.metadata.create_all)
        yield database


async def store(db: Database, *rows: dict, then=None) -> list[int]:
    async with db.transaction() as connection:
        changed = [(await connection.execute(INSERT, row)).rowcount for row in rows]
        if then is not None:
            await connection.execute(then)
    return changed


async def find(db: Database, number: int) -> dict | None:
    async with db.reading() as connection:
        return await fetch_one(connection, dict, OF_NUMBER, {"of_number": number})


async def find_collecting(db: Database) -> tuple[list[int], int | None]:
    async with db.reading() as connection:
        numbers = list(await connection.scalars(COLLECTING, {"at": AT}))
        return numbers, await connection.scalar(COLLECTING, {"at": AT})


@pytest.mark.parametrize("row", [ROW, EMPTY])
async def test_values_are_stored_and_read_as_by_sqlalchemy(db, row):
    """Moments, members of enums, bytes, truths and nulls, whoever stored them and whoever reads them."""
    assert await db.run(store, row) == [1]
    assert await store(db, row | {"number": 7}) == [1]
    assert await db.run(find, row["number"]) == await find(db, row["number"]) == row
    assert await db.run(find, 7) == await find(db, 7) == row | {"number": 7}
    assert await db.run(find, 3) is await find(db, 3) is None


async def test_values_that_a_statement_brings_itself_are_adapted_too(db):
    """A state that it compares with, say."""
    await db.run(store, ROW, EMPTY)
    assert await db.run(find_collecting) == await find_collecting(db) == ([1], 1)


async def test_they_and_all_other_statements_are_in_one_transaction(db):
    """It is kept as a whole or not at all, whichever fails."""
    await db.run(store, ROW, then=text("UPDATE things SET raw = x'02'"))
    assert (await find(db, 1))["raw"] == b"\2"
    with pytest.raises(IntegrityError):
        await db.run(store, EMPTY, then=text("INSERT INTO things (number) VALUES (1)"))
    with pytest.raises(IntegrityError):
        await db.run(store, EMPTY, ROW)
    assert await find(db, 2) is None
    await db.run(store, EMPTY)
    assert await find(db, 2) == EMPTY


async def test_what_the_driver_refuses_is_raised_as_by_sqlalchemy_and_tells_no_values(db):
    """Whoever tries again, or tells a person why, goes by that."""
    await db.run(store, ROW)
    with pytest.raises(IntegrityError) as caught:
        await db.run(store, ROW)
    assert isinstance(caught.value.orig, sqlite3.IntegrityError)
    assert "RoundState" not in str(caught.value)
    assert str(AT.year) not in str(caught.value)


async def test_a_value_that_is_missing_is_no_null(db):
    """Nothing is stored for it."""
    with pytest.raises(KeyError):
        async with Database(db.engine.url, threads=False) as there, there.reading() as connection:
            await connection.execute(OF_NUMBER, {})


async def test_many_rows_are_read_in_their_order(db):
    """By the names of their columns."""

    async def find_all(db: Database) -> list[dict]:
        async with db.reading() as connection:
            return await fetch_all(connection, dict, ALL)

    await db.run(store, EMPTY, ROW)
    assert await db.run(find_all) == await find_all(db) == [ROW, EMPTY]


ALL = constant(select(THINGS).order_by(THINGS.c.number))


async def test_a_statement_with_a_list_of_any_length_is_none(db):
    """It is another text for each length."""
    with pytest.raises(ValueError, match="not a constant statement"):
        compile_constant(select(THINGS).where(THINGS.c.number.in_([1, 2])), db.engine.dialect, ())


async def test_what_sqlalchemy_alone_makes_or_reads_is_none(db):
    """Rows that are returned would keep a moment as text, and a default would be stored as null."""
    defaults = Table("defaults", MetaData(), Column("at", UtcDateTime, default=lambda: AT, onupdate=lambda: AT))
    for statement in (insert(THINGS).returning(THINGS.c.at), insert(defaults), update(defaults)):
        with pytest.raises(ValueError, match="not a constant statement"):
            compile_constant(statement, db.engine.dialect, ())


def test_of_several_rows_none_is_the_only_one():
    """As SQLAlchemy has it."""
    with pytest.raises(MultipleResultsFound):
        Answer([(1,), (2,)], ("number",), -1).one_or_none()
    with pytest.raises(NoResultFound):
        Answer([], ("number",), -1).one()
    assert Answer([(1,)], ("number",), -1).one() == (1,)
    assert Answer([], ("number",), -1).scalar() is None


def test_what_ends_a_round_is_made_once():
    """Statements of the ways that are gone often; whatever looks like one is none."""
    from storage.round_statements import CLOSE, THE_ROUND

    assert is_constant(CLOSE)
    assert is_constant(THE_ROUND)
    assert not is_constant(THE_ROUND.limit(1))
    assert all(is_constant(statement) for statement in _CONSTANTS.values())
