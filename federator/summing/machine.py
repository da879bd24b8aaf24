"""The dialogue with all helpers about one round: what to send now, what an answer leads to, and when to give up.

The round is checking until every helper has answered for every page of every cohort, and every norm proof has a verdict
(`foltr.federator.summing.verdicts`), if its policy asks for them. Then the sets are fixed, and stored before any helper
is asked about one. From there on it is opening: every helper commits itself to a set. Once all have, each is asked for
its sum with the commitments of the others, until every helper has answered every question.

A cohort with too few clients left is dropped, and its clients are in no sum. The round is given up, and nothing is
released, if too few cohorts are left, most proofs of one fail, a helper does not open a sum, or one is silent for
`helper_deadline_s`.

Requests are repeated, ever more rarely, until they are answered; only a few per helper are under way at a time. No I/O:
the shell (`foltr.federator.summing.driver`) sends, stores and drives. The dialogue with one helper about one cohort is
in `foltr.federator.summing.helper_session`.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from foltr.core.aggregation.rule_spec import RuleSpec
from foltr.core.methods.preconditions import rule_problem
from foltr.core.protocol.helper_messages import (
    CheckAnswer,
    CheckRequest,
    HelperRefusal,
    HelperRefusalCode,
    OpenRequest,
    SetCommitment,
    TicketFault,
    has_position,
)
from foltr.core.protocol.states import AbandonReason
from foltr.federator.secure_terms import SecureTerms
from foltr.federator.summing.cohorts import CohortTickets, PageForm
from foltr.federator.summing.helper_session import Commitments, HelperAnswer, HelperSession, Stage
from foltr.federator.summing.verdicts import CheckProofs, Verdicts
from foltr.storage.sum_records import NewAnswer, NewSet, RoundSumRow

FIRST_REPEAT_S, LONGEST_REPEAT_S = 2.0, 8.0
AT_ONCE = 4
"""How many requests to one helper are unanswered at a time."""
MOST_SHOWN = 3
"""How often a helper is shown the same pages before it counts as one that does not open the sum."""

Request = CheckRequest | OpenRequest
_Question = tuple[int, int]  # the cohort, and the page's first position or -1 for the set
_THE_SET = -1


@dataclass(frozen=True)
class FixSets:
    """The sets to store before helpers are asked, and the tickets that are in none, by client."""

    sets: Sequence[NewSet]
    faults: Mapping[str, TicketFault]


@dataclass(frozen=True)
class GiveUp:
    """Abandon the round: nothing was released."""

    reason: AbandonReason
    detail: str


@dataclass(frozen=True)
class AllOpened:
    """Every helper has answered for every set."""


Step = CheckProofs | FixSets | GiveUp | AllOpened


@dataclass
class _RetryTimer:
    """When to ask a question again, and the pause after that."""

    again_at: float
    pause_s: float = FIRST_REPEAT_S


@dataclass
class _Helper:
    """One helper: its sessions by cohort, its pending questions, and the time of its last useful answer."""

    name: str
    sessions: dict[int, HelperSession]
    useful_at: float
    asked: dict[_Question, _RetryTimer] = field(default_factory=dict)
    refusal: str | None = None


class SumMachine:
    """The questions about one round. Times are epoch seconds.

    Args:
        federation: the federation's name.
        round_number: the round's number.
        terms: the round's.
        rule: across the sums.
        cohorts: the tickets, by cohort.
        deadline_s: see `foltr.federator.secure_terms.SecureSettings`.
        sets: the stored ones of a round that is opening already.
    """

    def __init__(
        self,
        federation: str,
        round_number: int,
        terms: SecureTerms,
        rule: RuleSpec,
        cohorts: Mapping[int, CohortTickets],
        deadline_s: float,
        now: float,
        sets: Iterable[RoundSumRow] = (),
    ) -> None:
        self._federation = federation
        self._round = round_number
        self._terms = terms
        self._rule = rule
        self._cohorts = dict(cohorts)
        self._deadline_s = deadline_s
        self._form = PageForm.under(terms.policy.policy)
        self._verdicts = Verdicts(cohorts, terms.policy.policy)
        self._commitments = Commitments([keys.name for keys in terms.policy.policy.helpers])
        self._gone: dict[int, set[int]] = {number: set() for number in cohorts}
        self._unstored: list[NewAnswer] = []
        self._failure: GiveUp | None = None
        self.sets = {
            row.cohort: NewSet(row.cohort, row.n_tickets, row.n_clients, row.kept, row.set_digest) for row in sets
        }
        self._helpers = {
            keys.name: _Helper(keys.name, {n: self._session(keys.name, n) for n in self.sets or self._cohorts}, now)
            for keys in terms.policy.policy.helpers
        }

    def _session(self, helper: str, number: int) -> HelperSession:
        stage = Stage.OPENING if self.sets else Stage.CHECKING
        digest = self.sets[number].digest if self.sets else None
        n_summed = self._terms.policy.policy.n_summed
        return HelperSession(helper, self._cohorts[number], n_summed, self._form, stage, set_digest=digest)

    # --- what happens -----------------------------------------------------------------------------------------

    def answered_before(self, helper: str, cohort: int) -> None:
        """Note that a helper's whole answer for a set is stored."""
        self._helpers[helper].sessions[cohort].stage = Stage.OPENED

    def leave(self, client_id: str) -> None:
        """Leave a client out of the sets, which are not fixed yet."""
        for number, cohort in self._cohorts.items():
            for row in cohort.rows:
                if row.client_id == client_id:
                    self._gone[number].add(row.position)
                    self._verdicts.leave_out(number, row.position)
                    for helper in self._helpers.values():
                        helper.sessions[number].leave(row.position)

    def handle_answer(self, answer: HelperAnswer, signed: bytes, now: float) -> None:
        """Take a helper's message, whose signature was checked; one that answers no open question changes nothing."""
        helper = self._helpers.get(answer.helper)
        if helper is None or (answer.policy_hash, answer.round) != (self._terms.policy.hash, self._round):
            return
        session = helper.sessions.get(answer.cohort)
        if session is None:
            return
        if isinstance(answer, HelperRefusal):
            self._refused(helper, session, answer, now)
        elif isinstance(answer, CheckAnswer):
            self._checked(helper, session, answer, now)
        elif isinstance(answer, SetCommitment):
            self._committed(helper, session, answer, signed, now)
        elif session.take_part(answer, signed):
            self._note_useful(helper, now)
            if session.stage is Stage.OPENED:
                self._keep(helper, session)

    def _checked(self, helper: _Helper, session: HelperSession, answer: CheckAnswer, now: float) -> None:
        page = session.take_page(answer)
        if page is None:
            if session.page_of(answer) is not None:
                helper.refusal = f"{helper.name}: its answer for a page of tickets is not whole"
            return
        self._note_useful(helper, now)
        helper.asked.pop((answer.cohort, answer.first), None)
        if not self.sets:
            self._verdicts.take_page(page, answer)
        elif any(has_position(self.sets[answer.cohort].kept, position) for position in session.faults):
            self._fail(AbandonReason.HELPERS_REFUSED, f"{helper.name} takes a client out of a set that is fixed")

    def _committed(
        self, helper: _Helper, session: HelperSession, answer: SetCommitment, signed: bytes, now: float
    ) -> None:
        if answer.digest != session.set_digest or not self._commitments.is_missing(answer.cohort, helper.name):
            return
        self._note_useful(helper, now)
        if self._commitments.add(answer.cohort, helper.name, signed):
            for each in self._helpers.values():  # the sum is a new question, which was not asked before
                each.useful_at = now
                each.asked.pop((answer.cohort, _THE_SET), None)

    def _refused(self, helper: _Helper, session: HelperSession, refusal: HelperRefusal, now: float) -> None:
        is_about_set = session.stage is Stage.OPENING and refusal.digest == session.set_digest
        if not is_about_set and all(page.digest != refusal.digest for page in session.waiting.values()):
            return
        words = f"{helper.name}: {refusal.code}: {refusal.detail}"
        if refusal.code is HelperRefusalCode.UNKNOWN_POLICY:
            helper.refusal = words  # the policy may be on its way: ask again until the deadline
        elif refusal.code is HelperRefusalCode.UNKNOWN_SET and is_about_set and session.n_shown < MOST_SHOWN:
            session.forget_set()
            helper.asked = {asked: when for asked, when in helper.asked.items() if asked[0] != refusal.cohort}
            self._note_useful(helper, now)
        else:
            self._fail(AbandonReason.HELPERS_REFUSED, words)

    def _keep(self, helper: _Helper, session: HelperSession) -> None:
        digest = self.sets[session.cohort.number].digest
        self._unstored += [
            NewAnswer(session.cohort.number, helper.name, start, digest, part.signed)
            for start, part in session.parts.items()
        ]
        session.parts.clear()

    def _note_useful(self, helper: _Helper, now: float) -> None:
        helper.useful_at, helper.refusal = now, None

    def _fail(self, reason: AbandonReason, detail: str) -> None:
        self._failure = self._failure or GiveUp(reason, detail)

    # --- what follows -----------------------------------------------------------------------------------------

    def unstored(self) -> list[NewAnswer]:
        """Return the whole answers to store; they count after `stored`."""
        return list(self._unstored)

    def proofs_checked(self, check: CheckProofs, failed: Collection[int]) -> None:
        """Continue: these norm proofs are checked, and those at the positions ``failed`` fail."""
        self._verdicts.decide(check, failed)

    def stored(self, answers: Sequence[NewAnswer]) -> None:
        """Continue: these answers are stored."""
        self._unstored = [answer for answer in self._unstored if answer not in answers]

    def step(self, now: float) -> Step | None:
        """Return what is due; None while answers are awaited."""
        if self._failure is not None:
            return self._failure
        if (check := self._verdicts.take_due()) is not None:
            return check
        stages = {session.stage for helper in self._helpers.values() for session in helper.sessions.values()}
        if not self.sets and stages <= {Stage.CHECKED}:
            return None if self._verdicts.is_waiting else self._fix()
        if self.sets and stages == {Stage.OPENED} and not self._unstored:
            return AllOpened()
        return self._overdue(now)

    def sets_stored(self, sets: Sequence[NewSet], now: float) -> None:
        """Continue with the stored sets: all helpers are asked for them, and never for others."""
        self.sets = {each.cohort: each for each in sets}
        for helper in self._helpers.values():
            helper.sessions = {number: helper.sessions[number] for number in self.sets}
            helper.asked.clear()
            helper.useful_at = now  # it was not asked while the others were awaited
            for number, session in helper.sessions.items():
                session.ask(self.sets[number].digest)

    def _fix(self) -> FixSets | GiveUp:
        if (disagreement := self._verdicts.disagreement()) is not None:
            return GiveUp(AbandonReason.VERIFIERS_DISAGREE, disagreement)
        n_min = self._terms.policy.policy.n_min
        faults: dict[str, TicketFault] = {}
        sets = []
        for number, cohort in self._cohorts.items():
            found = self._found(number)
            faults |= {row.client_id: found[row.position] for row in cohort.rows if row.position in found}
            out = self._gone[number] | found.keys() | self._verdicts.failed(number)
            made = cohort.set_of(out, self._verdicts.n_failed(number))
            if made is not None and made.n_clients >= n_min:
                sets.append(made)
        short = "nobody is left" if not sets else rule_problem(self._rule, len(sets))
        if short is not None:
            detail = f"{len(sets)} of {len(self._cohorts)} cohorts have {n_min} clients that no helper excluded"
            return GiveUp(AbandonReason.COHORTS_TOO_SMALL, f"{detail}: {short}{self._helpers_that_excluded()}")
        return FixSets(sets, faults)

    def _helpers_that_excluded(self) -> str:
        """Return which helper alone refused tickets, over all cohorts; empty if no helper did."""
        out = {
            helper.name: {
                (number, position) for number, session in helper.sessions.items() for position in session.faults
            }
            for helper in self._helpers.values()
        }
        alone = {name: own.difference(*(out[other] for other in out if other != name)) for name, own in out.items()}
        return "".join(f"; {name} alone excluded {len(own)}" for name, own in alone.items() if own)

    def _found(self, number: int) -> dict[int, TicketFault]:
        """The faults of a cohort's tickets, by position, without clients that have left."""
        found = dict.fromkeys(self._verdicts.reported_failures(number), TicketFault.NORM_PROOF_FAILED)
        for helper in self._helpers.values():
            found |= helper.sessions[number].faults
        return {position: fault for position, fault in found.items() if position not in self._gone[number]}

    def _overdue(self, now: float) -> GiveUp | None:
        for helper in self._helpers.values():
            if now >= helper.useful_at + self._deadline_s and any(self._questions(helper)):
                if helper.refusal is not None:
                    return GiveUp(AbandonReason.HELPERS_REFUSED, helper.refusal)
                return GiveUp(AbandonReason.HELPERS_SILENT, f"{helper.name} said nothing for {self._deadline_s:g} s")
        return None

    def awaited(self, now: float, after_s: float) -> list[str]:
        """Return the helpers that have questions, and have not answered for so many seconds."""
        helpers = self._helpers.values()
        return [each.name for each in helpers if now >= each.useful_at + after_s and any(self._questions(each))]

    def wake_at(self) -> float:
        """When `step` or `requests` may change without a message."""
        return min((self._wake_of(helper) for helper in self._helpers.values()), default=math.inf)

    def _wake_of(self, helper: _Helper) -> float:
        open_ = [question for question, _ in self._first(helper)]
        if not open_:
            return math.inf
        again = [helper.asked[question].again_at if question in helper.asked else -math.inf for question in open_]
        return min(helper.useful_at + self._deadline_s, *again)

    def requests(self, now: float) -> list[Request]:
        """Return the requests to send now, and count them as sent."""
        return [
            self._request(helper, question, session)
            for helper in self._helpers.values()
            for question, session in self._first(helper)
            if _is_due(helper, question, now)
        ]

    def _request(self, helper: _Helper, question: _Question, session: HelperSession) -> Request:
        number, first = question
        about: dict[str, Any] = {
            "federation": self._federation,
            "helper": helper.name,
            "policy_hash": self._terms.policy.hash,
            "epoch": self._terms.epoch,
            "round": self._round,
            "cohort": number,
        }
        if first == _THE_SET:
            asked = self.sets[number]
            beside = self._commitments.beside(number, helper.name)
            about |= {"n_tickets": asked.n_tickets, "kept": asked.kept, "digest": asked.digest}
            return OpenRequest(**about, commitments=beside)
        rows = session.waiting[first].rows
        tickets, enrolments = [row.ticket for row in rows], [row.enrolment for row in rows]
        return CheckRequest(**about, first=first, tickets=tickets, enrolments=enrolments)

    def _questions(self, helper: _Helper) -> Iterator[tuple[_Question, HelperSession]]:
        """The open questions to a helper, in the order in which they are asked."""
        for number, session in helper.sessions.items():
            if session.stage in (Stage.OPENING, Stage.OPENED) and self._is_asked(helper, number, session):
                yield (number, _THE_SET), session
            yield from (((number, first), session) for first in session.waiting)

    def _is_asked(self, helper: _Helper, number: int, session: HelperSession) -> bool:
        """Whether to ask a helper about a set: for its sum, or before that for its commitment."""
        if self._commitments.are_whole(number):
            return session.stage is Stage.OPENING
        # A helper that has answered is asked for its commitment again while another needs it.
        needed = any(each.sessions[number].stage is not Stage.OPENED for each in self._helpers.values())
        return needed and self._commitments.is_missing(number, helper.name)

    def _first(self, helper: _Helper) -> list[tuple[_Question, HelperSession]]:
        """The questions that are under way at a time."""
        return [question for question, _ in zip(self._questions(helper), range(AT_ONCE), strict=False)]


def _is_due(helper: _Helper, question: _Question, now: float) -> bool:
    """Whether to ask a question now; if so, noted as asked."""
    before = helper.asked.get(question)
    if before is None:
        helper.asked[question] = _RetryTimer(now + FIRST_REPEAT_S)
        return True
    if now < before.again_at:
        return False
    pause_s = min(2 * before.pause_s, LONGEST_REPEAT_S)
    helper.asked[question] = _RetryTimer(now + pause_s, pause_s)
    return True
