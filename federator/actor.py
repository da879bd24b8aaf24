"""The single writer of a federation: takes messages, lets the round decide, commits, then answers.

One loop owns all state, so nothing here needs a lock. Its order is the whole guarantee: decide in memory,
commit in one transaction, only then send receipts. If a commit cannot be made, the process ends, what was
decided but not stored is gone with it, and no device was told otherwise.
"""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TypeVar

import structlog

from broker.intake import BoundedIntake
from broker.link import InboundMessage
from federator.clock import SteadyClock, to_datetime
from federator.outgoing import Announcer, ReceiptSender
from federator.plan import FederationPlan
from federator.reading import MembershipAsked, Reading, Refused, UpdateOffered, read_message
from federator.round import (
    AbandonReason,
    Aggregate,
    Record,
    Reject,
    Round,
    RoundPolicy,
    RoundState,
)
from foltr.aggregation import RunningMean
from foltr.errors import DataError, UnavailableError
from foltr.messages import (
    MembershipReceipt,
    ModelAnnouncement,
    ReceiptCode,
    RoundAnnouncement,
    UpdateReceipt,
    pack_vector,
    unpack_vector,
)
from foltr.topics import ClientTopic, Topics
from storage.database import Database, is_transient
from storage.federations import claim_federation, create_federation
from storage.intake import commit_batch, find_updates, member_ids, online_ids
from storage.models import latest_model
from storage.records import Batch, MembershipChange, ModelRow, NewEvent, NewUpdate, RoundOpening, RoundRow
from storage.rounds import (
    abandon_round,
    begin_aggregation,
    complete_round,
    latest_round,
    load_open_round,
    open_round,
    stream_updates,
)

log = structlog.get_logger(__name__)
T = TypeVar("T")

BATCH_LIMIT = 500
BUSY_RETRY_S = 2.0
_ENCODING = "dense_f32"


class FederationActor:
    """Drives the rounds of one federation. Use through `federator.service`."""

    def __init__(
        self,
        plan: FederationPlan,
        db: Database,
        intake: BoundedIntake,
        receipts: ReceiptSender,
        clock: SteadyClock,
    ) -> None:
        self._plan = plan
        self._db = db
        self._intake = intake
        self._receipts = receipts
        self._clock = clock
        self._topics = Topics(plan.federation)
        self._epoch = 0
        self._members: set[str] = set()
        self._online: set[str] = set()
        self._turned_away: dict[str, None] = {}
        self._n_turned_away = 0
        self._model: ModelRow | None = None
        self._round: Round | None = None
        self._ended: Round | None = None  # the newest round that has ended here
        self._announcer: Announcer | None = None
        self._stopping = False
        self._published: tuple[int, datetime] | None = None

    # --- life ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Claim the federation and take up where the last federator left off; safe to do again."""
        await self._persist(self._start)

    async def _start(self) -> None:
        plan, now = self._plan, self._clock.now()
        initial = pack_vector([0.0] * plan.n_features)
        await create_federation(self._db, plan.federation, plan.n_features, plan.ranker.kind, initial, to_datetime(now))
        self._epoch = await claim_federation(self._db, plan.federation)
        self._members = await member_ids(self._db, plan.federation)
        self._online = await online_ids(self._db, plan.federation)
        self._model = await latest_model(self._db, plan.federation)
        found = await load_open_round(self._db, plan.federation)
        events = [NewEvent(to_datetime(now), "federator_started", detail=f"writer epoch {self._epoch}")]
        if found is None:
            newest = await latest_round(self._db, plan.federation)
            number = 1 if newest is None else newest.number + 1
            if newest is not None and self._is_last(newest.number):
                # Perhaps the last federator died before the broker had the last model: it is announced again.
                self._ended = self._stored_round(newest, {}, now)
            else:
                opening = self._opening(number, self._newest_model.version, now)
                await open_round(self._db, plan.federation, self._epoch, opening)
                self._round = Round.open(number, opening.base_version, plan.policy, now)
        else:
            row, committed = found
            self._round = self._stored_round(row, dict(committed), now)
            events.append(
                NewEvent(to_datetime(now), "round_resumed", round=row.number, detail=f"{len(committed)} updates")
            )
        await commit_batch(self._db, plan.federation, self._epoch, Batch(events=events))
        if self._round is not None and self._round.state is RoundState.AGGREGATING:
            # Announced as it is, it would look like the federation's last.
            await self._advance_round(now)

    def _stored_round(self, row: RoundRow, contributions: dict[str, str], now: float) -> Round:
        return Round.resume(
            row.number,
            row.base_version,
            RoundPolicy(row.min_clients, row.max_clients, row.min_time_s, row.max_time_s),
            opened_at=row.opened_at.timestamp(),
            closes_at=row.closes_at.timestamp(),
            state=RoundState(row.state),
            contributions=contributions,
            now=now,
            grace_s=self._plan.resume_grace_s,
        )

    def attach(self, announcer: Announcer) -> None:
        self._announcer = announcer
        self._announce()

    async def run(self) -> None:
        """Serve until `stop`, or until the plan's last round has ended."""
        while self._round is not None and not self._stopping:
            await self._intake.wait(self._round.wake_at() - self._clock.now())
            await self._take_turn()
        # What was taken from the broker is owed an answer; what arrives from here on is sent again.
        for _ in range(math.ceil(len(self._intake) / BATCH_LIMIT)):
            await self._take_turn()

    async def _take_turn(self) -> None:
        """End the round if it is due, answer a batch of messages, and end the round if they filled it.

        One moment for all of it, the end of the round first: nobody is told that a round is over before that is
        stored, or a copy of the same update could count after a restart.
        """
        before, now = self._round, self._clock.now()
        await self._advance_round(now)
        if self._round is not before:
            now = self._clock.now()  # ending the round may have taken long; its successor opened meanwhile
        await self._serve_messages(now)
        await self._advance_round(now)

    @property
    def finished(self) -> bool:
        """Whether the plan's last round has ended."""
        return self._round is None

    def stop(self) -> None:
        """End `run` after what it is doing now; the open round stays open in the database."""
        self._stopping = True
        self._intake.wake()

    def receive(self, message: InboundMessage) -> None:
        """Take a message from the network; called in the event loop, never blocks."""
        if self._intake.offer(message):
            return
        self._n_turned_away += 1
        parsed = self._topics.parse(message.topic)
        if parsed is not None and parsed[1] is ClientTopic.UPDATES and len(self._turned_away) < BATCH_LIMIT:
            self._turned_away[parsed[0]] = None

    def model_published(self, version: int) -> None:
        """The broker has taken this model: noted with the next commit, which this brings about."""
        self._published = (version, to_datetime(self._clock.now()))
        self._intake.wake()

    async def note_published(self) -> None:
        """Commit what `model_published` noted, where no further batch will."""
        if self._published is not None:
            await self._commit(_Decided(), self._clock.now())

    # --- messages -----------------------------------------------------------------------------------------

    async def _serve_messages(self, now: float) -> None:
        readings = [
            reading for message in self._intake.take(BATCH_LIMIT) if (reading := self._read(message)) is not None
        ]
        if not readings and not self._n_turned_away and self._published is None:
            return
        stored = await self._stored_already(readings)
        decided = _Decided()
        for reading in readings:
            match reading:
                case UpdateOffered():
                    self._decide_update(reading, stored, now, decided)
                case MembershipAsked():
                    self._decide_membership(reading, now, decided)
                case Refused():
                    self._decide_refused(reading, now, decided)
        self._answer_turned_away(now, decided)
        await self._commit(decided, now)
        self._receipts.send(decided.membership_receipts)
        self._receipts.send(decided.update_receipts)

    def _read(self, message: InboundMessage) -> Reading | None:
        plan = self._plan
        return read_message(self._topics, plan.n_features, plan.training.max_interactions, message)

    async def _commit(self, decided: "_Decided", now: float) -> None:
        filled = None
        current = self._round
        if decided.updates and current is not None and current.next_step(now) == Aggregate():
            # The last update and the end of collecting in one transaction: one wait for the disk less a round.
            current.stop_collecting()
            filled = current.number
        batch = Batch(
            updates=decided.updates,
            events=decided.events,
            membership=decided.membership,
            stop_collecting=filled,
            published=self._published,
        )
        self._published = None
        if not batch.is_empty:
            await self._persist(lambda: commit_batch(self._db, self._plan.federation, self._epoch, batch))

    async def _stored_already(self, readings: list[Reading]) -> dict[tuple[str, str], int]:
        """Which of the updates are stored already, in whatever round they say they are for."""
        asked = {
            (reading.offer.client_id, reading.offer.update_id)
            for reading in readings
            if isinstance(reading, UpdateOffered)
        }
        if not asked:
            return {}
        return await self._persist(lambda: find_updates(self._db, self._plan.federation, asked))

    def _decide_update(
        self,
        reading: UpdateOffered,
        stored: dict[tuple[str, str], int],
        now: float,
        decided: "_Decided",
    ) -> None:
        offer = reading.offer
        if offer.client_id not in self._members:
            decision: Record | Reject = Reject(ReceiptCode.UNKNOWN_CLIENT, "join first, then send it again")
        else:
            known = stored.get((offer.client_id, offer.update_id))
            decision = self._current_round.decide(offer, now, stored_in_round=known)
        if isinstance(decision, Record):
            decided.updates.append(
                NewUpdate(
                    round=offer.round,
                    client_id=offer.client_id,
                    update_id=offer.update_id,
                    base_version=offer.base_version,
                    n_interactions=reading.n_interactions,
                    encoding=_ENCODING,
                    body=reading.values,
                    received_at=to_datetime(now),
                )
            )
            code, detail = ReceiptCode.ACCEPTED, ""
        else:
            code, detail = decision.code, decision.detail
            decided.events.append(
                NewEvent(to_datetime(now), "update_rejected", detail, code, offer.client_id, offer.round)
            )
        decided.update_receipts.append(self._update_receipt(offer.client_id, offer.update_id, code, detail))

    def _decide_membership(self, asked: MembershipAsked, now: float, decided: "_Decided") -> None:
        client_id, at = asked.client_id, to_datetime(now)
        before = (client_id in self._members, client_id in self._online)
        match asked.kind:
            case "joined":
                self._members.add(client_id)
                self._online.add(client_id)
                decided.membership_receipts.append(self._membership_receipt(client_id, ReceiptCode.JOINED))
            case "left":
                self._members.discard(client_id)
                self._online.discard(client_id)
                decided.membership_receipts.append(self._membership_receipt(client_id, ReceiptCode.LEFT))
            case "online" if client_id in self._members:
                self._online.add(client_id)
            case "offline":
                self._online.discard(client_id)
        changed = before != (client_id in self._members, client_id in self._online)
        if asked.retained and not changed:
            return  # the broker repeats what it retained at every connection: no news, and nobody was seen
        if changed:
            decided.events.append(NewEvent(at, f"client_{asked.kind}", client_id=client_id))
        decided.membership.append(MembershipChange(client_id, asked.kind, at, sdk_version=asked.sdk_version))

    def _decide_refused(self, refused: Refused, now: float, decided: "_Decided") -> None:
        is_update = refused.topic is ClientTopic.UPDATES
        decided.events.append(
            NewEvent(
                to_datetime(now),
                "update_rejected" if is_update else "message_refused",
                refused.detail if is_update else f"{refused.topic}: {refused.detail}",
                refused.code,
                refused.client_id,
                refused.round if refused.round is not None else self._current_round.number,
            )
        )
        if is_update:
            decided.update_receipts.append(
                self._update_receipt(refused.client_id, refused.update_id, refused.code, refused.detail).model_copy(
                    update={"payload_digest": refused.payload_digest}
                )
            )
        elif refused.topic is not ClientTopic.STATUS:
            decided.membership_receipts.append(
                self._membership_receipt(refused.client_id, refused.code, refused.detail)
            )

    def _answer_turned_away(self, now: float, decided: "_Decided") -> None:
        """One event for all messages that found the intake full, and a receipt for each client known."""
        if not self._n_turned_away:
            return
        detail = f"{self._n_turned_away} messages found the intake full"
        decided.events.append(
            NewEvent(to_datetime(now), "intake_full", detail, ReceiptCode.BUSY, round=self._current_round.number)
        )
        for client_id in self._turned_away:
            receipt = self._update_receipt(client_id, None, ReceiptCode.BUSY, "the federator is busy")
            decided.update_receipts.append(receipt.model_copy(update={"retry_after_s": BUSY_RETRY_S}))
        self._turned_away.clear()
        self._n_turned_away = 0

    # --- rounds -------------------------------------------------------------------------------------------

    async def _advance_round(self, now: float) -> None:
        current = self._round
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
        try:
            weights = await self._persist(lambda: self._mean_model(current))
        except DataError as error:
            log.error("aggregation_failed", round=number, cause=str(error))  # noqa: TRY400 (told in one line)
            await self._abandon(current, AbandonReason.AGGREGATION_FAILED)
            return
        now = self._clock.now()
        closed_at, version = to_datetime(now), self._newest_model.version + 1
        following, opening = self._following(number, version, now)
        await self._persist(lambda: complete_round(self._db, name, epoch, number, version, weights, closed_at, opening))
        current.complete()
        self._model = ModelRow(
            name, version, current.base_version, number, self._plan.n_features, weights, closed_at, published_at=None
        )
        self._round = following
        self._ended = current
        self._announce()
        log.info("round_completed", round=number, model=version, n_updates=len(current.contributions))

    async def _mean_model(self, current: Round) -> bytes:
        """FedAvg over the stored updates, in order of client_id so that it repeats bit for bit."""
        mean = RunningMean(self._plan.n_features)
        async for row in stream_updates(self._db, self._plan.federation, current.number):
            mean.add(unpack_vector(row.body), row.n_interactions)
        base = unpack_vector(self._newest_model.weights)
        return pack_vector(mean.apply_to(base))

    async def _abandon(self, current: Round, reason: AbandonReason) -> None:
        name, epoch, number = self._plan.federation, self._epoch, current.number
        now = self._clock.now()
        closed_at = to_datetime(now)
        following, opening = self._following(number, current.base_version, now)
        await self._persist(lambda: abandon_round(self._db, name, epoch, number, reason, closed_at, opening))
        current.abandon(reason)
        self._round = following
        self._ended = current
        self._announce()
        log.info("round_abandoned", round=number, reason=reason, n_updates=len(current.contributions))

    def _following(self, ended: int, base_version: int, now: float) -> tuple[Round | None, RoundOpening | None]:
        if self._is_last(ended):
            return None, None
        opening = self._opening(ended + 1, base_version, now)
        return Round.open(ended + 1, base_version, self._plan.policy, now), opening

    def _opening(self, number: int, base_version: int, now: float) -> RoundOpening:
        policy = self._plan.policy
        return RoundOpening(
            number=number,
            base_version=base_version,
            min_clients=policy.min_clients,
            max_clients=policy.max_clients,
            min_time_s=policy.min_time_s,
            max_time_s=policy.max_time_s,
            opened_at=to_datetime(now),
            closes_at=to_datetime(now + policy.max_time_s),
        )

    def _is_last(self, number: int) -> bool:
        return self._plan.stop_after_round is not None and number >= self._plan.stop_after_round

    # --- telling ------------------------------------------------------------------------------------------

    def _announce(self) -> None:
        shown = self._round or self._ended
        if self._announcer is None or shown is None:
            return
        model = self._newest_model
        self._announcer.announce(
            ModelAnnouncement(
                federation=self._plan.federation,
                version=model.version,
                ranker=self._plan.ranker,
                weights=model.weights,
            ),
            RoundAnnouncement(
                federation=self._plan.federation,
                round=shown.number,
                open=self._round is not None and shown.state is RoundState.COLLECTING,
                base_version=shown.base_version,
                opened_at=shown.opened_at,
                closes_at=shown.closes_at,
                training=self._plan.training,
            ),
        )

    def _update_receipt(self, client_id: str, update_id: str | None, code: ReceiptCode, detail: str) -> UpdateReceipt:
        return UpdateReceipt(
            federation=self._plan.federation,
            client_id=client_id,
            update_id=update_id,
            code=code,
            detail=detail,
        )

    def _membership_receipt(self, client_id: str, code: ReceiptCode, detail: str = "") -> MembershipReceipt:
        return MembershipReceipt(federation=self._plan.federation, client_id=client_id, code=code, detail=detail)

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
                if loop.time() >= deadline:
                    raise UnavailableError(
                        f"database: {error}; retried for {self._plan.database_patience_s:g} s. "
                        "Start it again and then the federator: nothing accepted is lost"
                    ) from error
                log.warning("database_unavailable", cause=str(error))
            await asyncio.sleep(random.uniform(0.5, 1) * pause)  # noqa: S311 (spreads retries, no secret)
            pause = min(2 * pause, 5.0)

    @property
    def _current_round(self) -> Round:
        """The open round, or the last one where no other follows: it answers ``late`` and ``duplicate``."""
        current = self._round or self._ended
        if current is None:
            raise RuntimeError("the federator has no round: start() comes first")
        return current

    @property
    def _newest_model(self) -> ModelRow:
        if self._model is None:
            raise RuntimeError("the federation has no model: start() comes first")
        return self._model


class _Decided:
    """What one batch of messages amounts to."""

    def __init__(self) -> None:
        self.updates: list[NewUpdate] = []
        self.events: list[NewEvent] = []
        self.membership: list[MembershipChange] = []
        self.update_receipts: list[UpdateReceipt] = []
        self.membership_receipts: list[MembershipReceipt] = []
