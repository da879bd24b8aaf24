"""The verdicts on the norm proofs of a round, by ticket: helpers' answers, and which proofs fail.

Theory of operation. A helper's answer for a ticket is linear in its share of the proof, so answers are added up as they
come, in any order and paging, and only each ticket's sum is held. Once all helpers have answered for a ticket, and none
has refused it, its proof is due: the shell adds the federator's own answer and says which fail. A client that leaves
meanwhile has no verdict. All answers depend only on stored data and the policy's verify key: a restarted federator
finds the same.

One failing proof does not show who lies: its device, or a verifier. If more than half of a cohort's proofs fail, the
verifiers are suspected, and no device is blamed. A cohort that is too small for a sum is just dropped, even if its
proofs fail: a device nearly alone in it must not end the round. Nothing here reads a clock, awaits or computes a proof.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import islice

from foltr.core.protocol.helper_messages import CheckAnswer
from foltr.core.protocol.policies import Policy
from foltr.core.secure.coins import Words
from foltr.core.secure.field import add, read_words
from foltr.core.secure.norm_proof import is_disagreement
from foltr.federator.store import updates_at_once
from foltr.federator.summing.cohorts import CohortTickets, Page, PageForm
from foltr.storage.sum_records import TicketRow


@dataclass(frozen=True)
class CheckProofs:
    """Proofs that all helpers have answered for, to be checked by the shell.

    Attributes:
        answers: (n_answer,) for each of the tickets, the sum of the helpers' answers.
    """

    cohort: int
    rows: tuple[TicketRow, ...]
    answers: tuple[Words, ...]


@dataclass
class _OfCohort:
    """What is known of a cohort's proofs, by position.

    Attributes:
        totals: how many helpers have answered, and the sum of their answers, until all have.
        due: the sums of all helpers' answers, until the proofs are checked.
        out: of clients that have left, or that a helper refused.
        kept, failed: of checked proofs: those that hold, and those that fail.
    """

    rows: Mapping[int, TicketRow]
    totals: dict[int, tuple[int, Words]] = field(default_factory=dict)
    due: dict[int, Words] = field(default_factory=dict)
    out: set[int] = field(default_factory=set)
    kept: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)

    @property
    def n_checked(self) -> int:
        return len(self.failed) + len(self.kept)

    @property
    def most_fail(self) -> bool:
        return is_disagreement(len(self.failed), self.n_checked)


class Verdicts:
    """The norm proofs of one round; if its policy asks for none, nothing is ever due.

    Args:
        cohorts: the tickets, by cohort.
        policy: the round's.
    """

    def __init__(self, cohorts: Mapping[int, CohortTickets], policy: Policy) -> None:
        self._helpers = [keys.name for keys in policy.helpers]
        self._n_min = policy.n_min
        form = PageForm.under(policy)
        self._n_answer = form.n_answer
        # The federator reads their vectors, which are longer than helpers' answers about them.
        self._at_once = min(form.n_tickets, updates_at_once(8 * policy.n_summed))
        self._cohorts = {
            number: _OfCohort({row.position: row for row in cohort.rows}) for number, cohort in cohorts.items()
        }
        self._under_way: CheckProofs | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether the shell is checking proofs."""
        return self._under_way is not None

    def take_page(self, page: Page, answer: CheckAnswer) -> None:
        """Take a helper's answer for a page, which fits it (`foltr.federator.summing.helper_session`)."""
        of_cohort = self._cohorts[answer.cohort]
        refused = {each.position for each in answer.refused}
        for position in refused:
            self.leave_out(answer.cohort, position)
        if not self._n_answer:
            return
        good = [position for position in page.positions if position not in refused]
        answers = read_words(answer.proofs, len(good) * self._n_answer).reshape(-1, self._n_answer)
        for position, said in zip(good, answers, strict=True):
            if position not in of_cohort.out:
                self._add(of_cohort, position, said)

    def _add(self, of_cohort: _OfCohort, position: int, said: Words) -> None:
        n_before, before = of_cohort.totals.pop(position, (0, None))
        total = said if before is None else add(before, said)
        if n_before + 1 == len(self._helpers):
            of_cohort.due[position] = total
        else:
            of_cohort.totals[position] = n_before + 1, total

    def leave_out(self, number: int, position: int) -> None:
        """Forget the proof of a client that has left, or that a helper has refused."""
        of_cohort = self._cohorts[number]
        of_cohort.out.add(position)
        of_cohort.totals.pop(position, None)
        of_cohort.due.pop(position, None)
        of_cohort.kept.discard(position)
        of_cohort.failed.discard(position)

    def take_due(self) -> CheckProofs | None:
        """Return due proofs, and count them as under way; None while others are, or none is due."""
        if self._under_way is not None:
            return None
        for number, of_cohort in self._cohorts.items():
            if due := list(islice(of_cohort.due, self._at_once)):
                rows = tuple(of_cohort.rows[position] for position in due)
                answers = tuple(of_cohort.due.pop(position) for position in due)
                self._under_way = CheckProofs(number, rows, answers)
                return self._under_way
        return None

    def decide(self, check: CheckProofs, failed: Collection[int]) -> None:
        """Continue: of these proofs those at the positions ``failed`` fail, and all others hold."""
        self._under_way = None
        of_cohort = self._cohorts[check.cohort]
        for row in check.rows:
            if row.position not in of_cohort.out:
                (of_cohort.failed if row.position in failed else of_cohort.kept).add(row.position)

    def failed(self, number: int) -> frozenset[int]:
        """Return the positions of a cohort whose proofs fail."""
        return frozenset(self._cohorts[number].failed)

    def reported_failures(self, number: int) -> frozenset[int]:
        """Return the positions that are reported as failed: empty if most of the cohort's proofs fail."""
        return frozenset() if self._cohorts[number].most_fail else self.failed(number)

    def n_failed(self, number: int) -> int | None:
        """The number of a cohort's failing proofs; None if the policy asks for none."""
        return len(self._cohorts[number].failed) if self._n_answer else None

    def disagreement(self) -> str | None:
        """Describe a cohort, large enough for a sum, of which more than half of the proofs fail; None without one."""
        for number, of_cohort in self._cohorts.items():
            if of_cohort.most_fail and of_cohort.n_checked >= self._n_min:
                n_failed = len(of_cohort.failed)
                who = " or ".join(self._helpers)
                return f"{n_failed} of {of_cohort.n_checked} norm proofs of cohort {number} fail: {who} may lie"
        return None
