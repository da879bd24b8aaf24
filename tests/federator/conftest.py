"""An operator and devices that sign by hand, what they say as the federator reads it, and actors to say it to."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from support import unlearning_steps, voting_devices
from support.databases import open_migrated
from support.federator_without_network import GENEROUS, Served
from support.leader_and_worker import Both, new_worker
from support.made_updates import made_update

from foltr.broker.link import InboundMessage
from foltr.core.methods.bodies import BodySpec
from foltr.core.protocol.codec import encode
from foltr.core.protocol.enrolment import issue_enrolment, issue_roster
from foltr.core.protocol.fields import Message
from foltr.core.protocol.membership import Forget, Join, Leave, Status
from foltr.core.protocol.orders import (
    ForgetClient,
    LiftQuarantine,
    Order,
    QuarantineClient,
    RevokeClient,
    RotateKey,
    SetDeadline,
)
from foltr.core.protocol.roster import Revocation, Roster
from foltr.core.protocol.signed_orders import issue_order
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.core.protocol.updates import ModelUpdate
from foltr.federator.plan import FederationPlan
from foltr.federator.reading import Reading, ReceivedStatement, UpdateLimits, read_message
from foltr.storage.keys import KeyStore

FEDERATION = "mail"
TOPICS = Topics(FEDERATION)
SALT = bytes(range(32))
LIMITS = UpdateLimits(BodySpec("dense", dim=1, n_values=1), max_interactions=100)


@dataclass(frozen=True)
class Device:
    """A client with its key and the enrolment it shows; both None where nobody asks for them."""

    client_id: str
    key: SigningKey | None = None
    enrolment: bytes | None = None

    def but(self, **changes: Any) -> "Device":
        return replace(self, **changes)

    def payload(self, topic: ClientTopic, message: Message, sequence: int) -> bytes:
        return encode(message, TOPICS.client(self.client_id, topic), sequence, self.key)

    def says(self, topic: ClientTopic, message: Message, sequence: int, *, retained: bool = False) -> Reading:
        name = TOPICS.client(self.client_id, topic)
        reading = read_message(TOPICS, LIMITS, InboundMessage(name, self.payload(topic, message, sequence), retained))
        assert reading is not None
        return reading

    def joins(self, sequence: int = 1) -> Any:
        join = Join(federation=FEDERATION, client_id=self.client_id, sdk_version="test", enrolment=self.enrolment)
        return self.says(ClientTopic.JOIN, join, sequence)

    def leaves(self, sequence: int = 2) -> Any:
        return self.says(ClientTopic.LEAVE, Leave(federation=FEDERATION, client_id=self.client_id), sequence)

    def status(self, online: bool, sequence: int, *, retained: bool = False) -> Any:
        status = Status(federation=FEDERATION, client_id=self.client_id, online=online)
        return self.says(ClientTopic.STATUS, status, sequence, retained=retained)

    def forget(self, sequence: int = 4) -> Any:
        return self.says(ClientTopic.FORGET, Forget(federation=FEDERATION, client_id=self.client_id), sequence)

    def updates(
        self, number: int = 1, *, base: int = 0, update_id: str = "0" * 32, sequence: int = 3, after: int = 0
    ) -> Any:
        return self.says(ClientTopic.UPDATES, self.update(number, base, update_id, after), sequence)

    def update(self, number: int = 1, base: int = 0, update_id: str = "0" * 32, after: int = 0) -> ModelUpdate:
        covered = {"after": after, "through": after + 100, "n_interactions": 1}
        return made_update(client_id=self.client_id, update_id=update_id, round=number, base_version=base, **covered)


@dataclass
class Operator:
    """Who enrols devices, revokes them, and orders deadlines."""

    key: SigningKey = field(default_factory=SigningKey.generate)
    serials: Any = field(default_factory=lambda: itertools.count(1))

    def enrol(self, client_id: str, *, federation: str = FEDERATION, serial: int | None = None) -> Device:
        key, serial = SigningKey.generate(), next(self.serials) if serial is None else serial
        return Device(client_id, key, issue_enrolment(self.key, federation, client_id, key.public, serial, 0.0))

    def roster(
        self,
        version: int,
        federation: str = FEDERATION,
        *,
        through: int = 0,
        forgotten: Sequence[bytes] = (),
        **revoked: int,
    ) -> bytes:
        """``revoked``: the highest serial of each client that is void."""
        entries = [Revocation(client_id=name, void_below=serial + 1) for name, serial in sorted(revoked.items())]
        roster = Roster(
            federation=federation,
            version=version,
            through=through,
            revoked=entries,
            salt=SALT,
            forgotten=list(forgotten),
        )
        return issue_roster(self.key, roster)

    def publishes(self, version: int, *, forgotten: Sequence[bytes] = (), **revoked: int) -> ReceivedStatement:
        return ReceivedStatement(TOPICS.roster, self.roster(version, forgotten=forgotten, **revoked))

    def orders(self, number: int, max_time_s: float, sequence: int, federation: str = FEDERATION) -> ReceivedStatement:
        return self.says(SetDeadline(federation=federation, round=number, max_time_s=max_time_s), sequence)

    def quarantines(self, client_id: str, sequence: int, reason: str = "it flips signs") -> ReceivedStatement:
        return self.says(QuarantineClient(federation=FEDERATION, client_id=client_id, reason=reason), sequence)

    def forgets(self, client_id: str, sequence: int = 1, *, serial: int = 99) -> ReceivedStatement:
        return self.says(ForgetClient(federation=FEDERATION, client_id=client_id, serial=serial), sequence)

    def revokes(self, client_id: str, sequence: int, *, void_below: int = 99) -> ReceivedStatement:
        return self.says(RevokeClient(federation=FEDERATION, client_id=client_id, void_below=void_below), sequence)

    def rotates(self, sequence: int, new_key: bytes, number: int) -> ReceivedStatement:
        return self.says(
            RotateKey(federation=FEDERATION, sequence=sequence, old_key=bytes(32), new_key=new_key), number
        )

    def lifts(self, client_id: str, sequence: int) -> ReceivedStatement:
        return self.says(LiftQuarantine(federation=FEDERATION, client_id=client_id), sequence)

    def says(self, order: Order, number: int) -> ReceivedStatement:
        return ReceivedStatement(TOPICS.operator, issue_order(self.key, order, number).payload)


@pytest.fixture
def served_url(tmp_path, request):
    """The database of the actors: an SQLite file, or where a test asks for it one of PostgreSQL."""
    if getattr(request, "param", "sqlite") == "sqlite":
        yield f"sqlite:///{tmp_path}/foltr.sqlite"
        return
    databases = request.getfixturevalue("postgres_databases")
    url = databases.migrated()
    yield url
    databases.release(url)


@pytest.fixture
async def serve(tmp_path, served_url):
    """Starts actors on one database."""
    keys = KeyStore(tmp_path / "keys")
    async with await open_migrated(served_url, keys) as db:
        started = []

        async def start(policy, *, n_features=1, limits=GENEROUS, key=None, **plan) -> Served:
            served = Served(db, FederationPlan("mail", n_features, policy, **plan), limits, key)
            started.append(served)
            await served.actor.start()
            return served

        yield start
        for served in started:
            await served.actor.close()


@pytest.fixture
def operator() -> Operator:
    return Operator()


@pytest.fixture
def unsigned() -> type[Device]:
    """Makes devices that sign nothing."""
    return Device


@pytest.fixture
async def joined(serve, unsigned):
    """Starts an actor that unlearns at once, and has three devices join."""

    async def start(policy=unlearning_steps.THREE, **plan):
        more = {"unlearning": unlearning_steps.EAGER} | plan
        served = await serve(policy, n_features=unlearning_steps.N_FEATURES, key=unlearning_steps.KEY, **more)
        devices = [unsigned(name) for name in unlearning_steps.NAMES]
        await served.join(devices)
        return served, devices

    return start


@pytest.fixture
async def voting(serve, operator):
    """Starts an actor, and has five devices of an operator join."""

    async def start(policy=voting_devices.FIVE, *, n_features=voting_devices.D, **plan):
        served = await serve(
            policy,
            n_features=n_features,
            key=voting_devices.KEY,
            enrolment_key=operator.key.public,
            **({"anchor": True} | plan),
        )
        served.shown = voting_devices.Shown()
        served.actor.attach(served.shown)
        devices = {name: operator.enrol(name) for name in voting_devices.NAMES}
        await served.join(devices.values())
        return served, devices

    return start


@pytest.fixture
async def restarted():
    """Starts the next federator on the database of another and at the same time, perhaps with another plan."""
    started = []

    async def start(served, **plan) -> Served:
        await served.actor.close()
        following = Served(served.db, replace(served.plan, **plan), served.limits, voting_devices.KEY)
        started.append(following)
        following.clock.at = served.clock.at
        await following.actor.start()
        if hasattr(served, "shown"):
            following.shown = voting_devices.Shown()
            following.actor.attach(following.shown)
        await following.turn()
        return following

    yield start
    for served in started:
        await served.actor.close()


@pytest.fixture
async def share(served_url, tmp_path, operator):
    """Starts a leader with three members, and a worker."""
    leaders = []
    async with await open_migrated(served_url, KeyStore(tmp_path / "keys")) as db:

        async def start(policy, key=None, **plan) -> tuple[Both, list]:
            wanted = FederationPlan("mail", 1, policy, enrolment_key=operator.key.public, **plan)
            leader = Served(db, wanted, GENEROUS, key, shares=True)
            leaders.append(leader)
            await leader.actor.start()
            devices = [operator.enrol(name) for name in "abc"]
            await leader.join(devices)
            await leader.sharing.start(leader.actor.state)
            worker, receipts = await new_worker(db, wanted, leader.clock, key=key)
            return Both(leader, worker, receipts, leader.clock), devices

        yield start
        for leader in leaders:
            await leader.actor.close()
