"""How long an update waits for its answer while many are forgotten from a large database, and how many rounds end.

``python benchmarks/forgetting.py [--gigabytes 1] [--devices 200] [--leaving 50] [--sybils 10] [--strategy rollback]``:
a database is filled with the sealed updates of past rounds of these devices; sybils were in the newest only. Then the
federation's actor runs as in the service, on that database and the real clock, without a network: every device sends
an update for each round, and the next one after its answer; in the midst of it many ask to be forgotten. What is
measured is the time from an update's arrival to its answer. It ends when the job's model is in service, or after
``--seconds``.
"""

import argparse
import asyncio
import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import numpy as np
from sqlalchemy import insert, text

from broker.link import InboundMessage
from federator.actor import FederationActor
from federator.clock import SteadyClock
from federator.job import UnlearningPolicy
from federator.plan import FederationPlan
from federator.round import RoundPolicy
from foltr.protocol.announcements import ModelAnnouncement, RoundAnnouncement, UnlearningRound
from foltr.protocol.codec import encode
from foltr.protocol.fields import Message, pack_vector
from foltr.protocol.membership import Forget, Status
from foltr.protocol.receipts import ErasureNotice, UpdateReceipt
from foltr.protocol.states import JobState, Privacy, Strategy
from foltr.protocol.topics import ClientTopic, Topics
from foltr.protocol.updates import DenseDelta, ModelUpdate, UnlearningUpdate
from storage.body_tables import update_bodies
from storage.cipher import AES_256_GCM, associated_data, encrypt
from storage.clients import find_keys
from storage.database import Database
from storage.erasure.tables import stored_rounds
from storage.erasure.unlearning_jobs import list_jobs
from storage.federation_store import SqlFederationStore
from storage.keys import KeyStore, fingerprint
from storage.migrate import upgrade
from storage.model_tables import models
from storage.records import Batch, MembershipChange
from storage.tables import rounds, updates

NAME = "web"
TOPICS = Topics(NAME)
N_FEATURES = 136
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ROW_BYTES = 900  # of an update, with its indexes
SYBIL_ROUNDS = 20
PAUSE_S = 0.5  # between an answer and the next update: of 200 devices 400 updates a second at most
ASK_AFTER_S = 5.0


@dataclass
class Fleet:
    """All devices, without a network: what the actor tells them, and how long each update waited for its answer."""

    names: Sequence[str]
    waits_s: list[float] = field(default_factory=list)
    leaving: set[str] = field(default_factory=set)
    forgotten: set[str] = field(default_factory=set)
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    round: RoundAnnouncement | None = None
    # By update: whose it is, and when it was sent.
    _sent: dict[str, tuple[str, float]] = field(default_factory=dict)
    _answered: dict[str, asyncio.Future[UpdateReceipt]] = field(default_factory=dict)
    _actor: FederationActor | None = None
    _sequence: Callable[[], int] = field(default_factory=lambda: count(1).__next__)

    def attach(self, actor: FederationActor) -> None:
        self._actor = actor

    def say(self, name: str, topic: ClientTopic, message: Message) -> None:
        """Deliver a message to the actor, as the broker does."""
        assert self._actor is not None
        address = TOPICS.client(name, topic)
        self._actor.receive(InboundMessage(address, encode(message, address, self._sequence(), None), retained=False))

    # --- what the actor tells ---------------------------------------------------------------------------------

    def announce(self, _model: ModelAnnouncement, shown: RoundAnnouncement, _anchor: ModelAnnouncement | None) -> None:
        self.round = shown
        self.opened.set()
        self.opened = asyncio.Event()

    def send(self, receipts: Sequence[Message]) -> None:
        for receipt in receipts:
            if isinstance(receipt, ErasureNotice):
                self.forgotten.add(receipt.client_id)
            elif isinstance(receipt, UpdateReceipt) and receipt.update_id in self._sent:
                name, at = self._sent.pop(receipt.update_id)
                if name not in self.leaving:
                    self.waits_s.append(time.perf_counter() - at)
                answered = self._answered.pop(receipt.update_id)
                if not answered.done():  # its device has ended
                    answered.set_result(receipt)

    def notify(self, notices: Sequence[Message]) -> None:
        """Nobody waits for these."""

    def put(self, _topic: str, message: Message | None, when_done: Callable[[], None] | None = None) -> None:
        if isinstance(message, UnlearningRound):
            asyncio.get_running_loop().call_later(0.05, self._answer_step, message)
        if when_done is not None:
            asyncio.get_running_loop().call_soon(when_done)

    def clear_foreign(self, _topic: str) -> None:
        """Nobody retains anything here."""

    def _answer_step(self, asked: UnlearningRound) -> None:
        body = DenseDelta(dim=N_FEATURES, values=pack_vector(np.ones(N_FEATURES)))
        for name in self.names:
            if name not in self.forgotten:
                answer = UnlearningUpdate(
                    federation=NAME, client_id=name, job=asked.job, step=asked.step, n_interactions=1, body=body
                )
                self.say(name, ClientTopic.UNLEARNING, answer)

    # --- a device ---------------------------------------------------------------------------------------------

    async def train(self, name: str, rng: np.random.Generator, after: int) -> None:
        """Send an update for each round, until the device asks to be forgotten."""
        last = 0
        while name not in self.leaving:
            shown = self.round
            if shown is None or not shown.open or shown.round <= last:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.opened.wait(), 1.0)
                continue
            last, update_id = shown.round, f"{self._sequence():032x}"
            update = ModelUpdate(
                federation=NAME, client_id=name, update_id=update_id, round=shown.round,
                base_version=shown.base_version, base_hash=shown.base_hash, after=after, through=after + 5,
                n_interactions=5,
                body=DenseDelta(dim=N_FEATURES, values=pack_vector(rng.normal(size=N_FEATURES))),
            )  # fmt: skip
            self._answered[update_id] = answered = asyncio.get_running_loop().create_future()
            self._sent[update_id] = name, time.perf_counter()
            self.say(name, ClientTopic.UPDATES, update)
            receipt = await answered
            after = receipt.counted_through if receipt.counted_through is not None else after
            await asyncio.sleep(PAUSE_S * (0.5 + rng.random()))

    def longest_wait_s(self) -> float:
        """The longest time until an update was answered; one that still waits has waited until now.

        Whoever asks to be forgotten is told of that, and waits for nothing else.
        """
        now = time.perf_counter()
        waiting = (now - at for name, at in self._sent.values() if name not in self.leaving)
        return max([*self.waits_s, *waiting], default=0.0)


# --- the database that is there ---------------------------------------------------------------------------------


async def fill(store: SqlFederationStore, db: Database, keys: KeyStore, names: Sequence[str], n_rounds: int) -> None:
    """Store past rounds, each with an update of every device but sybils, who are in the newest only."""
    await store.create_federation(
        N_FEATURES, "linear", bytes(4 * N_FEATURES), NOW, selection_seed=bytes(32), aggregation_seed=bytes(32),
        pseudonym_key=bytes(32), method="fpdgd", hidden=None, privacy=Privacy.TRUSTED,
    )  # fmt: skip
    await store.claim_federation(time.time())
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
class Asked:
    """What a run is of."""

    gigabytes: float
    devices: int
    leaving: int
    sybils: int
    strategy: Strategy
    seconds: float


async def run(asked: Asked, folder: Path) -> None:
    """Fill a database, let the actor run on it, have many forgotten, and say what was measured."""
    trusted = [f"device-{i:04d}" for i in range(asked.devices)]
    sybils = [f"sybil-{i:04d}" for i in range(asked.sybils)]
    names, keys = [*trusted, *sybils], KeyStore(folder / "keys")
    async with await Database.connect(f"sqlite:///{folder}/foltr.sqlite", keys=keys) as db:
        await upgrade(db)
        n_rounds = max(2 * SYBIL_ROUNDS, int(asked.gigabytes * 1e9) // (ROW_BYTES * asked.devices))
        await fill(SqlFederationStore(db, NAME), db, keys, names, n_rounds)
        size = (folder / "foltr.sqlite").stat().st_size
        print(f"{size / 1e9:.2f} GB, {len(names)} clients, {n_rounds} rounds; load average {os.getloadavg()[0]:.1f}")
        fleet = Fleet(names)
        # A step waits for those who are there; a round for half of them, so that it goes on without those who leave.
        plan = FederationPlan(
            NAME, N_FEATURES, RoundPolicy(10, max(10, asked.devices // 2), 1.0, 20.0),
            unlearning=UnlearningPolicy(asked.strategy, every_s=2.0, swap_every_s=0.0, step_s=5.0),
        )  # fmt: skip
        actor = FederationActor(plan, SqlFederationStore(db, NAME), fleet, SteadyClock(), retained=fleet)
        fleet.attach(actor)
        await actor.start()
        actor.attach(fleet)
        running = asyncio.create_task(actor.run())
        training = [asyncio.create_task(fleet.train(name, np.random.default_rng(i), 0)) for i, name in enumerate(names)]
        try:
            await _measure(asked, fleet, db, [*trusted[: asked.leaving], *sybils], running)
        finally:
            for task in training:
                task.cancel()
            actor.stop()
            await asyncio.gather(*training, return_exceptions=True)
            await running
            await actor.close()


async def _measure(
    asked: Asked, fleet: Fleet, db: Database, leaving: Sequence[str], running: asyncio.Task[None]
) -> None:
    for name in fleet.names:
        fleet.say(name, ClientTopic.STATUS, Status(federation=NAME, client_id=name, online=True))
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
        "clients that were told": f"{n_told} of {len(leaving)}",
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
        asyncio.run(run(Asked(**vars(given)), Path(folder)))


if __name__ == "__main__":
    main()
