"""How long an update waits for its answer while many clients are forgotten from a large database.

``python research/benchmarks/forgetting.py [--gigabytes 1] [--devices 200] [--leaving 50] [--sybils 10] [--strategy
rollback]`` fills a database with the sealed updates of past rounds of these devices; sybils are only in the newest.
Then the federation's actor runs as in the service, on that database and the real clock, but without a network. Every
device sends an update for each round, and the next one after its answer. Meanwhile many ask to be forgotten. Measured
are the time from an update's arrival to its answer, and the rounds that end. The run ends when the job's model is in
service, or after ``--seconds``.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from answered_fleet import NAME, Fleet, serving
from sqlalchemy import insert, text

from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.membership import Forget
from foltr.core.protocol.states import JobState, Privacy, Strategy
from foltr.core.protocol.topics import ClientTopic
from foltr.core.protocol.trainings import PdgdTraining
from foltr.federator.closing.stored_rules import training_text
from foltr.federator.job import UnlearningPolicy
from foltr.federator.plan import FederationPlan
from foltr.federator.round import RoundPolicy
from foltr.federator.store import FederationStore
from foltr.storage.body_tables import update_bodies
from foltr.storage.cipher import AES_256_GCM, associated_data, encrypt
from foltr.storage.clients import find_keys
from foltr.storage.database import Database
from foltr.storage.erasure.unlearning_jobs import list_jobs
from foltr.storage.erasure_tables import stored_rounds
from foltr.storage.keys import KeyStore, fingerprint
from foltr.storage.migrate import upgrade
from foltr.storage.model_tables import models
from foltr.storage.records import Batch, MembershipChange
from foltr.storage.tables import rounds, updates

N_FEATURES = 136
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ROW_BYTES = 900  # of an update, with its indexes
SYBIL_ROUNDS = 20
ASK_AFTER_S = 5.0


# --- the existing database --------------------------------------------------------------------------------------


async def fill(store: FederationStore, db: Database, keys: KeyStore, names: Sequence[str], n_rounds: int) -> None:
    """Store past rounds, each with an update of every device. Sybils are only in the newest."""
    await store.create_federation(
        N_FEATURES, "linear", bytes(4 * N_FEATURES), NOW, selection_seed=bytes(32), aggregation_seed=bytes(32),
        pseudonym_key=bytes(32), method="fpdgd", hidden=None, privacy=Privacy.TRUSTED,
    )  # fmt: skip
    await store.claim_federation(time.time())
    await store.note_training(1, training_text(PdgdTraining()))
    await store.commit_batch(Batch(membership=[MembershipChange(name, "joined", NOW) for name in names]))
    keys.ensure(NAME, names)
    async with db.reading() as connection:
        clients = await find_keys(connection, NAME, names)
    for number in range(1, n_rounds + 1):
        late = number > n_rounds - SYBIL_ROUNDS
        there = {name: clients[name] for name in names if late or not name.startswith("sybil")}
        await _fill_round(db, keys, number, there)


async def _fill_round(db: Database, keys: KeyStore, number: int, there: dict[str, int]) -> None:
    sent, bodies, rng = [], [], np.random.default_rng(number)
    for name, client in there.items():
        update_id, key = f"{number}-{client}", keys.key(NAME, name)
        body = encrypt(key, pack_vector(rng.normal(size=N_FEATURES)), associated_data(NAME, number, name, update_id))
        sent.append(
            {
                "federation": NAME, "round": number, "client": client, "update_id": update_id,
                "base_version": number - 1, "n_interactions": 5, "encoding": "dense_f32",
                "n_bytes": 4 * N_FEATURES, "received_at": NOW,
            }
        )  # fmt: skip
        bodies.append(
            {
                "federation": NAME, "round": number, "client": client, "body": body, "cipher": AES_256_GCM,
                "key_fingerprint": fingerprint(key),
            }
        )  # fmt: skip
    of_round = {"base_version": number - 1, "federation": NAME}
    model = {
        "version": number, "round": number, "n_values": N_FEATURES, "weights": bytes(4 * N_FEATURES),
        "weights_hash": os.urandom(16), "created_at": NOW,
    }  # fmt: skip
    closed = {
        "number": number, "state": "completed", "model_version": number, "min_clients": 1, "max_clients": len(sent),
        "min_time_s": 0.0, "max_time_s": 60.0, "opened_at": NOW, "closes_at": NOW, "closed_at": NOW,
        "n_updates": len(sent), "n_interactions": 5 * len(sent),
    }  # fmt: skip
    async with db.transaction() as connection:
        if db.dialect == "sqlite":
            # A model and its round refer to each other.
            await connection.execute(text("PRAGMA defer_foreign_keys=ON"))
        await connection.execute(insert(models), of_round | model)
        await connection.execute(insert(rounds), of_round | closed)
        await connection.execute(insert(updates), sent)
        await connection.execute(insert(update_bodies), bodies)
        await connection.execute(insert(stored_rounds), {"federation": NAME, "round": number})


# --- the measurement --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunParameters:
    """The parameters of a run."""

    gigabytes: float
    devices: int
    leaving: int
    sybils: int
    strategy: Strategy
    seconds: float


async def run(asked: RunParameters, folder: Path) -> None:
    """Fill a database, run the actor on it, have many forgotten, and print the measurements."""
    trusted = [f"device-{i:04d}" for i in range(asked.devices)]
    sybils = [f"sybil-{i:04d}" for i in range(asked.sybils)]
    names, keys = [*trusted, *sybils], KeyStore(folder / "keys")
    async with await Database.connect(f"sqlite:///{folder}/foltr.sqlite", keys=keys) as db:
        await upgrade(db)
        n_rounds = max(2 * SYBIL_ROUNDS, int(asked.gigabytes * 1e9) // (ROW_BYTES * asked.devices))
        await fill(FederationStore(db, NAME), db, keys, names, n_rounds)
        size = (folder / "foltr.sqlite").stat().st_size
        print(f"{size / 1e9:.2f} GB, {len(names)} clients, {n_rounds} rounds; load average {os.getloadavg()[0]:.1f}")
        fleet = Fleet(names, N_FEATURES)
        # A step waits for those present; a round for half of them, so it continues without those who leave.
        plan = FederationPlan(
            NAME, N_FEATURES, RoundPolicy(10, max(10, asked.devices // 2), 1.0, 20.0),
            unlearning=UnlearningPolicy(asked.strategy, every_s=2.0, swap_every_s=0.0, step_s=5.0),
        )  # fmt: skip
        async with serving(plan, FederationStore(db, NAME), fleet) as running:
            await _measure(asked, fleet, db, [*trusted[: asked.leaving], *sybils], running)


async def _measure(
    asked: RunParameters, fleet: Fleet, db: Database, leaving: Sequence[str], running: asyncio.Task[None]
) -> None:
    await asyncio.sleep(ASK_AFTER_S)
    usual, fleet.waits_s = fleet.waits_s, []
    began, first = time.perf_counter(), 0 if fleet.round is None else fleet.round.round
    for name in leaving:
        fleet.leaving.add(name)
        fleet.say(name, ClientTopic.FORGET, Forget(federation=NAME, client_id=name))
        await asyncio.sleep(0.1)
    while time.perf_counter() < began + asked.seconds and not running.done():
        jobs = await list_jobs(db, NAME)
        if jobs and all(job.state is JobState.DONE for job in jobs) and set(leaving) <= fleet.forgotten:
            break
        await asyncio.sleep(0.5)
    spent = time.perf_counter() - began
    jobs = await list_jobs(db, NAME)
    for job in jobs:
        print(f"{f'job {job.number}, {job.strategy}':32} {job.state}, step {job.step} of {job.n_steps}; {spent:.0f} s")
    n_told, last = len(fleet.forgotten & set(leaving)), first if fleet.round is None else fleet.round.round
    told = {
        "clients that were notified": f"{n_told} of {len(leaving)}",
        "an update is answered, usually": f"{_ms(statistics.median(usual))}, and {_ms(max(usual))} at most",
        "while many are forgotten": f"{_ms(statistics.median(fleet.waits_s))}, {_ms(fleet.longest_wait_s())} at most",
        "updates answered meanwhile": str(len(fleet.waits_s)),
        "rounds that ended meanwhile": str(last - first),
    }
    for what, figure in told.items():
        print(f"{what:32} {figure}")


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.0f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--devices", type=int, default=200)
    parser.add_argument("--leaving", type=int, default=50)
    parser.add_argument("--sybils", type=int, default=10)
    parser.add_argument("--strategy", type=Strategy, choices=list(Strategy), default=Strategy.ROLLBACK)
    parser.add_argument("--seconds", type=float, default=300.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="foltr-forgetting-") as folder:
        asyncio.run(run(RunParameters(**vars(given)), Path(folder)))


if __name__ == "__main__":
    main()
