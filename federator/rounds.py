"""Ends the rounds of a federation and opens the next ones: the outcome is committed first, then announced."""

from dataclasses import replace

import numpy as np
import structlog

from foltr.core.aggregation.client_records import suspects_of
from foltr.core.aggregation.round_aggregation import OnlySuspectsError, TooFewUpdatesError
from foltr.core.aggregation.vote_result import RoundEvaluation, Verdict
from foltr.core.errors import DataError
from foltr.core.failpoints import Failpoint, failpoint
from foltr.core.learning.credits import pooled, summed
from foltr.core.methods.base import NextModel
from foltr.core.protocol.evaluations import EvaluationRequest
from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.states import PAUSING, AbandonReason, RoundState
from foltr.federator.anchor import as_anchor, count_votes, drop_erased_anchor, verdict_on
from foltr.federator.clock import Clock, to_datetime
from foltr.federator.closing.collected_updates import CollectedSums
from foltr.federator.closing.next_model import collected_sums, model_row, next_model, summed_model
from foltr.federator.closing.stored_rules import found_events, new_aggregation
from foltr.federator.deciding.state import FederationState
from foltr.federator.deciding.withdrawal import take_back_round
from foltr.federator.log_lines import log_findings
from foltr.federator.plan import FederationPlan
from foltr.federator.publishing.announcements import (
    Announcer,
    ReceiptSender,
    model_announcement,
    pace_announcement,
    round_announcement,
)
from foltr.federator.resumption import ClaimedFederation
from foltr.federator.round import Aggregate, Round
from foltr.federator.rows import anchor_moved, restoration_of, swap_of
from foltr.federator.store import FederationStore
from foltr.federator.summing.driver import SumsStored
from foltr.federator.summing.machine import GiveUp
from foltr.federator.summing.masked_sums import ImplausibleSumError
from foltr.storage.erasure_records import ErasureRow, Sign, UnlearningJobRow
from foltr.storage.records import Batch, DeadlineChange, ModelRow, NewEvent, NewModel
from foltr.storage.restored_records import RestoredVersion

log = structlog.get_logger(__name__)


class Rounds:
    """The rounds of one federation. Only its single writer calls it."""

    def __init__(self, plan: FederationPlan, store: FederationStore, clock: Clock, receipts: ReceiptSender) -> None:
        self._plan = plan
        self._store = store
        self._receipts = receipts
        self._clock = clock
        self._state = FederationState(plan)
        self.seed = b""
        self._model: ModelRow | None = None
        self._announcer: Announcer | None = None
        self._is_held = False
        self._evaluation: EvaluationRequest | None = None

    def start(self, claimed: ClaimedFederation, model: ModelRow) -> None:
        """Continue from the claimed state; ``model`` is the newest one."""
        self.seed, self._state = claimed.aggregation_seed, claimed.state
        self._serve(model)

    def attach(self, announcer: Announcer) -> None:
        self._announcer = announcer
        self.announce()

    @property
    def model(self) -> ModelRow:
        """The newest model."""
        if self._model is None:
            raise RuntimeError("the federation has no model: start() comes first")
        return self._model

    def suspects(self) -> frozenset[str]:
        """Return the clients that the rule leaves out at present; empty for rules that judge no clients."""
        return suspects_of(self.model.defence_state) if self._plan.policy.rule.rule == "adaptive" else frozenset()

    async def reload_model(self) -> None:
        """Reload the newest model: an erasure has changed what its rule remembers."""
        model = await self._store.latest_model()
        if model is not None:
            self._serve(model)

    async def reload_after_erasure(self) -> None:
        """Drop the anchor's announcement if an erasure has tainted it, and the credits of the erased client."""
        before = self._evaluation
        await self.load_credits()
        if await drop_erased_anchor(self._store, self._state) or self._evaluation != before:
            self.announce()

    async def load_credits(self) -> None:
        """Load what clients' interleaved lists say of the models that were not withdrawn, if devices are asked."""
        if not self._plan.keeps_evaluation(None):
            return
        since = self._state.oldest_served
        if self._plan.secure is None:
            listed = await self._store.list_credits(since, self.suspects())
            total, squares = pooled(*np.array(listed, np.float64).reshape(-1, 2).T)
        else:
            total, squares = summed(await self._store.list_credit_sums(since))
        self._evaluation = EvaluationRequest(
            federation=self._plan.federation, credits_since=since, credit_total=total, credit_squares=squares
        )

    def _serve(self, model: ModelRow) -> None:
        self._model = model
        self._state.add_model_hashes({model.version: model.weights_hash})

    def announce(self) -> None:
        """Announce the newest model, and the open round or the last one."""
        shown = self._state.round or self._state.ended
        if self._announcer is None or shown is None:
            return
        is_open = self._state.round is not None and shown.state is RoundState.COLLECTING and not self._is_held
        # Devices take no part in a round for which helpers have no keys left.
        is_open = is_open and not shown.is_after_policy
        self._announcer.announce(
            model_announcement(self._plan, self.model),
            round_announcement(self._state, shown, is_open=is_open),
            None if self._state.anchor is None else model_announcement(self._plan, self._state.anchor),
            pace_announcement(self._state),
            self._evaluation,
        )

    def hold(self, is_held: bool) -> None:
        """Put announcing open rounds on hold, or resume it; a resumed round takes updates from then on."""
        if is_held == self._is_held:
            return
        self._is_held = is_held
        if not is_held:
            self.announce()

    async def end(self, now: float) -> bool:
        """End the open round if due or full, with or without a model; return whether models were rolled back."""
        current = self._state.round
        step = None if current is None else current.next_step(now)
        if current is None or step is None:
            return False
        if isinstance(step, Aggregate):
            return await self._aggregate(current)
        # A hold ends by the round's deadline, and a helper that has opened later rounds waits for higher numbers.
        may_wait = step.reason is AbandonReason.NO_UPDATES and not self._is_held
        if may_wait and self._state.is_idle(self._next_anchor, now):
            await self._restart_idle_round(current, now)
        elif self._is_held and step.reason is AbandonReason.TOO_FEW_CLIENTS:
            await self._abandon(current, AbandonReason.HELD_BACK)  # or one device could hold back all for good
        else:
            await self._abandon(current, step.reason)
        return False

    @property
    def _next_anchor(self) -> ModelRow | None:
        """The anchor of the round after one that makes no model."""
        return as_anchor(self._state, self._state.anchor or self.model)

    async def _restart_idle_round(self, current: Round, now: float) -> None:
        """Give a round without anybody online a new deadline, instead of storing a row for each."""
        current.restart(now)
        self._state.steer(now)
        max_time_s, closes_at = current.policy.max_time_s, to_datetime(current.closes_at)
        change = DeadlineChange(current.number, to_datetime(now), max_time_s, closes_at)
        await self._store.commit_batch(Batch(deadline=change))
        self.announce()
        log.debug("round_restarted", round=current.number)

    async def _aggregate(self, current: Round) -> bool:
        """Make a model of a round, or abandon it; return whether models were rolled back instead."""
        number = current.number
        if current.state is RoundState.COLLECTING:
            current.stop_collecting()
            await self._store.begin_aggregation(number)
        failpoint(Failpoint.COLLECTING_STOPPED)
        if current.state is RoundState.CHECKING:
            self.announce()  # it takes no further updates, and no other round does before helpers have answered
            return False
        try:
            sums = await collected_sums(self._store, self._plan, self.seed, current)
            tally, evaluation = None if sums is None else sums.tally, self._evaluation_in(sums, current)
            result = await count_votes(self._store, self._state, current, tally)
            verdict = verdict_on(self.model, self._state.anchor, result)
            if verdict is Verdict.TAKE_BACK and self._state.anchor is not None:
                await self._take_back(current, self._state.anchor, result.in_words)
                return True
            outcome = await self._outcome(current, sums)
        except DataError as error:
            log.error("aggregation_failed", round=number, cause=str(error))  # noqa: TRY400 (logged in one line)
            await self._abandon(current, _reason_of(error), str(error))
            return False
        failpoint(Failpoint.AGGREGATED)
        now = self._clock.now()
        closed_at, version = to_datetime(now), self.model.version + 1
        anchor = self._state.anchor
        votes = None if anchor is None else tally  # without an anchor they mean nothing
        model = NewModel(
            version,
            pack_vector(outcome.weights),
            outcome.memory.optimiser,
            outcome.memory.defence,
            new_aggregation(outcome, of_sums=sums is not None),
            found_events(outcome, number, closed_at),
            votes,
            evaluation,
        )
        row = model_row(self._plan, current, model, closed_at, self.model)
        if verdict is Verdict.MOVE_ANCHOR and anchor is not None:
            moved = anchor_moved(self.model, anchor, result, closed_at, number)
            model, anchor = replace(model, events=[*model.events, moved]), self.model
        anchor = as_anchor(self._state, anchor or row)
        following, opening = self._state.next_round(version, now, anchor)
        await self._store.complete_round(number, model, closed_at, opening)
        failpoint(Failpoint.ROUND_COMPLETED)
        current.complete()
        self._serve(row)
        self._state.advance_to(following, version, anchor)
        await self.load_credits()
        self.announce()
        log.info("round_completed", round=number, model=version, n_updates=len(current.contributions))
        log_findings(number, model)
        return False

    def _evaluation_in(self, sums: CollectedSums | None, current: Round) -> RoundEvaluation | None:
        """The evaluations in a round's sums; None if they have none, or they are not kept."""
        if sums is None or current.terms is None or not self._plan.keeps_evaluation(current.terms.policy.policy):
            return None
        return sums.evaluation

    async def _outcome(self, current: Round, sums: CollectedSums | None) -> NextModel:
        if sums is not None:
            return await summed_model(sums, self.model)
        return await next_model(self._store, self._plan, self.seed, current, self.model)

    async def end_sums(self, ended: GiveUp | SumsStored) -> bool:
        """End a round whose sums are stored, or of which none will be released; return as `end`."""
        current = self._state.current_round
        if isinstance(ended, SumsStored):
            return await self._aggregate(current)
        await self._abandon(current, ended.reason, ended.detail)
        return False

    async def abandon_broken_set(self) -> None:
        """Abandon a round whose set, already sent to helpers, contains a client that must leave."""
        current = self._state.current_round
        if current.state is RoundState.OPENING:
            why = "a client was forgotten, revoked or quarantined while helpers opened the sum that it was in"
            await self._abandon(current, AbandonReason.CLIENT_WITHDRAWN, why)

    async def _abandon(self, current: Round, reason: AbandonReason, in_words: str | None = None) -> None:
        number = current.number
        now = self._clock.now()
        closed_at = to_datetime(now)
        anchor = self._next_anchor
        following, opening = self._state.next_round(current.base_version, now, anchor)
        # A missed quorum explains itself.
        events = [] if in_words is None else [NewEvent(closed_at, "round_abandoned", in_words, round=number)]
        await self._store.abandon_round(number, reason, closed_at, opening, events)
        failpoint(Failpoint.ROUND_ABANDONED)
        current.abandon(reason)
        self._receipts.notify(take_back_round(self._state, current))
        self._state.advance_to(following, current.base_version, anchor)
        if current.terms is not None and reason in PAUSING:
            self._is_held = True  # until the length of the pause is known (`foltr.federator.summing.pause`)
        self.announce()
        why = {} if in_words is None else {"detail": in_words}
        log.info("round_abandoned", round=number, reason=reason, n_updates=len(current.contributions), **why)

    async def _take_back(self, current: Round, anchor: ModelRow, why: str) -> None:
        """Put the anchor's weights in service again in place of the newest model.

        The round that trained from the newest model is abandoned, and its clicks are learned again.

        Args:
            why: the reason, as text.
        """
        state, now, version = self._state, self._clock.now(), self.model.version + 1
        restored = as_anchor(state, replace(anchor, version=version))
        following, opening = state.next_round(version, now, restored)
        restoration = restoration_of(anchor, self.model, why, to_datetime(now), current.number, opening)
        await self._store.restore_anchor(restoration)
        failpoint(Failpoint.MODEL_ROLLED_BACK)
        await self.reload_model()
        current.abandon(AbandonReason.MODEL_ROLLED_BACK)
        self._receipts.notify(take_back_round(state, current))
        state.restored.append(RestoredVersion(version, anchor.version))
        state.advance_to(following, version, as_anchor(state, self.model))
        await self.load_credits()
        self.announce()
        log.warning("model_rolled_back", round=current.number, model=version, detail=restoration.events[0].detail)

    # --- a model from unlearning ----------------------------------------------------------------------------

    @property
    def takes_swap(self) -> bool:
        """Whether a swap may happen now, between two rounds: accepted updates count in their round first."""
        current = self._state.round
        if current is None:
            return True
        if self._state.is_last(current.number):
            return False  # it is not abandoned for this: the swap follows it
        return current.state is RoundState.COLLECTING and not current.contributions

    async def swap(self, job: UnlearningJobRow, sign: Sign) -> list[ErasureRow]:
        """Put a job's model in service; return the erasures that it completes."""
        state, current, now = self._state, self._state.round, self._clock.now()
        version = self.model.version + 1
        number = None if current is None else current.number
        # The job's model is the anchor too, unless stored data shows another erased client in it.
        anchor = replace(self.model, version=version) if state.asks_for_votes else None
        following, opening = (None, None) if current is None else state.next_round(version, now, anchor)
        completion = swap_of(job, self.model, to_datetime(now), number, opening)
        done = await self._store.complete_job(job.number, completion, sign)
        await self.reload_model()
        if current is None:
            state.serve_model(version, as_anchor(state, self.model))
        else:
            current.abandon(AbandonReason.UNLEARNED)
            self._receipts.notify(take_back_round(state, current))
            state.advance_to(following, version, as_anchor(state, self.model))
        state.oldest_base = version
        await self.load_credits()
        self.announce()
        log.info("unlearning_done", job=job.number, model=version, n_clients=len(done))
        return done


def _reason_of(error: DataError) -> AbandonReason:
    if isinstance(error, OnlySuspectsError):
        return AbandonReason.ONLY_SUSPECTS
    if isinstance(error, TooFewUpdatesError):
        return AbandonReason.TOO_FEW_FOR_RULE
    return AbandonReason.SUM_IMPLAUSIBLE if isinstance(error, ImplausibleSumError) else AbandonReason.AGGREGATION_FAILED
