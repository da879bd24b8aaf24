"""Bodies of a block of rounds go by dropping a table, on PostgreSQL: all of them, at once, and no others."""

import pytest
from sqlalchemy import delete, func, select, text, update

from foltr.storage import body_parts
from foltr.storage.bodies import count_orphans, pages_of, places_of
from foltr.storage.body_parts import DropStep, drop_old_part, prepare_part
from foltr.storage.body_tables import update_bodies
from foltr.storage.database import Database
from foltr.storage.errors import PartsRefusedError, WriterFencedError
from foltr.storage.federations import claim_federation
from foltr.storage.keys import KeyStore
from foltr.storage.queries import list_contributions
from foltr.storage.records import Batch
from foltr.storage.rekeying import rekey
from foltr.storage.retention import delete_old_bodies
from foltr.storage.schema import INTEGER_MAX
from foltr.storage.tables import clients, updates

from .conftest import at

NAMES = ("a", "b")
INTERVAL = 3


@pytest.fixture
async def divided(sealed):
    """Rounds 1 to 10, two updates in each; 2 to 5 and 6 to 9 have a part each, but for 4 and 7, which are kept."""
    await sealed.join(*NAMES)
    await sealed.open(1)
    assert await prepare(sealed, 1) == (INTEGER_MAX if sealed.db.dialect == "sqlite" else 5)
    for number in range(1, 11):
        for name in NAMES:
            await sealed.send(name, number=number, body=f"{name} in {number}".encode())
        await sealed.end(number)
        if number == 3:
            await prepare(sealed, number + 1)
    yield sealed
    if sealed.db.dialect == "postgresql":
        assert await count_orphans(sealed.db, 5.0) == 0


# SQLite has no parts: what is in it is deleted row by row, as ever.
with_parts = pytest.mark.parametrize("migrated_url", ["postgresql"], indirect=True)


async def prepare(stored, open_round: int) -> int:
    return await stored.prepare_part(open_round, 4, INTERVAL)


async def drop(stored, before_round: int, interval: int = INTERVAL, most_moved: int = 2) -> DropStep:
    return await stored.drop_old_part(before_round, interval, at(60), most_moved=most_moved)


async def whole_rounds(stored) -> set[int]:
    lines = await list_contributions(stored.db, "web")
    gone = {line.round for line in lines if line.body == "deleted"}
    assert len(lines) == 20
    return {line.round for line in lines} - gone


async def parts(stored) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    async with stored.db.reading() as connection:
        for part, number in await connection.execute(select(update_bodies.c.part, update_bodies.c.round).distinct()):
            found.setdefault(part, set()).add(number)
    return found


async def test_a_round_has_its_part_when_it_opens(divided) -> None:
    """The one that was made for it; rounds that unlearning keeps, and those that there is no part for, are in 0."""
    if divided.db.dialect == "sqlite":
        assert await parts(divided) == {0: set(range(1, 11))}
        assert await drop(divided, 9) == DropStep(rows_before=9)  # nothing is to drop: all goes row by row
        return
    first, second = sorted(set(await parts(divided)) - {0})
    assert await parts(divided) == {0: {1, 4, 7, 10}, first: {2, 3, 5}, second: {6, 8, 9}}
    assert await prepare(divided, 6) == 9  # half of it is left
    assert await prepare(divided, 8) == 13
    assert await prepare(divided, 20) == 24


@with_parts
async def test_a_part_goes_when_all_its_rounds_are_old(divided) -> None:
    """One after the other; what is said of each update stays, and no round is listed that unlearning cannot replay."""
    before = await divided.dump()
    assert await drop(divided, 5) == DropStep(rows_before=2)
    assert await drop(divided, 6) == DropStep(n_updates=6)
    assert await whole_rounds(divided) == {1, 4, 6, 7, 8, 9, 10}
    assert await drop(divided, 6) == DropStep(rows_before=6)
    assert await drop(divided, 11) == DropStep(n_updates=6)
    assert await drop(divided, 11) == DropStep(rows_before=11)
    assert await whole_rounds(divided) == {1, 4, 7, 10}
    after = await divided.dump()
    assert [number for _, number in after["stored_rounds"]] == [1, 4, 7, 10]
    assert all(row[-1] is not None for row in after["body_parts"])
    for table in ("update_bodies", "stored_rounds", "body_parts"):
        del before[table], after[table]
    assert after == before
    async with divided.db.reading() as connection:
        left = await connection.scalars(text("SELECT relname FROM pg_class WHERE relname ~ '^update_bodies_[0-9]+$'"))
        assert set(left) == {"update_bodies_0"}


@with_parts
async def test_who_reads_is_not_waited_for(divided) -> None:
    """A backup, for example: whoever stores updates meanwhile would wait behind who waits for it."""
    before = await divided.dump()
    async with divided.db.reading() as reader:
        await reader.execute(select(update_bodies.c.round).limit(1))
        assert await drop(divided, 6) == DropStep(is_delayed=True)
        assert await prepare(divided, 8) == 13  # to make one nobody is in the way
    await divided.commit(Batch(updates=[]))
    assert (await divided.dump())["update_bodies"] == before["update_bodies"]
    assert await drop(divided, 6) == DropStep(n_updates=6)


@with_parts
@pytest.mark.parametrize("step", ["prepare", "move", "drop"])
async def test_it_happens_wholly_or_not_at_all(divided, monkeypatch, step) -> None:
    """Who dies in between leaves what there was, and the next one does it."""

    def die(_: object) -> None:
        raise ArithmeticError

    with monkeypatch.context() as dying:
        dying.setattr(body_parts, "failpoint", die)
        async with divided.refuses(ArithmeticError):
            if step == "prepare":
                await prepare(divided, 8)
            await drop(divided, 6, interval=2 if step == "move" else INTERVAL)
    assert await prepare(divided, 8) == 13
    assert await drop(divided, 6) == DropStep(n_updates=6)
    await claim_federation(divided.db, "web", 0.0)
    for fenced in (prepare(divided, 20), drop(divided, 11)):
        async with divided.refuses(WriterFencedError):
            await fenced


@with_parts
async def test_a_part_that_somebody_has_dropped_is_noted_when_it_is_old(divided) -> None:
    """To make room, say: its rounds are thinned, and the federator that comes to drop it goes on."""
    async with divided.db.transaction() as connection:
        await connection.execute(text(f"DROP TABLE update_bodies_{min(set(await parts(divided)) - {0})}"))
    assert await whole_rounds(divided) == {1, 4, 6, 7, 8, 9, 10}
    assert await drop(divided, 6) == DropStep(n_updates=6)
    assert await drop(divided, 6) == DropStep(rows_before=6)


@with_parts
async def test_a_user_who_does_not_own_the_tables_deletes_row_by_row(divided, postgres_server) -> None:
    """Of such a one federators run, too: it makes no part, and drops none that was made before."""
    of_parts = divided.db.engine.url
    postgres_server.sql("CREATE ROLE no_owner LOGIN")
    try:
        for what in ("ALL TABLES", "ALL SEQUENCES"):
            postgres_server.sql(f"GRANT ALL ON {what} IN SCHEMA public TO no_owner", of_parts.database)
        url = of_parts.set(drivername="postgresql", username="no_owner")
        db = await Database.connect(url.render_as_string(hide_password=False))
        try:
            with pytest.raises(PartsRefusedError, match=r"permission denied|must be owner"):
                await prepare_part(db, "web", divided.epoch, 8, 4, INTERVAL)
            assert await drop_old_part(db, "web", divided.epoch, 6, INTERVAL, at(60)) == DropStep(rows_before=6)
            assert (await delete_old_bodies(db, "web", divided.epoch, 6, INTERVAL)).n_deleted == 6
        finally:
            await db.close()
        assert await whole_rounds(divided) == {1, 4, 6, 7, 8, 9, 10}
    finally:
        postgres_server.sql("DROP OWNED BY no_owner", of_parts.database)
        postgres_server.sql("DROP ROLE no_owner")
    assert await drop(divided, 6) == DropStep(n_updates=6)


@with_parts
async def test_a_round_that_is_to_be_kept_now_moves_out_of_its_part(divided) -> None:
    """With an interval of 2 these are 3, 5 and 9: one with each call, with all that is stored of it; then parts go."""
    before = await divided.dump()
    assert await drop(divided, 6, interval=2) == DropStep(n_moved=2)
    assert (await parts(divided))[0] == {1, 3, 4, 7, 10}
    steps = [await drop(divided, 11, interval=2) for _ in range(5)]
    moved, dropped = DropStep(n_moved=2), (DropStep(n_updates=2), DropStep(n_updates=4))
    assert steps == [moved, dropped[0], moved, dropped[1], DropStep(rows_before=11)]
    assert await parts(divided) == {0: {1, 3, 4, 5, 7, 9, 10}}
    done = await divided.delete_old_bodies(11, 2)
    assert (done.n_deleted, done.next_round) == (4, 11)
    assert await whole_rounds(divided) == {1, 3, 5, 7, 9}
    after = await divided.dump()
    part = list(update_bodies.columns).index(update_bodies.c.part)
    kept = [row for row in before["update_bodies"] if row[1] in {1, 3, 5, 7, 9}]
    assert after["update_bodies"] == [(*row[:part], 0, *row[part + 1 :]) for row in kept]
    assert await divided.sent(5) == {"a": b"a in 5", "b": b"b in 5"}


@with_parts
async def test_a_part_with_a_round_that_is_too_large_to_move_stays(divided) -> None:
    """With an interval of 2: the other rounds go row by row. With one of 3 it can be dropped again."""
    assert await drop(divided, 11, interval=2, most_moved=1) == DropStep(rows_before=11)
    done = await divided.delete_old_bodies(11, 2)
    assert (done.n_deleted, done.next_round) == (10, 11)
    assert await whole_rounds(divided) == {1, 3, 5, 7, 9}
    assert await divided.sent(5) == {"a": b"a in 5", "b": b"b in 5"}
    assert await drop(divided, 11) == DropStep(n_updates=6)
    assert await drop(divided, 11) == DropStep(n_updates=6)
    assert await whole_rounds(divided) == {1, 7}


async def test_of_who_is_erased_no_body_is_left_in_any_part(divided) -> None:
    """Of dropped parts there is nothing to delete; the digest is over what is there, in order of rounds."""
    await drop(divided, 6)
    whole = await whole_rounds(divided)
    async with divided.db.reading() as connection:
        client = await connection.scalar(select(clients.c.id).where(clients.c.client_id == "a"))
        bodies = select(update_bodies.c.round).where(update_bodies.c.client == client)
        assert set(await connection.scalars(bodies)) == whole
        places = await places_of(connection, client)
        (page,) = pages_of(places)
        assert set(await connection.scalars(select(update_bodies.c.round).where(*page))) == whole
    erased = await divided.erase("a")
    assert (erased.n_updates, erased.n_rounds) == (10, 10)
    async with divided.db.reading() as connection:
        assert set(await connection.scalars(select(update_bodies.c.client).distinct())) == {client + 1}
        assert await connection.scalar(select(func.count()).select_from(update_bodies)) == len(whole)


async def test_other_keys_seal_what_is_in_any_part(divided, keys: KeyStore) -> None:
    """And what is read after it is what was sent."""
    await drop(divided, 6)
    whole = await whole_rounds(divided)
    done = await rekey(divided.db, "web", 1.0, lambda *_: None)
    assert (done.n_clients, done.n_updates) == (2, 2 * len(whole))
    divided.db.keys = KeyStore(keys.folder)
    for number in whole:
        assert await divided.sent(number) == {name: f"{name} in {number}".encode() for name in NAMES}


async def test_a_client_is_found_without_looking_through_history(divided) -> None:
    """Its updates by their index on clients, and their bodies by their whole key, in the parts that they are in."""
    async with divided.db.reading() as connection:
        places = await places_of(connection, 1)
        (page,) = pages_of([place for place in places if place.round in {2, 3}])
        dialect = connection.dialect
        compiled = [
            str(statement.compile(dialect=dialect, compile_kwargs={"literal_binds": True}))
            for statement in (delete(update_bodies).where(*page), delete(updates).where(updates.c.client == 1))
        ]
        if dialect.name == "sqlite":
            plans = [(await connection.execute(text(f"EXPLAIN QUERY PLAN {sql}"))).all() for sql in compiled]
            assert "(federation=? AND round=? AND client=? AND part=?)" in str(plans[0])
            assert "(client=?)" in str(plans[1])
            return
        # A few rows are read faster without an index: what is asked for here is what would be done with many.
        await connection.execute(text("SET LOCAL enable_seqscan = off"))
        of_bodies, of_updates = ["\n".join(await connection.scalars(text(f"EXPLAIN {sql}"))) for sql in compiled]
        assert of_bodies.count("Scan using") + of_bodies.count("Bitmap Index Scan") == 1
        assert "update_bodies_0" not in of_bodies
        assert "uq_updates_client" in of_updates


@with_parts
async def test_bodies_that_no_statement_finds_are_counted(divided) -> None:
    """Those of no update, and those in another part than their round's; not where that takes too long."""
    async with divided.db.transaction() as connection:
        await connection.execute(text("CREATE TABLE before AS SELECT * FROM update_bodies WHERE round IN (2, 3)"))
        await connection.execute(delete(updates).where(updates.c.round == 2, updates.c.client == 1))
        await connection.execute(update(update_bodies).where(update_bodies.c.round == 3).values(part=0))
    assert await count_orphans(divided.db, 5.0) == 3
    async with divided.db.transaction() as connection:
        await connection.execute(text("LOCK TABLE update_bodies"))
        assert await count_orphans(divided.db, 0.1) is None
        await connection.execute(delete(update_bodies).where(update_bodies.c.round.in_([2, 3])))
        await connection.execute(text("INSERT INTO update_bodies SELECT * FROM before WHERE round = 3"))
        await connection.execute(text("DROP TABLE before"))
