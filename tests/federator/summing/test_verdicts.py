"""Answers for norm proofs add up whatever their order and pages, and a proof is due once all helpers have answered."""

import numpy as np
from support.secure_cohorts import SecureFederation

from foltr.core.protocol.helper_messages import CheckAnswer, RefusedTicket, TicketFault, tickets_of_page
from foltr.core.protocol.policies import Policy
from foltr.core.secure.field import MODULUS, add_up, write_words
from foltr.federator.summing.cohorts import PageForm, cohorts_of, pages_of
from foltr.federator.summing.verdicts import Verdicts
from foltr.storage.sum_records import TicketRow

POLICY = SecureFederation(3, proofs=True).policy.policy
ABOUT = {"federation": "mail", "policy_hash": bytes(32), "round": 1}
HELPERS = [keys.name for keys in POLICY.helpers]


def tickets(n: int, cohort: int = 0) -> list[TicketRow]:
    return [TicketRow(f"{cohort}-{i}", cohort, i, bytes([cohort, i]), b"enrolment") for i in range(n)]


class Answering:
    """Verdicts, and what each helper says of each ticket."""

    def __init__(self, *rows: TicketRow, policy: Policy = POLICY) -> None:
        self.rows = rows
        self.form = PageForm.under(policy)
        self.verdicts = Verdicts(cohorts_of(rows), policy)
        rng = np.random.default_rng(1)
        self.words = {
            (helper, row.cohort, row.position): rng.integers(0, MODULUS, self.form.n_answer, np.uint64)
            for helper in HELPERS
            for row in rows
        }

    def answer(self, helper: str, *positions: int, cohort: int = 0, refused: tuple[int, ...] = ()) -> None:
        """Have a helper answer for a page with these positions."""
        rows = [row for row in self.rows if row.cohort == cohort and row.position in positions]
        (page,) = pages_of(rows, self.form)
        faults = [RefusedTicket(position=position, fault=TicketFault.NOT_OPENED) for position in refused]
        words = [self.words[helper, cohort, position] for position in page.positions if position not in refused]
        proofs = b"".join(write_words(each) for each in words)
        fields = {"helper": helper, "cohort": cohort, "first": page.first, "digest": page.digest}
        self.verdicts.take_page(page, CheckAnswer(**ABOUT, **fields, refused=faults, proofs=proofs))

    def due(self) -> list[int]:
        check = self.verdicts.take_due()
        if check is None:
            return []
        for row, total in zip(check.rows, check.answers, strict=True):
            expected = [self.words[helper, row.cohort, row.position] for helper in HELPERS]
            np.testing.assert_array_equal(total, add_up(expected, self.form.n_answer))
        self.verdicts.decide(check, ())
        return [row.position for row in check.rows]


def test_who_leaves_is_not_counted_among_those_that_were_checked():
    """Two of four failing proofs are half, and two of the three that are left are more."""
    said = Answering(*tickets(4))
    for helper in HELPERS:
        said.answer(helper, 0, 1, 2, 3)
    check = said.verdicts.take_due()
    assert check is not None
    said.verdicts.decide(check, {0, 1})
    assert said.verdicts.disagreement() is None
    said.verdicts.leave_out(0, 3)
    words = said.verdicts.disagreement()
    assert words.startswith("2 of 3 norm proofs")


def test_of_long_vectors_fewer_are_due_at_a_time():
    """Of a million numbers each vector has 8 MB, and 32 MB are read at once."""
    policy = SecureFederation(3, dim=10**6, proofs=True, n_max=100, epsilon=1e6).policy.policy
    said = Answering(*tickets(5), policy=policy)
    for helper in HELPERS:
        said.answer(helper, 0, 1, 2, 3, 4)
    assert (said.due(), said.due()) == ([0, 1, 2, 3], [4])


def test_some_are_due_at_a_time():
    """As many as fit one page; no others while they are checked."""
    n = tickets_of_page(POLICY) + 3
    rows = [TicketRow(f"{i}", 0, i, i.to_bytes(2, "big"), b"enrolment") for i in range(n)]
    said = Answering(*rows)
    for helper in HELPERS:
        for page in pages_of(rows, PageForm.under(POLICY)):
            said.answer(helper, *page.positions)
    check = said.verdicts.take_due()
    assert (len(check.rows), said.verdicts.take_due(), said.verdicts.is_waiting) == (n - 3, None, True)
    said.verdicts.decide(check, ())
    assert said.due() == [n - 3, n - 2, n - 1]
    assert not said.verdicts.is_waiting


def test_a_policy_without_proofs_asks_for_no_verdict():
    """And says of none that it failed."""
    policy = SecureFederation().policy.policy
    rows = tickets(3)
    verdicts = Verdicts(cohorts_of(rows), policy)
    (page,) = pages_of(rows, PageForm.under(policy))
    for helper in policy.helpers:
        fields = {"helper": helper.name, "cohort": 0, "first": 0, "digest": page.digest}
        verdicts.take_page(page, CheckAnswer(**ABOUT, **fields, refused=[]))
    assert (verdicts.take_due(), verdicts.n_failed(0), verdicts.disagreement()) == (None, None, None)
