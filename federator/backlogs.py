"""Prepares arrivals for decisions: reads them, assembles parts, and looks up stored facts."""

from collections.abc import Sequence

from foltr.broker.buffer import Arrival
from foltr.core.methods.bodies import BodySpec
from foltr.core.methods.registry import body_spec
from foltr.core.protocol.roster_assembly import RosterAssembler
from foltr.core.protocol.signed_orders import number_of
from foltr.core.protocol.topics import Topics
from foltr.federator.deciding.state import FederationState
from foltr.federator.engine import Backlog, Decidable, Timed
from foltr.federator.plan import FederationPlan
from foltr.federator.reading import ReceivedChunk, ReceivedStatement, ReceivedUpdate, UpdateLimits, read_message
from foltr.federator.reassembly import Assembler
from foltr.federator.store import FederationStore
from foltr.storage.records import NewOrder, StoredUpdate


class Backlogs:
    """Makes backlogs from arrivals. Only the federation's single writer calls it."""

    def __init__(self, plan: FederationPlan, store: FederationStore) -> None:
        self._store = store
        self._topics = Topics(plan.federation)
        self._limits = UpdateLimits(_spec_of(plan), plan.training.max_interactions)
        self._assembler = Assembler(self._topics, self._limits)
        self._roster = RosterAssembler(self._topics, plan.enrolment_key)

    async def read(self, arrivals: Sequence[Arrival], state: FederationState, now: float) -> Backlog:
        """Read arrivals, and look up stored facts about them."""
        readings = ((self._read(arrival, state, now), arrival.at) for arrival in arrivals)
        messages = [Timed(reading, at) for reading, at in readings if reading is not None]
        stored, orders = await self._stored_already(messages), await self._stored_orders(messages, state)
        return Backlog(messages, stored, orders=orders)

    def forget(self, client_id: str) -> None:
        """Drop the parts of an update that a client has sent."""
        self._assembler.forget(client_id)

    def _read(self, arrival: Arrival, state: FederationState, now: float) -> Decidable | None:
        reading = read_message(self._topics, self._limits, arrival.message)
        if isinstance(reading, ReceivedChunk):
            # Before any decision: the update that is complete now may be stored already, which the caller looks up.
            return self._assembler.add_part(reading, state.members, now)
        if isinstance(reading, ReceivedStatement) and reading.topic not in (self._topics.operator, self._topics.policy):
            roster = self._roster.add(reading.topic, reading.payload)
            return None if roster is None else ReceivedStatement(self._topics.roster, roster)
        return reading

    async def _stored_already(self, messages: Sequence[Timed]) -> dict[tuple[str, str], StoredUpdate]:
        """Look up which of the updates are stored already, for any round."""
        offers = [timed.reading.header for timed in messages if isinstance(timed.reading, ReceivedUpdate)]
        identities = {(offer.client_id, offer.update_id) for offer in offers}
        if not identities:
            return {}
        return await self._store.find_updates(identities)

    async def _stored_orders(self, messages: Sequence[Timed], state: FederationState) -> dict[int, NewOrder]:
        """Look up which orders have come before, by the numbers that they claim."""
        spoken = [timed.reading for timed in messages if isinstance(timed.reading, ReceivedStatement)]
        claimed = {number_of(said.payload) for said in spoken if said.topic == self._topics.operator}
        numbers = [number for number in claimed if number is not None and 1 <= number <= state.last_order]
        return await self._store.find_orders(numbers) if numbers else {}


def _spec_of(plan: FederationPlan) -> BodySpec:
    """Return the form of the federation's updates."""
    if plan.secure is not None:
        return BodySpec("masked", plan.n_values, 0, plan.n_values)
    return body_spec(plan.training, plan.ranker)
