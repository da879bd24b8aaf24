"""The only writer of a federation: takes messages, has them decided, commits, then answers.

One loop owns all state, so nothing here needs a lock. Its order is the whole guarantee: decide in memory, commit in one
transaction, only then send receipts. If a commit fails for good, the process ends; decisions that were not stored are
lost with it, and no device has heard of them.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from foltr.broker.buffer import Arrival, BoundedIntake, IntakeLimits, stranger
from foltr.broker.link import InboundMessage
from foltr.core.protocol.audit_heads import AuditHead
from foltr.core.protocol.helper_messages import HelperRefusal
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.states import RoundState
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.federator.backlogs import Backlogs
from foltr.federator.batch_writer import BatchWriter
from foltr.federator.clock import Clock
from foltr.federator.deciding.decisions import Decisions
from foltr.federator.deciding.orders import erasure_ordered
from foltr.federator.deciding.state import FederationState, KeyReplacedError
from foltr.federator.engine import Backlog, decide
from foltr.federator.eraser import Eraser, signed_by
from foltr.federator.gathering import warn_slow_unlearning
from foltr.federator.job_driver import Unlearner
from foltr.federator.plan import FederationPlan
from foltr.federator.publishing.announcements import Announcer, ReceiptSender
from foltr.federator.publishing.retained import DroppedRetained, RetainedTopics
from foltr.federator.resumption import claim, compare_rounds, resume_rounds
from foltr.federator.retention import Retention
from foltr.federator.rounds import Rounds
from foltr.federator.rows import deadline_of
from foltr.federator.store import FederationStore
from foltr.federator.summing.driver import Sender, Summing
from foltr.federator.worker_sharing import WorkerSharing
from foltr.storage.records import Batch, NewEvent

BATCH_LIMIT = 500
_BUSY_NOTICE_S = 1.0
_LONGEST_WAIT_S = 3600.0


class FederationActor:
    """Drives one federation, turn by turn. Use through `foltr.federator.service`.

    Attributes:
        state: decides on messages; `start` builds it from the database.
        intake: what has arrived and is not served yet.
        batches: commits what was decided.
    """

    def __init__(
        self,
        plan: FederationPlan,
        store: FederationStore,
        receipts: ReceiptSender,
        clock: Clock,
        intake_limits: IntakeLimits | None = None,
        *,
        retained: RetainedTopics,
        key: SigningKey | None = None,
        requests: Sender | None = None,
        sharing: WorkerSharing | None = None,
    ) -> None:
        self._sharing = sharing
        self.state = FederationState(plan)
        self._plan = plan
        self._store = store
        self._receipts = receipts
        self._retained = retained
        self._clock = clock
        self._topics = Topics(plan.federation)
        self._backlogs = Backlogs(plan, store)
        self.intake = BoundedIntake(clock.now, self._sender_of, intake_limits or IntakeLimits(), self._erases)
        self._key = key
        self._sign = signed_by(key)
        self._summing: Summing | None = None
        if plan.secure is not None and requests is not None:
            deadline_s, wake = plan.secure.helper_deadline_s, self.intake.wake
            self._summing = Summing(plan.federation, store, requests, deadline_s, wake)
        self.batches = BatchWriter(store, clock, self.intake.wake)
        self.rounds = Rounds(plan, store, clock, receipts)
        self.eraser = Eraser(plan.federation, store, clock, receipts, retained, key, plan.unlearning.deadline_s)
        self._unlearner = self._new_unlearner()
        self.retention = Retention(plan, store, clock)
        self._stopping = False
        self._busy_noticed_at = self._turn_ended_at = 0.0
        self._dropped_retained = DroppedRetained(self._topics)
        self._turn_began_at: float | None = None
        # Since the last turn something has arrived that cannot wait while workers take updates.
        self._is_called = False
        # Copies of a stranger's forget request get one answer a turn: each costs transactions before a round may end.
        self._answered_strangers: set[str] = set()

    def _new_unlearner(self) -> Unlearner:
        state, suspects = self.state, self.rounds.suspects
        return Unlearner(self._plan, self._store, self._clock, state, self._retained, self._note, suspects)

    # --- life ---------------------------------------------------------------------------------------------

    async def start(
        self, newest_epoch: int = 0, published: AuditHead | None = None, leader: str = "", announced_round: int = 0
    ) -> None:
        """Claim the federation, above the newest known epoch, and continue from the stored state.

        ``published`` is the last published head of the audit log, if known; ``leader`` is this process's name;
        ``announced_round`` is the newest round that the broker knows of.
        """
        now = self._turn_ended_at = self._clock.now()
        claimed = await claim(self._store, self._plan, now, newest_epoch)
        self.state = claimed.state
        if self._sharing is not None:
            self._sharing.begin(self.epoch)
        if self.is_replaced:
            raise KeyReplacedError(self._plan.federation)
        await self.eraser.start(published)
        self._unlearner = self._new_unlearner()
        model, events = await resume_rounds(self._store, claimed, now, leader)
        events += compare_rounds(self.state, announced_round, now)
        self.rounds.start(claimed, model)
        await self.rounds.load_credits()
        if self._summing is not None:
            await self._summing.find_pause(self.state.round, now)
            self.rounds.hold(self._summing.is_held(now))
        # Workers use the stored deadline, which may have moved just now.
        deadline = None if self._sharing is None else deadline_of(self.state.round)
        await self._store.commit_batch(Batch(events=events, deadline=deadline))
        await self._unlearner.start(claimed.aggregation_seed)
        await warn_slow_unlearning(self._store, self._plan, self.state)
        self.retention.start()
        if self.state.round is not None and self.state.round.state is RoundState.AGGREGATING:
            # Announced in its present state, it would look like the federation's last.
            await self._end_round(now)

    def attach(self, announcer: Announcer) -> None:
        self.rounds.attach(announcer)

    async def run(self) -> None:
        """Serve until `stop`, or until the plan's last round has ended and nobody waits to be unlearned."""
        while not self.finished and not self._stopping:
            if self._sharing is None:
                await self.intake.wait(self._wake_at() - self._clock.now())
            else:
                await self._sharing.wait(self.intake, self.state.round, self._wake_at())
            self._turn_began_at = self._clock.now()
            await self.turn_if_due(self._turn_began_at)
            self._turn_began_at = None
        # Messages taken from the broker need an answer; later ones are sent again.
        now = self._clock.now()
        if self._sharing is not None:
            now = await self._sharing.stop_at(self.state, now)
        await self.turn(now)
        await self._serve_waiting(now)
        await self.batches.commit_deferred()
        if self._sharing is not None and not self.is_replaced:
            await self._sharing.start(self.state)  # workers continue while this process is upgraded

    async def turn_if_due(self, now: float) -> None:
        """Take a turn if needed; while workers take updates, statuses alone are no reason for one."""
        sharing, moment, is_called = self._sharing, now, True
        if sharing is not None:
            moment = await sharing.check_workers(self.state, now)
            is_called = self._is_called or not sharing.is_shared or self._unlearner.machine.has_job
        has_arrived = self.intake.arrived.is_set()
        if (has_arrived and is_called) or self.state.is_due(moment) or self._own_wake_at() <= now:
            if sharing is not None:
                await sharing.stop(self.state)
            await self.turn(moment)
        elif has_arrived:
            await self._serve(self.intake.take(BATCH_LIMIT), now)
        if sharing is not None and not self._stopping:
            await sharing.start(self.state)

    def _wake_at(self) -> float:
        """When there is something to do without a message; epoch seconds."""
        own, current = self._own_wake_at(), self.state.round
        return own if current is None else min(own, current.wake_at())

    def _own_wake_at(self) -> float:
        """As `_wake_at`, without the round."""
        sums_at = math.inf if self._summing is None else self._summing.wake_at(self.state.round)
        retention_at = math.inf if self._unlearner.machine.has_job else self.retention.wake_at()
        others_at = min(self._unlearner.machine.wake_at(), self.eraser.wake_at(), self.batches.due_at)
        return min(sums_at, others_at, retention_at, self._turn_ended_at + _LONGEST_WAIT_S)

    async def turn(self, now: float) -> None:
        """Answer what has arrived, and end the round if it is due or full.

        An update counts by its arrival, not by when it is processed. So everything that arrived before a round is due
        is served before the round ends. And no device hears that a round is over before that is stored, or a copy of
        the same update could count after a restart.

        Args:
            now: one moment for the whole turn: by a later one the round could be due before messages in time.
        """
        self._is_called = False
        self._answered_strangers.clear()
        if not self.state.is_due(now):
            # Take even if nothing waits: that ends a `wake`, and `run` waits again.
            await self._serve(self.intake.take(BATCH_LIMIT, most_slow=self.eraser.pace.batch_size), now)
        current = self.state.round
        if current is not None and self.state.is_due(now):
            if current.state is RoundState.COLLECTING:
                in_time = min(now, math.nextafter(current.closes_at, -math.inf))
                await self._serve_waiting(in_time, most_slow=self.eraser.pace.batch_size)
            await self._end_round(now)
        await self._advance_sums()
        for client_id in filter(self.state.members.is_forgotten, self._dropped_retained.drain()):
            self.eraser.clear(client_id)
        await self.eraser.tidy()
        if await self.eraser.delete_more() is not None:
            await self._unlearner.gather()
        await self._unlearner.advance(self._clock.now())
        await self._swap()
        # A job reads stored updates: none may be deleted meanwhile.
        await self.retention.advance(self.state.current_round.number, may_delete=not self._unlearner.machine.has_job)
        self._turn_ended_at = self._clock.now()
        self._is_called |= len(self.intake) > 0

    async def _serve_waiting(self, before: float, most_slow: int | None = None) -> None:
        """Serve all that arrived up to ``before``, with at most so many slow messages; later arrivals wait."""
        while arrivals := self.intake.take(BATCH_LIMIT, before, most_slow):
            if most_slow is not None:
                most_slow -= sum(self._erases(arrival.message) for arrival in arrivals)
            await self._serve(arrivals, self._clock.now())

    async def close(self) -> None:
        """End the tasks that run beside the turns."""
        await self.eraser.close()

    @property
    def turning_for_s(self) -> float:
        """For how many seconds the present turn has run; 0 while it waits for messages and deadlines."""
        return 0.0 if self._turn_began_at is None else self._clock.now() - self._turn_began_at

    @property
    def awaited_helpers(self) -> dict[str, HelperRefusal | None]:
        """See `foltr.federator.summing.driver.Summing.awaited_helpers`."""
        return {} if self._summing is None else self._summing.awaited_helpers(self._clock.now())

    @property
    def epoch(self) -> int:
        """The claim this federator writes under; 0 before `start`."""
        return self._store.epoch

    @property
    def finished(self) -> bool:
        """Whether the plan's last round has ended, and nobody is being erased or unlearned."""
        return self.state.round is None and not self._unlearner.machine.is_busy and not self.eraser.is_erasing

    @property
    def is_replaced(self) -> bool:
        """Whether its key, or the one by which it trusts the operator, is out of date."""
        return self.state.has_replaced(self._key)

    def stop(self) -> None:
        """End `run` after the present turn; the open round stays open in the database."""
        self._stopping = True
        self.intake.wake()

    # --- arrivals -----------------------------------------------------------------------------------------

    def receive(self, message: InboundMessage) -> None:
        """Take a message from the network; called in the event loop, never blocks."""
        now = self._clock.now()
        if self._summing is not None and self._topics.is_helpers(message.topic):
            self._summing.receive(message.payload)
            self.intake.wake()
            return
        if message.retained:
            self._clear_unless_retained(message.topic)
        if self.intake.offer(message) is None:
            self._is_called |= not self._topics.is_status(message.topic)
        else:
            self._is_called = True  # the sender gets an answer
            self._dropped_retained.note(message)
            if now - self._busy_noticed_at >= _BUSY_NOTICE_S:
                # Refused senders get an answer, but a flood must not cost a commit per message.
                self._busy_noticed_at = now
                self.intake.wake()

    def _clear_unless_retained(self, topic: str) -> None:
        """Clear a retained message that the broker should not keep: it would be delivered again at every connection.

        The message is decided as usual. Its retainer may have copied it from the client that sent it.
        """
        _, kind = self._topics.parse(topic) or ("", None)
        if kind not in (None, ClientTopic.INBOX) and not kind.is_retained:
            self._retained.clear_foreign(topic)

    def _erases(self, message: InboundMessage) -> bool:
        """Whether a message may require an erasure: a turn serves only a few of these, with others' updates in between.

        A batch has few from strangers anyway (`foltr.federator.deciding`).
        """
        client_id, kind = self._topics.parse(message.topic) or ("", None)
        by_client = kind is ClientTopic.FORGET and self.state.members.is_known(client_id)
        return by_client or message.topic == self._topics.operator

    def _sender_of(self, message: InboundMessage) -> str:
        if self._topics.is_operators(message.topic):
            return "?operator"  # a crowd of strangers must not block a revocation
        client_id, _ = self._topics.parse(message.topic) or ("", None)
        return client_id if self.state.members.is_known(client_id) else stranger(client_id)

    async def _backlog(self, arrivals: Sequence[Arrival], now: float) -> Backlog:
        senders, n_messages = self.intake.refused()
        backlog = await self._backlogs.read(arrivals, self.state, now)
        return replace(backlog, turned_away=senders, n_turned_away=n_messages)

    # --- decisions ----------------------------------------------------------------------------------------

    async def _serve(self, arrivals: Sequence[Arrival], now: float) -> None:
        """Decide, commit, answer; and end the round in between whenever it is full."""
        backlog = await self._backlog(arrivals, now)
        if backlog.is_empty and not self.batches.is_due(now):
            return
        while True:
            decisions, backlog = decide(self.state, backlog, now)
            if decisions.breaks_set:
                # Before storing who has left, or a restarted federator would continue with the set.
                await self.rounds.abandon_broken_set()
            await self._commit(decisions, now, more_waits=bool(backlog.messages))
            self._leave_sums(decisions)
            # An erasure takes long if much is stored of a client, so send the other answers first. Not this client's: a
            # receipt of this batch may tell it of its erasure, and it then deletes all it has.
            self._receipts.send(decisions.pop_ready_receipts())
            await self._attend_erasures(decisions)
            backlog = backlog.knowing(decisions.orders)
            await self._unlearner.handle_decisions(decisions)
            self._receipts.send(decisions.receipts)
            if self.is_replaced:
                self.stop()  # devices no longer trust this key
            if self.state.pace is not None and self.state.pace.is_crowded:
                self.state.pace.steer(0, now)
                self.rounds.announce()
            elif decisions.deadline is not None:
                self.rounds.announce()
            if self.state.round is not None and self.state.round.full and self.state.is_due(now):
                # At once: the next message, in this batch or the one after, belongs to the next round.
                await self._end_round(now)
            if not backlog.messages:
                return

    async def _commit(self, decisions: Decisions, now: float, *, more_waits: bool = False) -> None:
        filled = None
        current = self.state.round
        # A quorum does not end the round while messages wait that may have arrived in time; a full round does.
        is_last = current is not None and (current.full or not (more_waits or len(self.intake)))
        # While the round has an update of a client to erase it must go on collecting.
        may_stop = decisions.updates and not decisions.erasures
        if may_stop and current is not None and is_last and self.state.fills_round(now):
            # Store the last update and the end of collecting in one transaction: saves a wait for the disk per round.
            current.stop_collecting()
            filled = current.number
        await self.batches.commit(decisions, filled, now)

    async def _attend_erasures(self, decisions: Decisions) -> None:
        """Erase clients, now that their leaving is stored; and answer those who ask again."""
        is_any_erased = False
        for wanted in decisions.erasures:
            if wanted.is_stranger and wanted.order is None:
                if wanted.client_id in self._answered_strangers:
                    self._retained.put(self._topics.client(wanted.client_id, ClientTopic.FORGET), None)
                    continue
                self._answered_strangers.add(wanted.client_id)
            self._backlogs.forget(wanted.client_id)
            row = await self.eraser.erase(wanted)
            self.state.note_erasure(wanted.client_id, was_known=row is not None)
            if wanted.order is not None:
                erasure_ordered(self.state, wanted.order, decisions, was_known=row is not None)
            await self._unlearner.erased(wanted.client_id, row)
            is_any_erased |= row is not None
        if is_any_erased:
            # The erasure has changed what the rule remembers.
            await self.rounds.reload_model()
            await self.rounds.reload_after_erasure()
        for client_id in dict.fromkeys(decisions.forgotten_again):
            await self.eraser.notify_again(client_id, self.state.members.pseudonym(client_id))
        for client_id in dict.fromkeys(decisions.leftovers):
            self.eraser.clear(client_id)
        for client_id in dict.fromkeys(decisions.refused_forgets):
            self._retained.put(self._topics.client(client_id, ClientTopic.FORGET), None)

    # --- rounds -------------------------------------------------------------------------------------------

    async def _end_round(self, now: float) -> None:
        if await self.rounds.end(now):
            await self._unlearner.taken_back()
        # Before anything counts in the new round.
        await self._swap()

    async def _advance_sums(self) -> None:
        """Continue the round's secure sum, if helpers are asked for one."""
        if self._summing is None:
            return
        now = self._clock.now()
        ended = await self._summing.advance(self.state.round, now)
        self.rounds.hold(self._summing.is_held(now))
        if ended is not None:
            if await self.rounds.end_sums(ended):
                await self._unlearner.taken_back()
            await self._swap()

    def _leave_sums(self, decisions: Decisions) -> None:
        """Exclude clients that left the round from the helpers' sets."""
        if self._summing is not None:
            gone = [client_id for _, client_id in decisions.withdrawn]
            for client_id in (*gone, *(wanted.client_id for wanted in decisions.erasures)):
                self._summing.leave(client_id)

    async def _swap(self) -> None:
        """Put an unlearned model in service, if one is ready and no round is being closed."""
        job = self._unlearner.caught_up
        if job is None or not self.rounds.takes_swap:
            return
        done = await self.rounds.swap(job, self._sign)
        await self._unlearner.swapped(self.rounds.model.version)
        await self.eraser.after_swap(done)

    async def _note(self, event: NewEvent) -> None:
        await self._store.commit_batch(Batch(events=[replace(event, round=self.state.current_round.number)]))
