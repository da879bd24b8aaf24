"""A federation's actor without a network: a real database, a clock set by hand, and turns when it is told to."""

from collections import Counter
from collections.abc import Callable

from foltr.broker.buffer import IntakeLimits
from foltr.broker.link import InboundMessage
from foltr.core.protocol.fields import Message
from foltr.core.protocol.helper_messages import CheckRequest, OpenRequest
from foltr.core.protocol.membership import Join
from foltr.core.protocol.orders import OrderAnswer
from foltr.core.protocol.receipts import ErasureNotice, MembershipReceipt, UpdateReceipt
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.states import TakesUpdates
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.federator.actor import FederationActor
from foltr.federator.measures import FederatorMeasures
from foltr.federator.plan import FederationPlan
from foltr.federator.publishing.answer_numbers import AnswerNumbers
from foltr.federator.store import FederationStore
from foltr.federator.transaction_metrics import TransactionMetrics
from foltr.federator.worker_sharing import WorkerSharing
from foltr.storage.database import Database

TOPICS = Topics("mail")
# Thousands may join at once, all of them strangers at first.
GENEROUS = IntakeLimits(max_waiting_per_sender=10_000, burst=10_000)


class HandClock:
    def __init__(self) -> None:
        self.at = 1_000.0

    def now(self) -> float:
        return self.at


class Receipts:
    """What would be sent, and in which state the database was by then."""

    def __init__(self) -> None:
        self.sent: list[UpdateReceipt | MembershipReceipt | ErasureNotice] = []

    def send(self, receipts) -> None:
        self.sent.extend(receipts)

    def notify(self, notices) -> None:
        self.sent.extend(notices)

    def number_notices(self) -> None:
        """All are sent at once here."""

    def codes(self) -> Counter[str]:
        return Counter(one.code.value for one in self.sent if not isinstance(one, OrderAnswer))


class NumberedReceipts(Receipts):
    """What would be sent, each with its number."""

    def __init__(self, numbers: AnswerNumbers) -> None:
        super().__init__()
        self.numbers, self.sequences = numbers, []

    def send(self, receipts) -> None:
        for receipt in receipts:
            self.sequences.append(self.numbers.next())
            self.sent.append(receipt)

    def last(self, client_id: str):
        return [one for one in self.sent if one.client_id == client_id][-1]


class Retained:
    """What the broker would retain; it has everything at once."""

    def __init__(self) -> None:
        self.topics: dict[str, Message | None] = {}

    def put(self, topic: str, message: Message | None, when_done: Callable[[], None] | None = None) -> None:
        self.topics[topic] = message
        if when_done is not None:
            when_done()

    def clear_foreign(self, topic: str) -> None:
        self.put(topic, None)


class Requests:
    def __init__(self) -> None:
        self.sent: list[CheckRequest | OpenRequest] = []

    def send(self, requests) -> None:
        self.sent.extend(requests)

    def take(self) -> list[CheckRequest | OpenRequest]:
        sent, self.sent = self.sent, []
        return sent


class Served:
    def __init__(
        self,
        db: Database,
        plan: FederationPlan,
        limits: IntakeLimits,
        key: SigningKey | None = None,
        watch: TransactionMetrics | None = None,
        *,
        shares: bool = False,
    ) -> None:
        self.db, self.plan, self.limits = db, plan, limits
        self.clock, self.receipts, self.retained = HandClock(), Receipts(), Retained()
        self.requests = Requests()
        watch = watch or TransactionMetrics(FederatorMeasures(plan.federation))
        takes_updates = TakesUpdates.LEADER if shares else TakesUpdates.WRITER
        patience_s = plan.database_patience_s
        store = FederationStore(db, plan.federation, None, takes_updates, patience_s, watch)
        self.sharing = None
        if shares:
            numbers = AnswerNumbers()
            self.receipts = NumberedReceipts(numbers)
            self.sharing = WorkerSharing(store, self.clock, self.receipts, numbers, evaluation=False)
        self.actor = FederationActor(
            plan,
            store,
            self.receipts,
            self.clock,
            limits,
            retained=self.retained,
            key=key,
            requests=self.requests,
            sharing=self.sharing,
        )

    def receive(self, device, topic: ClientTopic, message) -> None:
        payload = device.payload(topic, message, 1)
        self.actor.receive(InboundMessage(TOPICS.client(device.client_id, topic), payload, retained=False))

    async def join(self, devices) -> None:
        for device in devices:
            join = Join(federation="mail", client_id=device.client_id, sdk_version="1", enrolment=device.enrolment)
            self.receive(device, ClientTopic.JOIN, join)
            if len(self.actor.intake) == 400:
                await self.turn()
        await self.turn()
        assert set(self.receipts.codes()) == {"joined"}
        self.receipts.sent.clear()

    def flood(self, n_messages: int) -> None:
        for i in range(n_messages):
            topic = TOPICS.client(f"nobody-{i}", ClientTopic.UPDATES)
            self.actor.receive(InboundMessage(topic, b"junk", retained=False))

    def update(self, device, number=1, base=0, **changes) -> None:
        after = self.actor.state.members.counted_through(device.client_id) or 0
        update = device.update(number, base, f"{number:032x}", after)
        known = {"base_hash": self.actor.state.model_hashes.get(base, bytes(16))}
        self.receive(device, ClientTopic.UPDATES, update.model_copy(update=known | changes))

    async def turn(self) -> None:
        """One turn, and what it leaves for a later batch: tests look at what is stored."""
        await self.actor.turn(self.clock.now())
        await self.actor.batches.commit_deferred()
