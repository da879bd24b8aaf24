"""A federator that only answers its operator: the real decisions, without a database, at a real broker."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from support.waiting import PATIENCE_S

from foltr.broker.address import BrokerAddress
from foltr.broker.link import InboundMessage, MqttLink
from foltr.core.methods.bodies import BodySpec
from foltr.core.operator.credentials import Credentials, read_credentials
from foltr.core.protocol.codec import encode
from foltr.core.protocol.membership import Join
from foltr.core.protocol.orders import OrderAnswer
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.federator.deciding.orders import erasure_ordered
from foltr.federator.deciding.state import FederationState
from foltr.federator.engine import Backlog, Timed, decide
from foltr.federator.plan import FederationPlan
from foltr.federator.reading import UpdateLimits, read_message
from foltr.federator.round import RoundPolicy
from foltr.storage.records import NewOrder

_LIMITS = UpdateLimits(BodySpec("dense", dim=1, n_values=1), max_interactions=1)


class AnsweringFederator:
    """What it knows lasts as long as this: `serve` it at a broker, stop it, and serve it again."""

    def __init__(self, credentials: Credentials, members: Sequence[Credentials] = (), *, n_rounds: int = 1) -> None:
        self.credentials = credentials
        self.topics = Topics(credentials.federation)
        plan = FederationPlan(
            credentials.federation, 1, RoundPolicy(1, 9, 0.0, 600.0), enrolment_key=credentials.enrolment_public_key
        )
        self.state = FederationState(plan)
        self.state.members.restore_forgotten(bytes(32), [])
        self.state.round, _ = self.state.open_round(n_rounds, 0, 1_000.0)
        self.orders: dict[int, NewOrder] = {}
        for member in members:
            self._join(member)

    def _join(self, member: Credentials) -> None:
        topic = self.topics.client(member.name, ClientTopic.JOIN)
        join = Join(
            federation=member.federation, client_id=member.name, sdk_version="test", enrolment=member.enrolment_bytes
        )
        self.answers(InboundMessage(topic, encode(join, topic, 1, member.key), retained=False))

    def answers(self, message: InboundMessage) -> list[bytes]:
        """Decide on a message, and sign what the operator is told."""
        reading = read_message(self.topics, _LIMITS, message)
        if reading is None:
            return []
        decisions, _ = decide(self.state, Backlog([Timed(reading, 1_001.0)], orders=self.orders), 1_001.0)
        for wanted in decisions.erasures:
            if wanted.order is not None:
                self.state.note_erasure(wanted.client_id, was_known=not wanted.is_stranger)
                erasure_ordered(self.state, wanted.order, decisions, was_known=not wanted.is_stranger)
        self.orders |= {order.number: order for order in decisions.orders}
        told = [receipt for receipt in decisions.receipts if isinstance(receipt, OrderAnswer)]
        return [encode(answer, self.topics.operator_answers, 1, self.credentials.key) for answer in told]

    @contextmanager
    def serve(self) -> Iterator["AnsweringFederator"]:
        """Answer at the broker of the credentials, in a thread of its own."""
        loop, stop, ready = asyncio.new_event_loop(), asyncio.Event(), threading.Event()

        async def run() -> None:
            arrived: asyncio.Queue[InboundMessage] = asyncio.Queue()
            link = MqttLink(
                BrokerAddress.of(self.credentials.broker),
                client_id="@federator",
                subscriptions=[self.topics.operator, self.topics.roster],
                on_message=arrived.put_nowait,
                persistent=False,
            )
            async with link, asyncio.TaskGroup() as group:
                await link.wait_connected(PATIENCE_S)
                ready.set()
                serving = group.create_task(self._serve(link, arrived))
                await stop.wait()
                serving.cancel()

        thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
        thread.start()
        try:
            assert ready.wait(PATIENCE_S), "no broker"
            yield self
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join()
            loop.close()

    async def _serve(self, link: MqttLink, arrived: "asyncio.Queue[InboundMessage]") -> None:
        while True:
            for payload in self.answers(await arrived.get()):
                await link.publish(self.topics.operator_answers, payload)


def answering(folder: Path, *members: Path) -> AnsweringFederator:
    """The federator of an operator's folder; ``members`` are the credentials files of devices that have joined."""
    return AnsweringFederator(
        read_credentials(folder / "federator.json", "federator"), [read_credentials(path, "device") for path in members]
    )
