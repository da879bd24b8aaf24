"""A leader and a worker on one database, driven turn by turn."""

from dataclasses import dataclass

from support.federator_without_network import GENEROUS, HandClock, NumberedReceipts, Served

from foltr.broker.link import InboundMessage
from foltr.core.protocol.fields import model_hash
from foltr.core.protocol.membership import Join
from foltr.core.protocol.states import RoundState
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.federator.ingest.service import plan_of
from foltr.federator.ingest.worker import IngestWorker
from foltr.federator.publishing.answer_numbers import AnswerNumbers
from foltr.federator.store import FederationStore
from foltr.storage.queries import list_rounds

TOPICS = Topics("mail")
FIRST_MODEL = model_hash(bytes(4))


@dataclass
class Both:
    leader: Served
    worker: IngestWorker
    receipts: NumberedReceipts
    clock: HandClock

    async def lead(self) -> None:
        await self.leader.actor.turn_if_due(self.clock.now())

    async def work(self) -> None:
        await self.worker.turn()

    def gives(self, device, number=1, base=0, *, update_id="0" * 32, after=0, **more) -> None:
        made = device.update(number, base, update_id, after).model_copy(update={"base_hash": FIRST_MODEL, **more})
        payload = device.payload(ClientTopic.UPDATES, made, 1)
        self.worker.receive(InboundMessage(TOPICS.client(device.client_id, ClientTopic.UPDATES), payload, False))

    def says(self, device, topic, message, sequence=9) -> None:
        payload = device.payload(topic, message, sequence)
        self.leader.actor.receive(InboundMessage(TOPICS.client(device.client_id, topic), payload, retained=False))

    def joins(self, device, sequence=9) -> None:
        join = Join(federation="mail", client_id=device.client_id, sdk_version="1", enrolment=device.enrolment)
        self.says(device, ClientTopic.JOIN, join, sequence)


async def new_worker(db, plan, clock, name="one", key=None, limits=GENEROUS) -> tuple[IngestWorker, NumberedReceipts]:
    numbers = AnswerNumbers()
    receipts = NumberedReceipts(numbers)
    known = await plan_of(db, plan.federation, plan.enrolment_key, plan.key_sequence)
    assert known is not None
    store = FederationStore(db, plan.federation)
    return IngestWorker(name, known, store, receipts, numbers, clock, limits, key=key), receipts


async def states(both: Both) -> list[RoundState]:
    return [row.state for row in await list_rounds(both.leader.db, "mail")]
