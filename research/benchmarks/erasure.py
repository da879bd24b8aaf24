"""How long a federation does not answer while a client is forgotten, and whether any file has its name afterwards.

``python research/benchmarks/erasure.py [--gigabytes 1] [--clients 10000] [--db URL]``: a database is filled with the
updates of past rounds; then updates arrive one after the other, each in its own transaction, while one client is
forgotten as a federator does it. What is measured is the longest time in which no update was stored, beside the usual
one.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count, pairwise
from pathlib import Path

from sqlalchemy import insert, text

from foltr.core.erasure.pseudonyms import pseudonym
from foltr.core.protocol.states import Privacy
from foltr.federator.store import FederationStore
from foltr.storage.body_tables import update_bodies
from foltr.storage.clients import find_keys
from foltr.storage.database import Database
from foltr.storage.erasure_records import ErasureRequest
from foltr.storage.keys import KeyStore, fingerprint
from foltr.storage.migrate import upgrade
from foltr.storage.model_tables import models
from foltr.storage.records import Batch, MembershipChange, NewEvent, NewUpdate, RoundOpening
from foltr.storage.tables import events, rounds, updates

NAME = "web"
LEAVER = "the-device-to-forget-7f3a"
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PSEUDONYM_KEY = bytes(range(32))
BODY_BYTES = 572  # an update of 136 features, sealed
PER_ROUND = 1000
_PIECE_BYTES = 1 << 24


@dataclass
class Arrivals:
    """Updates that arrive: when each was stored, in seconds."""

    stored_at: list[float] = field(default_factory=list)
    over: bool = False

    def gaps(self, since: float) -> list[float]:
        """The times, from ``since`` on, in which none was stored."""
        moments = [since, *(moment for moment in self.stored_at if moment >= since)]
        return [later - earlier for earlier, later in pairwise(moments)]


async def fill(db: Database, data_keys: KeyStore, store: FederationStore, n_bytes: int, names: list[str]) -> int:
    """Store past rounds until the database is about that large, the leaver in every tenth; return how many."""
    await store.create_federation(
        3, "linear", bytes(12), NOW, selection_seed=bytes(32), aggregation_seed=bytes(32), pseudonym_key=PSEUDONYM_KEY,
        method="fpdgd", hidden=None, privacy=Privacy.TRUSTED,
    )  # fmt: skip
    await store.claim_federation(time.time())
    for start in range(0, len(names), PER_ROUND):
        some = names[start : start + PER_ROUND]
        await store.commit_batch(Batch(membership=[MembershipChange(name, "joined", NOW) for name in some]))
        await asyncio.to_thread(data_keys.ensure, NAME, some)
    async with db.reading() as connection:
        keys = {}
        for start in range(0, len(names), PER_ROUND):
            keys |= await find_keys(connection, NAME, names[start : start + PER_ROUND])
    others = [key for name, key in keys.items() if name != LEAVER]
    sealed_with = {key: fingerprint(data_keys.key(NAME, name)) for name, key in keys.items()}
    n_rounds = max(2, n_bytes // (PER_ROUND * (BODY_BYTES + 250)))
    for number in range(1, n_rounds + 1):
        await _fill_round(db, number, others, keys[LEAVER] if number % 10 == 1 else None, sealed_with)
    return n_rounds


async def _fill_round(
    db: Database, number: int, others: list[int], leaver: int | None, sealed_with: dict[int, bytes]
) -> None:
    start = (number * PER_ROUND) % len(others)
    chosen = (others[start:] + others[:start])[: PER_ROUND - 1]
    sent = [
        {
            "federation": NAME, "round": number, "client": key, "update_id": f"{number}-{key}",
            "base_version": number - 1, "n_interactions": 5, "encoding": "dense_f32", "n_bytes": BODY_BYTES - 28,
            "received_at": NOW,
        }
        for key in (*chosen, *([] if leaver is None else [leaver]))
    ]  # fmt: skip
    bodies = [
        {
            "federation": NAME, "round": number, "client": row["client"], "body": os.urandom(BODY_BYTES),
            "cipher": "aes-256-gcm", "key_fingerprint": sealed_with[row["client"]],
        }
        for row in sent
    ]  # fmt: skip
    of_round = {"base_version": number - 1, "federation": NAME}
    opening = {"min_clients": 1, "max_clients": PER_ROUND, "min_time_s": 0.0, "max_time_s": 60.0}
    told = [
        {"federation": NAME, "at": NOW, "kind": "client_online", "client": row["client"], "round": number, "detail": ""}
        for row in sent[::10]
    ]
    async with db.transaction() as connection:
        await connection.execute(
            insert(rounds),
            of_round | opening | {
                "number": number, "state": "abandoned", "reason": "filled", "opened_at": NOW, "closes_at": NOW,
                "closed_at": NOW, "n_updates": len(sent), "n_interactions": 5 * len(sent),
            },
        )  # fmt: skip
        model = {
            "version": number, "round": number, "n_values": 136, "weights": os.urandom(544),
            "weights_hash": os.urandom(16), "created_at": NOW,
        }  # fmt: skip
        await connection.execute(insert(models), of_round | model)
        await connection.execute(insert(updates), sent)
        await connection.execute(insert(update_bodies), bodies)
        await connection.execute(insert(events), told)
        await connection.execute(
            text(
                "UPDATE rounds SET state = 'completed', reason = NULL, model_version = :number WHERE number = :number"
            ),
            {"number": number},
        )


async def keep_arriving(store: FederationStore, number: int, names: list[str], arrivals: Arrivals) -> None:
    """One update after the other, each in its own transaction, until it is over; a refusal among them."""
    for i in count():
        if arrivals.over:
            return
        update = NewUpdate(
            round=number, client_id=names[i % len(names)], update_id=f"live-{i}", base_version=number - 1,
            covers_after=0, covers_through=5, n_interactions=5, encoding="dense_f32", body=os.urandom(544),
            received_at=NOW,
        )  # fmt: skip
        refused = NewEvent(NOW, "update_rejected", "", "late", names[(7 * i) % len(names)], number)
        batch = Batch(updates=[update] if i < len(names) else [], events=[refused] if i % 10 == 0 else [])
        await store.commit_batch(batch)
        arrivals.stored_at.append(time.perf_counter())
        await asyncio.sleep(0.001)


async def forget(store: FederationStore) -> dict[str, float]:
    """As `foltr.federator.eraser` does it; how many seconds each part took."""
    spent = {}
    known_as = pseudonym(PSEUDONYM_KEY, LEAVER)

    @asynccontextmanager
    async def timed(part: str) -> AsyncIterator[None]:
        began = time.perf_counter()
        yield
        spent[part] = time.perf_counter() - began

    async with timed("rows deleted"):
        row = await store.erase_client(ErasureRequest(LEAVER, known_as, NOW, "operator", NOW))
    async with timed("key destroyed"):
        await store.note_key_destroyed(known_as, destroyed=await store.destroy_key(LEAVER, row.key_fingerprint))
    async with timed("name let go"):
        await store.note_told(known_as)
    async with timed("table of names written anew"):
        for pause_s in (0.5, 1.0, 2.0, 4.0):
            if await store.purge():
                break
            await asyncio.sleep(pause_s)
    return spent


async def files_with(db: Database, sought: bytes) -> tuple[list[str], int]:
    """The files of the database that hold these bytes, and how many bytes were searched."""
    folder = str(Path(db.engine.url.database or "").parent)
    if db.dialect == "postgresql":
        async with db.engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
            await connection.execute(text("CHECKPOINT"))
            folder = str((await connection.execute(text("SHOW data_directory"))).scalar_one())
    return await asyncio.to_thread(_search, Path(folder), sought)


def _search(folder: Path, sought: bytes) -> tuple[list[str], int]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    found = sorted(str(path.relative_to(folder)) for path in paths if _has(path, sought))
    return found, sum(path.stat().st_size for path in paths)


def _has(path: Path, sought: bytes) -> bool:
    with path.open("rb") as file:
        kept = b""
        while piece := file.read(_PIECE_BYTES):
            if sought in kept + piece:
                return True
            kept = piece[-len(sought) :]
    return False


async def run(url: str, keys: Path, gigabytes: float, n_clients: int) -> None:
    data_keys = KeyStore(keys)
    others = [f"device-{i:06d}" for i in range(n_clients - 1)]
    names = [*others[: n_clients // 2], LEAVER, *others[n_clients // 2 :]]
    async with await Database.connect(url, keys=data_keys) as db:
        await upgrade(db)
        store = FederationStore(db, NAME)
        n_rounds = await fill(db, data_keys, store, int(gigabytes * 1e9), names)
        found, n_bytes = await files_with(db, LEAVER.encode())
        print(f"{n_bytes / 1e9:.2f} GB, {n_clients} clients, {n_rounds} rounds; load average {os.getloadavg()[0]:.1f}")
        print(f"the name is in {', '.join(found) or 'no file'}")
        await store.open_round(RoundOpening(n_rounds + 1, n_rounds, 1, n_clients + 1, 0.0, 3600.0, NOW, NOW))
        arrivals = Arrivals()
        arriving = asyncio.create_task(keep_arriving(store, n_rounds + 1, others, arrivals))
        await asyncio.sleep(2)
        usual, began = [1e3 * gap for gap in arrivals.gaps(0.0)[1:]], time.perf_counter()
        spent = await forget(store)
        await asyncio.sleep(0.5)
        arrivals.over = True
        await arriving
        for part, seconds in spent.items():
            print(f"{part:30} {1e3 * seconds:8.0f} ms")
        print(
            f"{'between two updates, usually':30} {statistics.median(usual):8.0f} ms, and at most {max(usual):.0f} ms"
        )
        print(f"{'no update was stored for':30} {1e3 * max(arrivals.gaps(began)):8.0f} ms at most meanwhile")
        found, n_bytes = await files_with(db, LEAVER.encode())
        print(f"{n_bytes / 1e9:.2f} GB searched: the name is in {', '.join(found) or 'no file'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--db", help="an empty PostgreSQL database; SQLite in a temporary folder without")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="foltr-erasure-") as folder:
        url = given.db or f"sqlite:///{folder}/database/foltr.sqlite"
        (Path(folder) / "database").mkdir()
        asyncio.run(run(url, Path(folder) / "keys", given.gigabytes, given.clients))


if __name__ == "__main__":
    main()
