"""Peers that speak the protocol by hand, so that they can break it, and the federation they do it to."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import numpy as np
from support.waiting import PATIENCE_S, until

from foltr.broker.address import BrokerAddress
from foltr.broker.buffer import IntakeLimits
from foltr.broker.link import InboundMessage, MqttLink
from foltr.core.operator.credentials import BrokerAccess, Credentials, device_identity
from foltr.core.protocol.codec import encode, open_envelope
from foltr.core.protocol.fields import Message, model_hash, pack_vector
from foltr.core.protocol.membership import Join, Leave, Status
from foltr.core.protocol.receipts import MembershipReceipt, ReceiptCode, UpdateReceipt
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.core.protocol.trainings import PdgdTraining
from foltr.core.protocol.updates import DenseDelta, ModelUpdate
from foltr.federator.plan import FederationPlan
from foltr.federator.round import RoundPolicy
from foltr.federator.service import FederatorService
from foltr.storage.database import Database

FEDERATION = "test"
TOPICS = Topics(FEDERATION)
DIM = 4
ONE_EACH = PdgdTraining(min_interactions=1, max_interactions=1)

T = TypeVar("T")
Receipt = UpdateReceipt | MembershipReceipt


def make_plan(policy: RoundPolicy, *, n_rounds: int, enrolment_key: bytes | None = None) -> FederationPlan:
    return FederationPlan(FEDERATION, DIM, policy, ONE_EACH, stop_after_round=n_rounds, enrolment_key=enrolment_key)


@asynccontextmanager
async def served(
    broker: str,
    database: Database,
    plan: FederationPlan,
    key: SigningKey | None = None,
    intake_limits: IntakeLimits | None = None,
) -> AsyncIterator[asyncio.Task[None]]:
    """A federator for the time of the block, which serves already when the block begins and is stopped after it."""
    address = BrokerAddress.parse(broker)
    service = FederatorService(
        plan, database, address, key=key, give_up_after_s=PATIENCE_S, intake_limits=intake_limits
    )
    started = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(service.run(started.set))
        await started.wait()
        yield running
        service.stop()


async def eventually(look: Callable[[], Awaitable[T]], wanted: Callable[[T], bool] = bool) -> T:
    """What ``look`` finds, as soon as it is ``wanted``."""
    found: list[T] = []

    async def is_found() -> bool:
        found.append(await look())
        return wanted(found[-1])

    await until(is_found)
    return found[-1]


class Operator:
    """Who holds the enrolment key, and set the federator's key up."""

    def __init__(self) -> None:
        self.key = SigningKey.generate()
        self.federator_key = SigningKey.generate()
        self._serials = itertools.count(1)

    def plan(self, policy: RoundPolicy, *, n_rounds: int) -> FederationPlan:
        return make_plan(policy, n_rounds=n_rounds, enrolment_key=self.key.public)

    def enrol(self, client_id: str, broker: str) -> Credentials:
        return device_identity(
            self.key,
            self.federator_key.public,
            FEDERATION,
            client_id,
            next(self._serials),
            BrokerAccess(broker_url=broker),
        )

    def peer(self, client_id: str, broker: str) -> "HandMade":
        credentials = self.enrol(client_id, broker)
        return HandMade(broker, client_id, credentials.key, credentials.enrolment_bytes)


class HandMade:
    """A client whose every message is made by hand; without key and enrolment if the federation takes anyone."""

    def __init__(
        self, broker: str, client_id: str, key: SigningKey | None = None, enrolment: bytes | None = None
    ) -> None:
        self.client_id = client_id
        self.key = key
        self.enrolment = enrolment
        self.receipts: asyncio.Queue[UpdateReceipt] = asyncio.Queue()
        self.memberships: asyncio.Queue[MembershipReceipt] = asyncio.Queue()
        self.link = MqttLink(
            BrokerAddress.parse(broker),
            client_id=f"hand-made-{client_id}",
            subscriptions=[TOPICS.client(client_id, ClientTopic.INBOX)],
            on_message=self._receive,
            persistent=False,
        )
        self._sequences = itertools.count(100)
        self.watermark = 0  # as the last answer told it

    def _receive(self, message: InboundMessage) -> None:
        envelope = open_envelope(message.payload)
        if envelope.kind == UpdateReceipt.kind_name:
            receipt = envelope.read(UpdateReceipt)
            self.receipts.put_nowait(receipt)
        else:
            receipt = envelope.read(MembershipReceipt)
            self.memberships.put_nowait(receipt)
        self.watermark = self.watermark if receipt.counted_through is None else receipt.counted_through

    @asynccontextmanager
    async def connected(self, *, join: bool = True) -> AsyncIterator["HandMade"]:
        async with self.link:
            await self.link.wait_connected(PATIENCE_S)
            if join:
                assert (await self.tell(self.join())).code is ReceiptCode.JOINED
            yield self

    def signed(self, topic: ClientTopic, message: Message, sequence: int | None = None) -> tuple[str, bytes]:
        name = TOPICS.client(self.client_id, topic)
        return name, encode(message, name, next(self._sequences) if sequence is None else sequence, self.key)

    def join(self) -> tuple[str, bytes]:
        join = Join(federation=FEDERATION, client_id=self.client_id, sdk_version="test", enrolment=self.enrolment)
        return self.signed(ClientTopic.JOIN, join)

    def leave(self) -> tuple[str, bytes]:
        return self.signed(ClientTopic.LEAVE, Leave(federation=FEDERATION, client_id=self.client_id))

    def status(self, *, online: bool) -> tuple[str, bytes]:
        return self.signed(ClientTopic.STATUS, Status(federation=FEDERATION, client_id=self.client_id, online=online))

    def update(self, value: float = 1.0, **changes: object) -> bytes:
        fields = {
            "federation": FEDERATION,
            "client_id": self.client_id,
            "update_id": "0" * 32,
            "round": 1,
            "base_version": 0,
            "base_hash": model_hash(pack_vector(np.zeros(DIM))),
            "after": self.watermark,
            "through": self.watermark + 100,
            "n_interactions": 1,
            "body": DenseDelta(dim=DIM, values=pack_vector(np.full(DIM, value))),
        }
        return self.signed(ClientTopic.UPDATES, ModelUpdate(**{**fields, **changes}))[1]

    async def send(self, payload: bytes) -> UpdateReceipt:
        await self.link.publish(TOPICS.client(self.client_id, ClientTopic.UPDATES), payload)
        return await self.update_receipt()

    async def tell(self, said: tuple[str, bytes]) -> MembershipReceipt:
        await self.link.publish(*said)
        return await self.membership_receipt()

    async def update_receipt(self) -> UpdateReceipt:
        async with asyncio.timeout(PATIENCE_S):
            return await self.receipts.get()

    async def membership_receipt(self) -> MembershipReceipt:
        async with asyncio.timeout(PATIENCE_S):
            return await self.memberships.get()
