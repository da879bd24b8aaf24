"""Whatever order answers come in, and whoever leaves meanwhile: the same sets and faults, each proof judged once."""

import random
from dataclasses import dataclass, field

import numpy as np
from support.secure_cohorts import SecureFederation

from foltr.core.aggregation.rule_spec import MEAN
from foltr.core.protocol.helper_messages import CheckAnswer, CheckRequest, RefusedTicket, TicketFault, has_position
from foltr.core.protocol.signed_tickets import set_digest, ticket_hash
from foltr.core.protocol.states import AbandonReason
from foltr.core.secure.field import MODULUS, add_up
from foltr.federator.secure_terms import SecureTerms
from foltr.federator.summing import cohorts
from foltr.federator.summing.cohorts import PageForm, cohorts_of
from foltr.federator.summing.machine import FixSets, GiveUp, SumMachine
from foltr.federator.summing.verdicts import CheckProofs
from foltr.storage.sum_records import TicketRow

N_MIN, MOST_EVENTS, ENOUGH_TURNS = 3, 60, 2000
FEDERATION = SecureFederation(3, proofs=True, n_min=N_MIN, cohorts=2)
TERMS = SecureTerms(FEDERATION.policy, 1.0, FEDERATION.verify_key)
HELPERS = [helper.name for helper in FEDERATION.helpers]
N_ANSWER = PageForm.under(FEDERATION.policy.policy).n_answer


@dataclass
class Drawn:
    """A round that is checked, and what is true of it."""

    rng: random.Random
    rows: list[TicketRow]
    refusing: dict[str, set[TicketRow]]
    liars: set[TicketRow]
    leaving: float
    asked: list[CheckRequest] = field(default_factory=list)
    gone: set[TicketRow] = field(default_factory=set)
    checked: list[TicketRow] = field(default_factory=list)
    under_way: CheckProofs | None = None
    now: float = 0.0

    def __post_init__(self) -> None:
        self.machine = SumMachine("mail", 7, TERMS, MEAN, cohorts_of(self.rows), 1e6, 0.0)
        words = np.random.default_rng(self.rng.randrange(2**32))
        self.words = {
            (helper, row.ticket): words.integers(0, MODULUS, N_ANSWER, np.uint64)
            for helper in HELPERS
            for row in self.rows
        }

    def turn(self) -> FixSets | GiveUp | None:
        """Let the machine do what is due; says how the check ended, once it did."""
        self.now += 3.0
        step = self.machine.step(self.now)
        if isinstance(step, CheckProofs):
            assert self.under_way is None
            self._judge(step)
        elif step is not None:
            assert isinstance(step, FixSets | GiveUp)
            return step
        self.asked += [each for each in self.machine.requests(self.now) if isinstance(each, CheckRequest)]
        return None

    def _judge(self, check: CheckProofs) -> None:
        for row, total in zip(check.rows, check.answers, strict=True):
            said = [self.words[helper, row.ticket] for helper in HELPERS]
            np.testing.assert_array_equal(total, add_up(said, N_ANSWER))
        assert not set(check.rows) & (set(self.checked) | self.gone | set().union(*self.refusing.values()))
        self.checked += check.rows
        self.under_way = check

    def decide(self) -> None:
        if self.under_way is not None:
            failed = {row.position for row in self.under_way.rows if row in self.liars}
            self.machine.proofs_checked(self.under_way, failed)
            self.under_way = None

    def leave(self) -> None:
        row = self.rng.choice(self.checked if self.checked and self.rng.random() < 0.7 else self.rows)
        self.gone.add(row)
        self.machine.leave(row.client_id)

    def answer(self, request: CheckRequest, *, is_whole: bool = True) -> None:
        out = {row.ticket for row in self.refusing[request.helper]}
        refused = [
            RefusedTicket(position=request.first + i, fault=TicketFault.NOT_OPENED)
            for i, ticket in enumerate(request.tickets)
            if ticket in out
        ]
        good = [self.words[request.helper, ticket] for ticket in request.tickets if ticket not in out]
        proofs = b"".join(words.astype("<u8").tobytes() for words in good)
        about = {name: getattr(request, name) for name in ("federation", "helper", "policy_hash", "round", "cohort")}
        answer = CheckAnswer(
            **about,
            first=request.first,
            digest=set_digest(map(ticket_hash, request.tickets)),
            refused=refused,
            proofs=proofs if is_whole else proofs + bytes(8),
        )
        self.machine.handle_answer(answer, b"", self.now)

    def event(self) -> None:
        """Do something that may happen."""
        kind = self.rng.choices(("turn", "answer", "broken", "decide", "leave"), (2, 16, 1, 3, self.leaving))[0]
        if kind in ("answer", "broken") and self.asked:
            self.answer(self.rng.choice(self.asked), is_whole=kind == "answer")
        elif kind == "decide":
            self.decide()
        elif kind == "leave":
            self.leave()

    def expected(self) -> tuple[dict[int, tuple[set[TicketRow], int]], dict[str, TicketFault], bool]:
        """Each set that is large enough, with how many proofs failed; the faults; whether verifiers disagree."""
        sets, faults, disagree = {}, {}, False
        refused = set().union(*self.refusing.values())
        for number in (0, 1):
            left = {row for row in self.rows if row.cohort == number} - self.gone
            faults |= {row.client_id: TicketFault.NOT_OPENED for row in left & refused}
            checked = left - refused
            failed = checked & self.liars
            most_fail = 2 * len(failed) > len(checked)
            disagree |= most_fail and len(checked) >= N_MIN
            if not most_fail:
                faults |= {row.client_id: TicketFault.NORM_PROOF_FAILED for row in failed}
            if len(checked - failed) >= N_MIN:
                sets[number] = checked - failed, len(failed)
        return sets, faults, disagree


def drawn(seed: int) -> Drawn:
    rng = random.Random(seed)  # noqa: S311
    rows = [
        TicketRow(f"{cohort}-{i}", cohort, i, bytes([cohort, i]) * 8, b"enrolment")
        for cohort in (0, 1)
        for i in range(rng.randint(2, 14))
    ]
    some = rng.choice((0.0, 0.1, 0.4))
    refusing = {helper: {row for row in rows if rng.random() < some / 3} for helper in HELPERS}
    many = rng.choice((0.0, 0.2, 0.5))
    return Drawn(rng, rows, refusing, {row for row in rows if rng.random() < many}, leaving=rng.choice((0.0, 1.0, 4.0)))


def ended(played: Drawn) -> FixSets | GiveUp:
    """Play what was drawn, then let everybody answer, until the check has ended."""
    for _ in range(played.rng.randrange(MOST_EVENTS)):
        played.event()
        if (end := played.turn()) is not None:
            return end
    for _ in range(ENOUGH_TURNS):
        for request in played.asked[-3 * len(HELPERS) * 4 :]:
            played.answer(request)
        played.decide()
        if (end := played.turn()) is not None:
            return end
    raise AssertionError("the check does not end")


def test_the_end_of_a_check_is_what_is_true(monkeypatch):
    """In twenty drawn rounds: who is in which set, what is told of whom, and when verifiers disagree."""
    for first_seed in range(0, 200, 20):
        monkeypatch.setattr(cohorts, "PAGE_BYTES", 80)  # three tickets
        for seed in range(first_seed, first_seed + 20):
            played = drawn(seed)
            end = ended(played)
            sets, faults, disagree = played.expected()
            if disagree:
                assert isinstance(end, GiveUp), seed
                assert end.reason is AbandonReason.VERIFIERS_DISAGREE, seed
            elif not sets:
                assert isinstance(end, GiveUp), seed
                assert end.reason is AbandonReason.COHORTS_TOO_SMALL, seed
            else:
                assert isinstance(end, FixSets), (seed, end)
                found = {
                    each.cohort: (
                        {
                            row
                            for row in played.rows
                            if row.cohort == each.cohort and has_position(each.kept, row.position)
                        },
                        each.n_norm_proofs_failed,
                    )
                    for each in end.sets
                }
                assert (found, dict(end.faults)) == (sets, faults), seed
