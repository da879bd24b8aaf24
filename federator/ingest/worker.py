"""An ingest worker: takes updates from the broker, and stores them for the federation's leader.

Like the writer it decides, commits in one transaction, and only then sends receipts. But it decides within the
transaction, by what is stored under the federation's lock (`foltr.storage.ingest_batches`), never from memory. Updates
that cannot be decided yet wait here: while the leader decides, once the round is full, or past its deadline. No device
hears that a round is over before that is stored.
"""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import structlog

from foltr.broker.buffer import MAX_REFUSED_SENDERS, BoundedIntake, IntakeLimits, RefusedSender, stranger
from foltr.broker.link import InboundMessage
from foltr.core.methods.registry import body_spec
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.states import TakesUpdates
from foltr.core.protocol.topics import Topics
from foltr.federator.clock import Clock, ClockWatch, to_datetime
from foltr.federator.deciding.decisions import Decisions
from foltr.federator.deciding.state import FederationState, KeyReplacedError
from foltr.federator.engine import Backlog, Timed, decide
from foltr.federator.ingest.preverification import ReadArrival, preverify, read_arrivals
from foltr.federator.ingest.shared_state import state_of, training_of
from foltr.federator.log_lines import log_batch
from foltr.federator.measures import WorkerMeasures
from foltr.federator.plan import FederationPlan
from foltr.federator.publishing.announcements import ReceiptSender
from foltr.federator.publishing.answer_numbers import AnswerNumbers
from foltr.federator.reading import ReceivedUpdate, UpdateLimits
from foltr.federator.store import FederationStore
from foltr.storage.ingest_records import BatchKeys, DecisionInputs, IngestDecision, IngestNotAllowed, RoundFacts

log = structlog.get_logger(__name__)

BATCH_LIMIT: Final = 500
BEAT_EVERY_S: Final = 1.0
# Updates that arrive within this time share one transaction.
_GATHER_S: Final = 0.01
# How long it waits before checking again whether it may store.
_LOOK_AGAIN_S: Final = 0.02
_AFTER_DEADLINE_S: Final = 0.001
# The leader decides for moments; a longer wait is logged.
_TOLD_AFTER_S: Final = 5.0
# After so long a sender has repeated its message anyway.
_DROPPED_AFTER_S: Final = 30.0
_MOST_KEYS: Final = 200_000


@dataclass
class _Decided:
    """The decisions of the newest try of a batch."""

    decisions: Decisions
    taken: int = 0
    facts: RoundFacts | None = None


class IngestWorker:
    """Takes updates of one federation. Use through `foltr.federator.ingest.service`.

    Args:
        plan: the federation's name, its ranker and the operator's keys; its leader stores the rest.
        key: the federator's, which signs receipts.

    Attributes:
        intake: what has arrived and is not read yet.
        measures: counted from the beginning; `read_measures` updates those of the present state.
    """

    def __init__(
        self,
        worker_id: str,
        plan: FederationPlan,
        store: FederationStore,
        receipts: ReceiptSender,
        numbers: AnswerNumbers,
        clock: Clock,
        intake_limits: IntakeLimits | None = None,
        *,
        key: SigningKey | None = None,
    ) -> None:
        self.worker_id = worker_id
        self._plan = plan
        self._store = store
        self._receipts = receipts
        self._numbers = numbers
        self._clock = clock
        self._clock_watch = ClockWatch(clock)
        self._key = key
        self._topics = Topics(plan.federation)
        self.intake = BoundedIntake(clock.now, self._sender_of, intake_limits or IntakeLimits())
        self.measures = WorkerMeasures(plan.federation)
        self._facts: RoundFacts | None = None
        self._limits: UpdateLimits | None = None
        self._keys: dict[str, bytes | None] = {}
        self._listed_through = 0
        self._offers: list[ReadArrival] = []
        self._turned_away: tuple[list[RefusedSender], int] = ([], 0)
        self._beats_at = -math.inf
        self._waits_since: float | None = None
        self._has_told = self._stopping = False
        self._turn_began_at: float | None = None

    def receive(self, message: InboundMessage) -> None:
        """Take a message from the network; called in the event loop, never blocks."""
        self.measures.received.add()
        self.intake.offer(message)

    def read_measures(self) -> WorkerMeasures:
        """Return the measures, all up to date except the broker's; in the event loop."""
        self.measures.waiting.set(len(self.intake) + len(self._offers))
        self.measures.wanted.set(float(self._waits_since is None))
        return self.measures

    def stop(self) -> None:
        """End `run` after the present turn."""
        self._stopping = True
        self.intake.wake()

    @property
    def turning_for_s(self) -> float:
        """For how many seconds the present turn has run; 0 while it waits."""
        return 0.0 if self._turn_began_at is None else self._clock.now() - self._turn_began_at

    async def run(self) -> None:
        """Store updates until `stop`. Raises SettingsError once the federator's key has changed."""
        while not self._stopping:
            await self._wait()
            self._turn_began_at = self._clock.now()
            await self.turn()
            self._turn_began_at = None
        await self.turn()
        await self._store.forget_worker(self.worker_id)

    async def _wait(self) -> None:
        if self._waits_since is not None:
            await asyncio.sleep(_LOOK_AGAIN_S)
        elif not self._offers:
            await self.intake.wait(max(0.0, self._beats_at - self._clock.now()))
            if len(self.intake):
                await asyncio.sleep(_GATHER_S)

    async def turn(self) -> None:
        """Store what may be stored, and note the progress."""
        if await self._may_store():
            await self._read()
            if self._offers or self._turned_away[1]:
                began = self._clock.now()
                await self._ingest()
                self.measures.batch_took.observe(self._clock.now() - began)
        if self._clock.now() >= self._beats_at:
            noted = await self._store.note_worker(self.worker_id, self._arrived_before())
            self._note_seen(noted.may_end_at)
            self._clock_watch.compare(noted.now)

    def _note_seen(self, may_end_at: Sequence[datetime]) -> None:
        """Schedule the next sign of life: later, or right after the round may end, since its leader waits for that."""
        now = self._clock.now()
        due_at = [moment.timestamp() + _AFTER_DEADLINE_S for moment in may_end_at]
        self._beats_at = min([now + BEAT_EVERY_S, *(moment for moment in due_at if moment > now)])

    async def _may_store(self) -> bool:
        """Whether workers take updates, as far as known without the lock."""
        if self._waits_since is None:
            return True
        workers = await self._store.look_at_workers()
        if workers is not None and workers.takes_updates is TakesUpdates.WORKERS:
            return True
        self._note_waiting(TakesUpdates.WRITER if workers is None else workers.takes_updates)
        return False

    def _note_waiting(self, takes_updates: TakesUpdates) -> None:
        now = self._clock.now()
        if self._waits_since is None:
            self._waits_since = now
        if now - self._waits_since >= _DROPPED_AFTER_S:
            self._drop_old(now - _DROPPED_AFTER_S)
        is_long = now - self._waits_since >= _TOLD_AFTER_S
        if takes_updates is TakesUpdates.WORKERS or not is_long or self._has_told:
            return
        self._has_told = True
        hint = (
            "the federator stores updates itself; start it with --role leader"
            if takes_updates is TakesUpdates.WRITER
            else "the leader has not allowed workers to store updates for a while: foltr status"
        )
        log.warning("ingest_not_allowed", federation=self._plan.federation, hint=hint)

    def _drop_old(self, before: float) -> None:
        """Drop old updates that could not be stored: their senders ask again, or have an answer from another worker."""
        self._offers = [offered for offered in self._offers if offered.arrival.at >= before]
        while self.intake.take(BATCH_LIMIT, before):
            pass

    def _note_stored(self) -> None:
        if self._has_told:
            log.info("ingest_allowed", federation=self._plan.federation)
        self._waits_since, self._has_told = None, False

    def _arrived_before(self, taken: int = 0) -> datetime:
        """Return the time up to which all arrivals are answered, once this many first offers are."""
        waiting = [offered.arrival.at for offered in self._offers[taken:]]
        oldest = self.intake.oldest()
        return to_datetime(min([*waiting, self._clock.now() if oldest is None else oldest]))

    # --- reading --------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        """Read and verify arrivals in a thread: as many as one batch takes."""
        if self._facts is None:
            facts = await self._store.find_facts()
            if facts is None:
                return
            await self._know(facts)
        senders, n_messages = self.intake.refused()
        if n_messages:
            before, n_before = self._turned_away
            # While nothing may be stored, a sender that is refused repeatedly gets one answer.
            newest = {one.sender: one for one in (*before, *senders)}
            self._turned_away = list(newest.values())[-MAX_REFUSED_SENDERS:], n_before + n_messages
            if any(sender.sender.startswith("?") for sender in senders):
                # Members not seen here yet must not share the places of a crowd that invents names.
                listed, self._listed_through = await self._store.list_keys(self._listed_through)
                self._keys |= listed
        arrivals = self.intake.take(BATCH_LIMIT - len(self._offers))
        if not arrivals or self._limits is None:
            return
        offers = await asyncio.to_thread(read_arrivals, self._topics, self._limits, arrivals)
        self._offers += await self._verified(offers)

    async def _verified(self, offers: Sequence[ReadArrival]) -> list[ReadArrival]:
        senders = {one.reading.header.client_id for one in offers if isinstance(one.reading, ReceivedUpdate)}
        is_signed = self._plan.enrolment_key is not None
        known = {sender for sender in senders if sender in self._keys and (self._keys[sender] or not is_signed)}
        unknown = frozenset(senders - known)
        if unknown:
            if len(self._keys) > _MOST_KEYS:
                self._forget_keys()
            self._keys |= await self._store.find_public_keys(unknown)
        return await asyncio.to_thread(preverify, offers, self._keys) if is_signed else list(offers)

    async def _know(self, facts: RoundFacts) -> None:
        """Use the facts of another round or another leader from now on.

        Raises:
            SettingsError: the operator has given the federator another key, or the tables are of another version.
        """
        before, self._facts = self._facts, facts
        if before is not None and _is_same_claim(before, facts):
            return
        # Another leader may be of another version, with tables that this worker must not write to.
        await self._store.require_head()
        state = FederationState(self._plan)
        state.restore_orders(await self._store.standing_orders(0))
        if state.has_replaced(self._key):
            raise KeyReplacedError(self._plan.federation)
        training = training_of(facts.training, self._plan.federation)
        self._limits = UpdateLimits(body_spec(training, self._plan.ranker), training.max_interactions)
        self._forget_keys()
        self._offers = read_arrivals(self._topics, self._limits, [offered.arrival for offered in self._offers])

    def _forget_keys(self) -> None:
        self._keys.clear()
        self._listed_through = 0

    def _sender_of(self, message: InboundMessage) -> str:
        client_id = (self._topics.parse(message.topic) or ("", None))[0]
        return client_id if client_id in self._keys else stranger(client_id)

    # --- storing --------------------------------------------------------------------------------------------

    async def _ingest(self) -> None:
        """Decide and commit a batch, then answer; the rest of it waits."""
        decided = _Decided(Decisions())

        def decide_on(ground: DecisionInputs) -> IngestDecision:
            decided.decisions, decided.taken, decided.facts = Decisions(), 0, ground.facts
            return self._decide(ground, decided)

        outcome = await self._store.take_updates(self._asked(), decide_on, self._facts, self.worker_id)
        if decided.facts is not None and decided.facts is not self._facts:
            await self._know(decided.facts)
        if isinstance(outcome, IngestNotAllowed):
            self._note_waiting(outcome.takes_updates)
            return
        self._note_stored()
        self._note_seen(outcome.may_end_at)
        self._numbers.begin(outcome.epoch, outcome.first_answer - 1)
        self._receipts.send(decided.decisions.receipts)
        del self._offers[: decided.taken]
        self._turned_away = [], 0
        self.measures.updates.add(len(decided.decisions.updates))
        for event in decided.decisions.events:
            if event.code is not None:
                self.measures.refused.add(event.n, event.code)
        log_batch(decided.decisions.events)

    def _asked(self) -> BatchKeys:
        offers = [one.reading.header for one in self._offers if isinstance(one.reading, ReceivedUpdate)]
        refused = {one.reading.client_id for one in self._offers if not isinstance(one.reading, ReceivedUpdate)}
        turned_away = {sender.sender for sender in self._turned_away[0] if not sender.sender.startswith("?")}
        return BatchKeys(
            frozenset(offer.client_id for offer in offers) | refused | turned_away,
            frozenset((offer.client_id, offer.update_id) for offer in offers),
        )

    def _decide(self, ground: DecisionInputs, decided: _Decided) -> IngestDecision:
        """Decide by stored state on what arrived before the round's deadline, until the round is full."""
        if self._facts is None or not _is_same_claim(self._facts, ground.facts):
            # Another leader may have another key, or other settings for reading updates.
            return IngestDecision([], [], 0)
        self._keys |= {row.client_id: row.public_key for row in ground.clients}
        state = state_of(ground, self._plan)
        current = state.current_round
        in_time = [
            Timed(offered.reading, offered.arrival.at)
            for offered in self._offers
            if offered.arrival.at < current.closes_at
        ]
        # In order of arrival, apart from the turns between senders: the rest goes first the next time.
        self._offers.sort(key=lambda offered: offered.arrival.at >= current.closes_at)
        senders, n_messages = self._turned_away
        backlog = Backlog(in_time, ground.stored, turned_away=senders, n_turned_away=n_messages)
        decided.decisions, rest = decide(state, backlog, self._clock.now())
        decided.taken = len(in_time) - len(rest.messages)
        decisions = decided.decisions
        n_answers = max(len(decisions.receipts), 1 if decisions.events else 0)
        return IngestDecision(decisions.updates, decisions.events, n_answers, self._arrived_before(decided.taken))


def _is_same_claim(one: RoundFacts, other: RoundFacts) -> bool:
    return (one.epoch, one.training) == (other.epoch, other.training)
