"""The single writer of a federation: takes messages, lets the engine decide, commits, then answers.

One loop owns all state, so nothing here needs a lock. Its order is the whole guarantee: decide in memory,
commit in one transaction, only then send receipts. If a commit cannot be made, the process ends, what was
decided but not stored is gone with it, and no device was told otherwise.
"""

import asyncio
import math
import random
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

import structlog

from broker.buffer import Arrival, BoundedIntake, IntakeLimits
from broker.link import InboundMessage
from federator.clock import SteadyClock, to_datetime
from federator.closing.next_model import model_row, new_model, next_model
from federator.engine import MAX_STRANGERS, Decided, Engine, Timed
from federator.eraser import Eraser, signed_by
from federator.job_driver import Unlearner
from federator.plan import FederationPlan
from federator.publishing.announcements import Announcer, ReceiptSender, model_announcement, round_announcement
from federator.publishing.retained import RetainedTopics
from federator.reading import ChunkOffered, Limits, UpdateOffered, read_message
from federator.reassembly import Assembler
from federator.retention import Thinner
from federator.round import AbandonReason, Aggregate, Round, RoundState
from federator.rows import batch_of, resumed_round, swap_of
from foltr.aggregation.round_aggregation import TooFewUpdatesError
from foltr.errors import DataError, UnavailableError
from foltr.failpoints import Failpoint, failpoint
from foltr.methods.registry import body_spec, initial_weights, spec_of
from foltr.numerics.streams import first_model_rng
from foltr.protocol.events import ORDERS, EventKind
from foltr.protocol.fields import pack_vector
from foltr.protocol.signing import SigningKey
from foltr.protocol.topics import ClientTopic, Topics
from foltr.protocol.trainings import NeuralRankerSpec
from storage.arrivals import commit_batch, find_updates, load_clients
from storage.database import Database, is_transient
from storage.erasure.erasures import forgotten_pseudonyms
from storage.erasure.records import UnlearningJobRow
from storage.erasure.unlearning_jobs import complete_job
from storage.federations import claim_federation, create_federation, get_federation
from storage.models import latest_model, newest_unlearned
from storage.records import Batch, ModelRow, NewEvent, NewModel, RoundRow
from storage.rounds import (
    abandon_round,
    begin_aggregation,
    complete_round,
    latest_round,
    load_open_round,
    open_round,
)

log = structlog.get_logger(__name__)
T = TypeVar("T")

BATCH_LIMIT = 500
# Clients nobody has heard of share this many places in the intake, however many names they use.
_N_STRANGERS = 64
_BUSY_NOTICE_S = 1.0
_PUBLISHED_NOTE_S = 1.0
_LONGEST_WAIT_S = 3600.0


class FederationActor:
    """Drives the rounds of one federation. Use through `federator.service`."""

    def __init__(
        self,
        plan: FederationPlan,
        db: Database,
        receipts: ReceiptSender,
        clock: SteadyClock,
        intake_limits: IntakeLimits | None = None,
        *,
        retained: RetainedTopics,
        key: SigningKey | None = None,
    ) -> None:
        self._plan = plan
        self._db = db
        self._receipts = receipts
        self._clock = clock
        self._topics = Topics(plan.federation)
        self._limits = Limits(body_spec(plan.training, plan.ranker), plan.training.max_interactions)
        self._assembler = Assembler(self._topics, self._limits)
        self._intake = BoundedIntake(clock.now, self._sender_of, intake_limits or IntakeLimits())
        self._engine = Engine(plan)
        self._retained = retained
        self._sign = signed_by(key)
        self._eraser = Eraser(plan.federation, db, clock, receipts, retained, key, self._persist)
        self._unlearner = self._new_unlearner()
        self._thinner = Thinner(plan, db, clock, self._persist)
        self._epoch = 0
        self._aggregation_seed = b""
        # A job whose model is ready to be put in service.
        self._unlearned: UnlearningJobRow | None = None
        self._model: ModelRow | None = None
        self._announcer: Announcer | None = None
        self._stopping = False
        self._told_busy_at = 0.0
        self._published: tuple[int, datetime] | None = None

    def _new_unlearner(self) -> Unlearner:
        members = self._engine.members
        return Unlearner(self._plan, self._db, self._clock, members, self._retained, self._persist, self._note)

    # --- life ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Claim the federation and take up where the last federator left off; safe to do again."""
        await self._persist(self._start)

    async def _start(self) -> None:
        plan, name, now = self._plan, self._plan.federation, self._clock.now()
        initial = initial_weights(plan.training, plan.ranker, first_model_rng(plan.seed))
        await create_federation(
            self._db,
            name,
            plan.n_features,
            plan.ranker.kind,
            pack_vector(initial),
            to_datetime(now),
            selection_seed=secrets.token_bytes(32),
            aggregation_seed=secrets.token_bytes(32),
            pseudonym_key=secrets.token_bytes(32),
            method=spec_of(plan.training).name,
            hidden=plan.ranker.hidden if isinstance(plan.ranker, NeuralRankerSpec) else None,
        )
        self._epoch = await claim_federation(self._db, name)
        failpoint(Failpoint.FEDERATION_CLAIMED)
        self._engine = engine = Engine(plan)
        federation = await get_federation(self._db, name)
        if (
            federation is None
            or federation.selection_seed is None
            or federation.aggregation_seed is None
            or federation.pseudonym_key is None
        ):
            raise RuntimeError(f"federation {name!r} is gone from {self._db.location}")
        self._aggregation_seed = federation.aggregation_seed
        engine.selection_seed, engine.operator_nonce = federation.selection_seed, federation.operator_nonce
        engine.members.restore(await load_clients(self._db, name), federation.roster)
        engine.members.restore_forgotten(federation.pseudonym_key, await forgotten_pseudonyms(self._db, name))
        await self._eraser.start(self._epoch)
        self._unlearner = self._new_unlearner()
        self._model = await latest_model(self._db, name)
        engine.model_version = self._newest_model.version
        engine.oldest_base = await newest_unlearned(self._db, name)
        found = await load_open_round(self._db, name)
        events = [NewEvent(to_datetime(now), "federator_started", detail=f"writer epoch {self._epoch}")]
        if found is None:
            await self._start_round(now)
        else:
            row, committed = found
            engine.round = self._stored_round(row, dict(committed), now)
            events.append(
                NewEvent(to_datetime(now), "round_resumed", round=row.number, detail=f"{len(committed)} updates")
            )
        await commit_batch(self._db, name, self._epoch, Batch(events=events))
        await self._unlearner.start(self._epoch, self._aggregation_seed)
        self._thinner.start(self._epoch)
        if engine.round is not None and engine.round.state is RoundState.AGGREGATING:
            # Announced as it is, it would look like the federation's last.
            await self._advance_round(now)

    async def _start_round(self, now: float) -> None:
        """Open the first round, or the one after the last; or show the last one where there is to be no other."""
        engine, name = self._engine, self._plan.federation
        newest = await latest_round(self._db, name)
        if newest is not None and engine.is_last(newest.number):
            # Perhaps the last federator died before the broker had the last model: it is announced again.
            engine.ended = self._stored_round(newest, {}, now)
            return
        number = 1 if newest is None else newest.number + 1
        opened, opening = engine.open_round(number, engine.model_version, now)
        await open_round(self._db, name, self._epoch, opening)
        engine.round = opened

    def _stored_round(self, row: RoundRow, contributions: dict[str, str], now: float) -> Round:
        return resumed_round(row, contributions, now, self._plan.resume_grace_s)

    def attach(self, announcer: Announcer) -> None:
        self._announcer = announcer
        self._announce()

    async def run(self) -> None:
        """Serve until `stop`, or until the plan's last round has ended and nobody waits to be unlearned."""
        while not self.finished and not self._stopping:
            round_ = self._engine.round
            thin_at = self._thinner.wake_at() if self._unlearner.idle else math.inf
            later = (self._unlearner.wake_at(), self._eraser.wake_at(), thin_at)
            wake_at = min(math.inf if round_ is None else round_.wake_at(), *later)
            await self._intake.wait(max(0.0, min(wake_at - self._clock.now(), _LONGEST_WAIT_S)))
            await self._take_turn(self._clock.now())
        # What was taken from the broker is owed an answer; what arrives from here on is sent again.
        now = self._clock.now()
        await self._take_turn(now)
        await self._serve_waiting(now)

    async def _take_turn(self, now: float) -> None:
        """Answer what has arrived, and end the round if it is due or full.

        An update counts by when it arrived, not by when there was time to look at it. So what arrived before a
        round is due is served before the round ends; and nobody is told that a round is over before that is
        stored, or a copy of the same update could count after a restart.

        Args:
            now: one moment for all of it: by a later one the round could be due over messages that came in time.
        """
        if not self._is_due(now):
            # Taken from even where nothing waits: that is what ends a `wake`, and `run` waits again.
            await self._serve(self._intake.take(BATCH_LIMIT), now)
        current = self._engine.round
        if current is not None and self._is_due(now):
            if current.state is RoundState.COLLECTING and not current.full:
                await self._serve_waiting(min(now, math.nextafter(current.closes_at, -math.inf)))
            await self._advance_round(now)
        await self._eraser.tidy()
        self._unlearned = await self._unlearner.advance(self._clock.now()) or self._unlearned
        await self._swap()
        if self._unlearner.idle:
            # A job goes through what is stored: none of it may be deleted under its feet.
            await self._thinner.advance(self._engine.current_round.number)

    def _is_due(self, now: float) -> bool:
        return self._engine.round is not None and self._engine.round.next_step(now) is not None

    async def _serve_waiting(self, before: float) -> None:
        """Serve all that arrived up to ``before``; it is finite, whatever arrives meanwhile."""
        while arrivals := self._intake.take(BATCH_LIMIT, before=before):
            await self._serve(arrivals, self._clock.now())

    async def close(self) -> None:
        """End what runs beside the turns."""
        await self._eraser.close()

    @property
    def epoch(self) -> int:
        """The claim this federator writes under; 0 before `start`."""
        return self._epoch

    @property
    def finished(self) -> bool:
        """Whether the plan's last round has ended, and no unlearning job runs."""
        return self._engine.round is None and not self._unlearner.busy

    def stop(self) -> None:
        """End `run` after what it is doing now; the open round stays open in the database."""
        self._stopping = True
        self._intake.wake()

    def receive(self, message: InboundMessage) -> None:
        """Take a message from the network; called in the event loop, never blocks."""
        now = self._clock.now()
        if self._intake.offer(message) is not None and now - self._told_busy_at >= _BUSY_NOTICE_S:
            # Whoever is turned away is told, but one flood must not cost a commit for every message.
            self._told_busy_at = now
            self._intake.wake()

    def _sender_of(self, message: InboundMessage) -> str:
        # No name begins with a question mark, so no stranger shares a member's place.
        if message.topic in (self._topics.roster, self._topics.operator):
            return "?operator"  # a crowd of strangers must not keep a revocation out
        client_id = (self._topics.parse(message.topic) or ("", None))[0]
        return client_id if self._engine.members.is_known(client_id) else f"?{hash(client_id) % _N_STRANGERS}"

    def model_published(self, version: int) -> None:
        """The broker has taken this model: noted with the next commit, or in a moment where there is none.

        Every commit waits for the disk, and messages usually follow a new model.
        """
        self._published = (version, to_datetime(self._clock.now()))
        asyncio.get_running_loop().call_later(_PUBLISHED_NOTE_S, self._intake.wake)

    async def note_published(self) -> None:
        """Commit what `model_published` noted, where no further batch will."""
        if self._published is not None:
            await self._commit(Decided(), self._clock.now())

    # --- messages -----------------------------------------------------------------------------------------

    async def _serve(self, arrivals: Sequence[Arrival], now: float) -> None:
        """Decide, commit, answer; and end the round in between whenever it is full."""
        waiting = [timed for arrival in arrivals if (timed := self._read(arrival, now)) is not None]
        turned_away, n_turned_away = self._intake.refused()
        if not waiting and not n_turned_away and self._published is None:
            return
        stored, strangers_left = await self._stored_already(waiting), MAX_STRANGERS
        while True:
            decided, n_taken = self._engine.decide(waiting, stored, now, strangers_left)
            strangers_left = decided.strangers_left
            self._engine.answer_turned_away(turned_away, n_turned_away, now, decided)
            waiting = waiting[n_taken:]
            await self._commit(decided, now, more_waits=bool(waiting))
            # Who wants to be forgotten may be told so in a receipt of this batch, and then deletes all it has.
            await self._attend_erasures(decided)
            self._receipts.send(decided.receipts)
            turned_away, n_turned_away = [], 0
            if decided.deadline is not None:
                self._announce()
            stored = {key: number for key, number in stored.items() if (number, key[0]) not in decided.withdrawn}
            stored |= {(new.client_id, new.update_id): new.round for new in decided.updates}
            if self._engine.round is not None and self._engine.round.full:
                # At once: the next message, in this batch or the one after, belongs to the round that follows.
                await self._advance_round(now)
            if not waiting:
                return

    def _read(self, arrival: Arrival, now: float) -> Timed | None:
        reading = read_message(self._topics, self._limits, arrival.message)
        if not isinstance(reading, ChunkOffered):
            return None if reading is None else Timed(reading, arrival.at)
        # Before anything is decided: the update that is whole now may be stored already, which storage is asked next.
        assembled = self._assembler.take(reading, self._engine.members, now)
        return None if assembled is None else Timed(assembled, arrival.at)

    async def _commit(self, decided: Decided, now: float, *, more_waits: bool = False) -> None:
        filled = None
        current = self._engine.round
        # A quorum is no end while more waits that may have arrived in time; a full round takes nothing more.
        is_last = current is not None and (current.full or not (more_waits or len(self._intake)))
        if decided.updates and current is not None and is_last and self._engine.fills_round(now):
            # The last update and the end of collecting in one transaction: one wait for the disk less a round.
            current.stop_collecting()
            filled = current.number
        batch = batch_of(decided, filled, self._published)
        self._published = None
        failpoint(Failpoint.BATCH_DECIDED)
        if not batch.is_empty:
            await self._persist(lambda: commit_batch(self._db, self._plan.federation, self._epoch, batch))
        failpoint(Failpoint.BATCH_COMMITTED)
        self._tell_orders(decided)

    async def _attend_erasures(self, decided: Decided) -> None:
        """What follows from what is stored now for those who want to be forgotten, and for the job that unlearns."""
        for wanted in decided.erasures:
            self._assembler.forget(wanted.client_id)
            await self._unlearner.erased(wanted.client_id, await self._eraser.erase(wanted))
        if decided.erasures:
            # What the rule remembers has changed with it, here and in a job that waits for its swap.
            self._model = await self._persist(lambda: latest_model(self._db, self._plan.federation))
            self._unlearned = None if self._unlearned is None else self._unlearner.job
        for client_id in dict.fromkeys(decided.forgotten_again):
            await self._eraser.tell_again(client_id, self._engine.members.pseudonym(client_id))
        for client_id in dict.fromkeys(decided.leftovers):
            self._eraser.clear(client_id)
        for client_id in dict.fromkeys(decided.refused_forgets):
            self._retained.put(self._topics.client(client_id, ClientTopic.FORGET), None)
        for update in decided.unlearned:
            self._unlearner.take(update)
        if decided.returned:
            await self._unlearner.back_online()

    @staticmethod
    def _tell_orders(decided: Decided) -> None:
        """Log what became of the operator's orders; in the table of events they are easily overlooked."""
        for event in decided.events:
            if event.kind == EventKind.ORDER_REFUSED:
                log.warning(event.kind, code=str(event.code), detail=event.detail, n=event.n)
            elif event.kind in ORDERS:
                log.info(event.kind, round=event.round, client_id=event.client_id, detail=event.detail)

    async def _stored_already(self, waiting: Sequence[Timed]) -> dict[tuple[str, str], int]:
        """Which of the updates are stored already, in whatever round they say they are for."""
        asked = {
            (item.reading.offer.client_id, item.reading.offer.update_id)
            for item in waiting
            if isinstance(item.reading, UpdateOffered)
        }
        if not asked:
            return {}
        return await self._persist(lambda: find_updates(self._db, self._plan.federation, asked))

    # --- rounds -------------------------------------------------------------------------------------------

    async def _advance_round(self, now: float) -> None:
        current = self._engine.round
        step = None if current is None else current.next_step(now)
        if current is None or step is None:
            return
        if isinstance(step, Aggregate):
            await self._aggregate(current)
        else:
            await self._abandon(current, step.reason)

    async def _aggregate(self, current: Round) -> None:
        name, epoch, number = self._plan.federation, self._epoch, current.number
        if current.state is RoundState.COLLECTING:
            current.stop_collecting()
            await self._persist(lambda: begin_aggregation(self._db, name, epoch, number))
        failpoint(Failpoint.COLLECTING_STOPPED)
        try:
            made = await next_model(
                self._db, self._plan, self._aggregation_seed, current, self._newest_model, self._persist
            )
        except DataError as error:
            log.error("aggregation_failed", round=number, cause=str(error))  # noqa: TRY400 (told in one line)
            too_few = isinstance(error, TooFewUpdatesError)
            reason = AbandonReason.TOO_FEW_FOR_RULE if too_few else AbandonReason.AGGREGATION_FAILED
            await self._abandon(current, reason, str(error))
            return
        failpoint(Failpoint.AGGREGATED)
        now = self._clock.now()
        closed_at, version = to_datetime(now), self._newest_model.version + 1
        model = new_model(made, version, number, closed_at)
        following, opening = self._engine.following(version, now)
        await self._persist(lambda: complete_round(self._db, name, epoch, number, model, closed_at, opening))
        failpoint(Failpoint.ROUND_COMPLETED)
        current.complete()
        self._model = model_row(self._plan, current, model, closed_at)
        self._engine.follow(following, version)
        self._announce()
        log.info("round_completed", round=number, model=version, n_updates=len(current.contributions))
        self._tell(number, model)
        # Before anything counts in the round that has just opened.
        await self._swap()

    def _tell(self, number: int, model: NewModel) -> None:
        """What an operator should see in the log of how a round was aggregated; all of it is stored."""
        if model.aggregation is not None and model.aggregation.fallback_reason is not None:
            log.warning(
                "fallback_used", round=number, rule=model.aggregation.rule, cause=model.aggregation.fallback_reason
            )
        for event in model.events:
            log.warning(event.kind, round=number, client_id=event.client_id, detail=event.detail)

    async def _abandon(self, current: Round, reason: AbandonReason, in_words: str | None = None) -> None:
        name, epoch, number = self._plan.federation, self._epoch, current.number
        now = self._clock.now()
        closed_at = to_datetime(now)
        following, opening = self._engine.following(current.base_version, now)
        # A missed quorum explains itself.
        noted = [] if in_words is None else [NewEvent(closed_at, "round_abandoned", in_words, round=number)]
        await self._persist(lambda: abandon_round(self._db, name, epoch, number, reason, closed_at, opening, noted))
        failpoint(Failpoint.ROUND_ABANDONED)
        current.abandon(reason)
        self._engine.follow(following, current.base_version)
        self._announce()
        log.info("round_abandoned", round=number, reason=reason, n_updates=len(current.contributions))
        await self._swap()

    async def _swap(self) -> None:
        """Put an unlearned model in service, between two rounds: what was accepted for one counts in it first."""
        job, current = self._unlearned, self._engine.round
        is_between = current is None or (current.state is RoundState.COLLECTING and not current.contributions)
        if job is None or not is_between:
            return
        if current is not None and self._engine.is_last(current.number):
            return  # it is not abandoned for this: the swap follows it
        self._unlearned = None
        name, epoch, before = self._plan.federation, self._epoch, self._newest_model
        now = self._clock.now()
        version = before.version + 1
        following, opening = (None, None) if current is None else self._engine.following(version, now)
        completion = swap_of(job, before, to_datetime(now), None if current is None else current.number, opening)
        done = await self._persist(lambda: complete_job(self._db, name, epoch, job.number, completion, self._sign))
        self._model = await self._persist(lambda: latest_model(self._db, name))
        if current is None:
            self._engine.serve_model(version)
        else:
            current.abandon(AbandonReason.UNLEARNED)
            self._engine.follow(following, version)
        self._engine.oldest_base = version
        self._announce()
        await self._unlearner.swapped(job, version)
        await self._eraser.after_swap(done)
        log.info("unlearning_done", job=job.number, model=version, n_clients=len(done))

    async def _note(self, event: NewEvent) -> None:
        event = replace(event, round=self._engine.current_round.number)
        await self._persist(lambda: commit_batch(self._db, self._plan.federation, self._epoch, Batch(events=[event])))

    # --- telling ------------------------------------------------------------------------------------------

    def _announce(self) -> None:
        shown = self._engine.round or self._engine.ended
        if self._announcer is None or shown is None:
            return
        is_open = self._engine.round is not None and shown.state is RoundState.COLLECTING
        self._announcer.announce(
            model_announcement(self._plan, self._newest_model),
            round_announcement(self._plan, shown, self._engine.selection_seed, is_open=is_open),
        )

    # --- helpers ------------------------------------------------------------------------------------------

    async def _persist(self, transaction: Callable[[], Awaitable[T]]) -> T:
        """Run a transaction, again and again while the database is away, up to the plan's patience."""
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + self._plan.database_patience_s, 0.1
        while True:
            try:
                return await transaction()
            except Exception as error:
                if not is_transient(error):
                    raise
                cause = self._db.unavailable(error)
                if loop.time() >= deadline:
                    raise UnavailableError(
                        f"{cause}, then start the federator again: nothing accepted is lost "
                        f"(tried for {self._plan.database_patience_s:g} s)"
                    ) from error
                log.warning("database_unavailable", cause=str(cause))
            await asyncio.sleep(random.uniform(0.5, 1) * pause)  # noqa: S311 (spreads retries, no secret)
            pause = min(2 * pause, 5.0)

    @property
    def _newest_model(self) -> ModelRow:
        if self._model is None:
            raise RuntimeError("the federation has no model: start() comes first")
        return self._model
