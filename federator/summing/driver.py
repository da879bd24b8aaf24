"""Drives the open round's secure sum: sends requests to helpers, stores their answers, and reports the end.

The thin shell of `foltr.federator.summing.machine`. Helpers' answers wait here until the single writer takes its next
turn, which stores them before they are used; meanwhile the writer goes on answering devices, also while norm proofs are
checked. A restarted federator continues: it repeats the checks, or uses the stored sets and answers.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import structlog

from foltr.core.errors import DataError, MessageError
from foltr.core.failpoints import Failpoint, failpoint
from foltr.core.protocol.epochs import epoch_of
from foltr.core.protocol.helper_messages import HelperRefusal
from foltr.core.protocol.states import AFTERMATH, ASKING_HELPERS, AbandonReason, Aftermath, RoundState
from foltr.federator.clock import to_datetime
from foltr.federator.round import Round, RoundEvent
from foltr.federator.secure_terms import SecureTerms
from foltr.federator.store import FederationStore, stream_updates, updates_at_once
from foltr.federator.summing.cohorts import cohorts_of
from foltr.federator.summing.helper_session import HelperAnswer, read_answer
from foltr.federator.summing.machine import AllOpened, FixSets, GiveUp, Request, SumMachine
from foltr.federator.summing.masked_sums import add_masked
from foltr.federator.summing.pause import Pause
from foltr.federator.summing.presence import Presence
from foltr.federator.summing.proof_checks import ProofChecks
from foltr.federator.summing.verdicts import CheckProofs
from foltr.storage.records import NewEvent
from foltr.storage.sum_records import FailedRounds

log = structlog.get_logger(__name__)

# Parts of one answer, and those of all helpers; what does not fit is requested again.
_MAX_WAITING = 1024
# A helper that is there answers within moments; its work for a large round takes a few seconds more.
_AWAITED_AFTER_S = 5.0


class Sender(Protocol):
    """Sends requests to helpers (`foltr.federator.publishing.announcements.ReceiptSender`)."""

    def send(self, requests: list[Request]) -> None: ...


@dataclass(frozen=True)
class SumsStored:
    """All sums of the round are stored with the answers: the round is aggregating."""


class Summing:
    """The secure sums of one federation, a round at a time.

    Args:
        deadline_s: see `foltr.federator.secure_terms.SecureSettings`.
        wake: called in the event loop when `advance` has something to do.

    Attributes:
        awaits_helpers: whether announcing the open round waits until its helpers have answered.
    """

    def __init__(
        self,
        federation: str,
        store: FederationStore,
        sender: Sender,
        deadline_s: float,
        wake: Callable[[], None],
    ) -> None:
        self._federation = federation
        self._store = store
        self._sender = sender
        self._deadline_s = deadline_s
        self._arrived: deque[bytes] = deque(maxlen=_MAX_WAITING)
        self._machine: SumMachine | None = None
        self._number = 0
        self._presence: Presence | None = None
        self._proofs = ProofChecks(wake)
        self._pause = Pause(store)
        self._answered_since: FailedRounds | None = None  # all helpers have answered since these
        self.awaits_helpers = False

    def receive(self, payload: bytes) -> None:
        """Take a message on a helper's topic; called in the event loop, never blocks."""
        if self._machine is not None or self.awaits_helpers:
            self._arrived.append(payload)

    def leave(self, client_id: str) -> None:
        """Exclude a client from the sets of a round in checking."""
        if self._machine is not None and not self._machine.sets:
            self._machine.leave(client_id)

    def is_held(self, now: float) -> bool:
        """Return whether announcing the open round is on hold."""
        return self.awaits_helpers or self._pause.holds(now)

    def awaited_helpers(self, now: float) -> dict[str, HelperRefusal | None]:
        """Return the helpers that the open round waits for, each with its refusal, if it answers and opens nothing."""
        if self._machine is not None:
            return dict.fromkeys(self._machine.awaited(now, _AWAITED_AFTER_S))
        return {} if self._presence is None else self._presence.awaited

    async def find_pause(self, current: Round | None, now: float) -> None:
        """Find how long the open round is on hold, and whether its helpers have to answer first."""
        if not await self._pause.find_pause(current, now):
            return
        failed = self._pause.failed
        is_awaited = failed is not None and AFTERMATH[failed.reason] is Aftermath.HELPERS_FIRST
        self.awaits_helpers = is_awaited and failed != self._answered_since

    def wake_at(self, current: Round | None) -> float:
        """When `advance` may have something to do without a message; epoch seconds."""
        if current is None or current.state not in ASKING_HELPERS:
            return min(self._ask_presence_at(current), self._pause.wake_at(current))
        if self._machine is None or self._arrived or self._proofs.is_done:
            return -math.inf
        return self._machine.wake_at()

    def _ask_presence_at(self, current: Round | None) -> float:
        if current is None or current.terms is None or not self.awaits_helpers:
            return math.inf
        presence = self._presence
        if presence is None or presence.round != current.number or self._arrived:
            return -math.inf
        return presence.wake_at()

    async def advance(self, current: Round | None, now: float) -> GiveUp | SumsStored | None:
        """Do what is due; return how the sums ended, once they did."""
        if current is None or current.terms is None or current.state not in ASKING_HELPERS:
            self._machine = None
            self._proofs.drop()
            await self.find_pause(current, now)
            self._look_for_helpers(current, now)
            return None
        machine = self._machine
        if machine is None or self._number != current.number:
            machine = await self._begin(current, current.terms, now)
        for answer, signed in self._answers(current.terms):
            machine.handle_answer(answer, signed, now)
        if answers := machine.unstored():
            await self._store.store_answers(current.number, answers)
            failpoint(Failpoint.ANSWERS_STORED)
            machine.stored(answers)
        ended = self._take_checked(machine) or await self._do_step(machine, current, current.terms, now)
        if ended is None:
            self._sender.send(machine.requests(now))
        return ended

    async def _do_step(
        self, machine: SumMachine, current: Round, terms: SecureTerms, now: float
    ) -> GiveUp | SumsStored | None:
        """Do the step that is due, if any; return how the sums ended, once they did."""
        step = machine.step(now)
        if isinstance(step, CheckProofs):
            return await self._check(current, terms, step)
        if isinstance(step, AllOpened):
            return await self._add_up(current, terms)
        if isinstance(step, FixSets):
            await self._fix(machine, current, step, now)
            return None
        return step

    def _look_for_helpers(self, current: Round | None, now: float) -> None:
        """Ask the helpers of a round that is not announced yet whether they are online."""
        if current is None or current.terms is None or not self.awaits_helpers:
            return
        presence = self._presence
        if presence is None or presence.round != current.number:
            policy = current.terms.policy
            presence = self._presence = Presence(policy, current.number, epoch_of(policy.policy, current.opened_at))
        for answer, _ in self._answers(current.terms):
            presence.handle_answer(answer)
        if not presence.away:
            self.awaits_helpers, self._presence = False, None
            self._answered_since = self._pause.failed
            log.info("helpers_recovered", round=current.number)
            return
        self._sender.send(list(presence.requests(now)))

    async def _begin(self, current: Round, terms: SecureTerms, now: float) -> SumMachine:
        number = current.number
        cohorts = cohorts_of(await self._store.load_tickets(number))
        sets = await self._store.load_sums(number) if current.state is RoundState.OPENING else []
        terms = replace(terms, epoch=epoch_of(terms.policy.policy, current.opened_at))
        machine = SumMachine(self._federation, number, terms, current.policy.rule, cohorts, self._deadline_s, now, sets)
        if sets:
            current.kept = {row.cohort: row.kept for row in sets}
            for helper, cohort in await self._store.answered_sets(number):
                machine.answered_before(helper, cohort)
        self._arrived.clear()
        self._proofs.drop()
        self._machine, self._number = machine, number
        self.awaits_helpers, self._presence = False, None
        log.info("helpers_asked", round=number, state=current.state, n_cohorts=len(cohorts))
        return machine

    def _answers(self, terms: SecureTerms) -> Iterator[tuple[HelperAnswer, bytes]]:
        """Yield the arrived answers of the policy's helpers, with the signed bytes."""
        while self._arrived:
            payload = self._arrived.popleft()
            try:
                yield read_answer(payload, terms.policy), payload
            except MessageError as error:
                log.debug("helper_answer_refused", round=self._number, code=error.code, detail=error.detail)

    async def _check(self, current: Round, terms: SecureTerms, check: CheckProofs) -> GiveUp | None:
        """Begin to check norm proofs; return why that is impossible, if so."""
        shape, verify_key = terms.policy.policy.message_shape, terms.verify_key
        if shape is None:
            raise RuntimeError(f"round {current.number} has no norm proofs, and some are to be checked")
        if verify_key is None:
            detail = f"the verify key of policy {terms.policy.policy.version} is sealed to no key of the federator's"
            return GiveUp(AbandonReason.AGGREGATION_FAILED, detail)
        positions = [row.position for row in check.rows]
        try:
            bodies = await self._store.load_masked(current.number, check.cohort, positions)
        except DataError as error:
            return GiveUp(AbandonReason.AGGREGATION_FAILED, str(error))  # e.g. a data key is lost
        self._proofs.begin(check, bodies, verify_key, shape)
        return None

    def _take_checked(self, machine: SumMachine) -> GiveUp | None:
        """Apply the verdicts; return why there can be none, if so."""
        try:
            checked = self._proofs.pop_result()
        except DataError as error:
            return GiveUp(AbandonReason.AGGREGATION_FAILED, str(error))
        if checked is not None:
            machine.proofs_checked(*checked)
            failpoint(Failpoint.PROOFS_CHECKED)
        return None

    async def _fix(self, machine: SumMachine, current: Round, step: FixSets, now: float) -> None:
        """Store the sets, with who is excluded, and only then ask for their sums."""
        failpoint(Failpoint.SETS_DECIDED)
        at = to_datetime(now)
        noted = [
            NewEvent(at, "ticket_refused", fault, client_id=client_id, round=current.number)
            for client_id, fault in step.faults.items()
        ]
        await self._store.begin_opening(current.number, step.sets, step.faults, noted)
        failpoint(Failpoint.SETS_STORED)
        current.move(RoundEvent.SETS_FIXED)
        current.kept = {each.cohort: each.kept for each in step.sets}
        machine.sets_stored(step.sets, now)
        log.info("client_sets_fixed", round=current.number, n_sets=len(step.sets), n_faults=len(step.faults))

    async def _add_up(self, current: Round, terms: SecureTerms) -> SumsStored | GiveUp:
        dim = terms.policy.policy.n_summed
        sets = await self._store.load_sums(current.number)
        try:
            sums = await add_masked(stream_updates(self._store, current.number, updates_at_once(8 * dim)), sets, dim)
        except DataError as error:
            return GiveUp(AbandonReason.AGGREGATION_FAILED, str(error))  # e.g. a data key is lost
        await self._store.begin_summing(current.number, sums, len(terms.policy.policy.helpers))
        failpoint(Failpoint.SUMS_STORED)
        current.move(RoundEvent.SUMS_OPENED)
        return SumsStored()
