"""The state machine of one helper and one cohort: first the tickets, then the one question.

Theory of operation. A helper is shown the tickets of a cohort, page by page (``checking``). For each page it says which
tickets it refuses, and, if they have norm proofs, its share of the verdict on the others. Once it has answered for all
pages (``checked``) it waits for the other helpers: the set is every ticket that no helper refused. When that is stored
the helper is asked for it (``opening``), in a question that never changes; the whole answer ends it (``opened``). A
helper that does not know the set, e.g. because it lost the pages, is shown them again (``showing_again``) and asked
again.

A client that leaves while tickets are checked changes no position: it is left out of the set. Repeated, late or
unrelated answers change nothing. Nothing here reads a clock, awaits or stores; `foltr.federator.summing.machine` holds
all sessions of a round. An event that a stage does not allow raises ProtocolViolationError and changes nothing.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum

from foltr.core.errors import MessageError, ProtocolViolationError
from foltr.core.protocol.codec import Envelope, open_envelope
from foltr.core.protocol.helper_messages import CheckAnswer, HelperRefusal, OpenAnswer, SetCommitment, TicketFault
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.signed_policies import SignedPolicy
from foltr.core.protocol.topics import Topics
from foltr.core.secure.field import read_words
from foltr.federator.summing.cohorts import CohortTickets, Page, PageForm, pages_of

HelperAnswer = CheckAnswer | SetCommitment | OpenAnswer | HelperRefusal


class Stage(StrEnum):
    CHECKING = "checking"
    CHECKED = "checked"
    OPENING = "opening"
    SHOWING_AGAIN = "showing_again"
    OPENED = "opened"


class SessionEvent(StrEnum):
    PAGES_ANSWERED = "pages_answered"
    SET_FIXED = "set_fixed"
    SET_UNKNOWN = "set_unknown"
    ANSWER_WHOLE = "answer_whole"


TRANSITIONS: dict[tuple[Stage, SessionEvent], Stage] = {
    (Stage.CHECKING, SessionEvent.PAGES_ANSWERED): Stage.CHECKED,
    (Stage.CHECKED, SessionEvent.SET_FIXED): Stage.OPENING,
    (Stage.OPENING, SessionEvent.SET_UNKNOWN): Stage.SHOWING_AGAIN,
    (Stage.OPENING, SessionEvent.ANSWER_WHOLE): Stage.OPENED,
    (Stage.SHOWING_AGAIN, SessionEvent.PAGES_ANSWERED): Stage.OPENING,
    # To the earlier question: it was under way while the helper restarted.
    (Stage.SHOWING_AGAIN, SessionEvent.ANSWER_WHOLE): Stage.OPENED,
}


@dataclass(frozen=True)
class Part:
    """A part of an answer in the bytes that the helper signed; it holds ``n_words`` numbers."""

    n_words: int
    signed: bytes


@dataclass
class HelperSession:
    """One helper's session about one cohort.

    Attributes:
        waiting: the pages without an answer, by their first position.
        faults: the tickets that it refuses, by position.
        parts: of its answer, by each one's first number.
        n_shown: how often it was shown all pages.
    """

    helper: str
    cohort: CohortTickets
    dim: int
    form: PageForm = field(default_factory=PageForm)
    stage: Stage = Stage.CHECKING
    waiting: dict[int, Page] = field(default_factory=dict)
    faults: dict[int, TicketFault] = field(default_factory=dict)
    parts: dict[int, Part] = field(default_factory=dict)
    n_shown: int = 0
    set_digest: bytes | None = None

    def __post_init__(self) -> None:
        if self.stage is Stage.CHECKING:
            self._show()

    def page_of(self, answer: CheckAnswer) -> Page | None:
        """Return the page that this answers; None if it answers no waiting page."""
        page = self.waiting.get(answer.first)
        return None if page is None or page.digest != answer.digest else page

    def take_page(self, answer: CheckAnswer) -> Page | None:
        """Take the answer to a page, and return the page; None if it answers no waiting page, or is incomplete.

        An incomplete answer is ignored: the helper is asked again.
        """
        page = self.page_of(answer)
        if page is None or not self._fits(page, answer):
            return None
        del self.waiting[answer.first]
        self.faults |= {refused.position: refused.fault for refused in answer.refused}
        if not self.waiting:
            self._move(SessionEvent.PAGES_ANSWERED)
        return page

    def _fits(self, page: Page, answer: CheckAnswer) -> bool:
        """Whether an answer covers only tickets of the page, and is complete for each good one."""
        refused = {each.position for each in answer.refused}
        if not refused <= set(page.positions):
            return False
        try:
            read_words(answer.proofs, self.form.n_answer * (len(page.rows) - len(refused)))
        except MessageError:
            return False
        return True

    def leave(self, position: int) -> None:
        """Stop showing the ticket at a position."""
        for page in [page for page in self.waiting.values() if position in page.positions]:
            del self.waiting[page.first]
            rest = [row for row in page.rows if row.position != position]
            self.waiting |= {part.first: part for part in pages_of(rest, self.form)}
        if not self.waiting and self.stage is Stage.CHECKING:
            self._move(SessionEvent.PAGES_ANSWERED)

    def ask(self, set_digest: bytes) -> None:
        """Ask for this set; the question never changes from here on."""
        self._move(SessionEvent.SET_FIXED)
        self.set_digest = set_digest

    def forget_set(self) -> None:
        """Begin to show all pages again: the helper does not know the set."""
        self._move(SessionEvent.SET_UNKNOWN)
        self._show()

    def take_part(self, answer: OpenAnswer, signed: bytes) -> bool:
        """Take a part of the answer; False if it does not fit, or came before."""
        n_words, rest = divmod(len(answer.values), 8)
        is_asked = self.stage in (Stage.OPENING, Stage.SHOWING_AGAIN) and answer.digest == self.set_digest
        fits = not rest and answer.dim == self.dim and answer.start + n_words <= self.dim
        if not (is_asked and fits) or answer.start in self.parts:
            return False
        self.parts[answer.start] = Part(n_words, signed)
        if self._is_whole():
            self._move(SessionEvent.ANSWER_WHOLE)
        return True

    def _is_whole(self) -> bool:
        end = 0
        for start in sorted(self.parts):
            if start != end:
                return False
            end = start + self.parts[start].n_words
        return end == self.dim

    def _show(self) -> None:
        self.waiting = {page.first: page for page in self.cohort.pages(self.form)}
        self.n_shown += 1

    def _move(self, event: SessionEvent) -> None:
        following = TRANSITIONS.get((self.stage, event))
        if following is None:
            raise ProtocolViolationError(f"{self.helper} is {self.stage}: {event} is not allowed")
        self.stage = following


class Commitments:
    """The signed commitments of a round's helpers, by cohort."""

    def __init__(self, helpers: Collection[str]) -> None:
        self._helpers = list(helpers)
        self._signed: dict[int, dict[str, bytes]] = {}

    def add(self, cohort: int, helper: str, signed: bytes) -> bool:
        """Take a helper's commitment to the set of a cohort; return whether all have committed now."""
        of_cohort = self._signed.setdefault(cohort, {})
        if helper in of_cohort:
            return False
        of_cohort[helper] = signed
        return self.are_whole(cohort)

    def is_missing(self, cohort: int, helper: str) -> bool:
        return helper not in self._signed.get(cohort, {})

    def are_whole(self, cohort: int) -> bool:
        """Whether all helpers have committed to the set of a cohort."""
        return len(self._signed.get(cohort, {})) == len(self._helpers)

    def beside(self, cohort: int, helper: str) -> list[bytes]:
        """Return the commitments of all other helpers to send to one; empty before all are here."""
        if not self.are_whole(cohort):
            return []
        return [self._signed[cohort][name] for name in self._helpers if name != helper]


def read_answer(payload: bytes, policy: SignedPolicy) -> HelperAnswer:
    """Read an answer to a question under a policy.

    Raises:
        MessageError: it is not an answer, or not signed by the helper that it names.
    """
    envelope = open_envelope(payload)
    answer = _read(envelope)
    rules = policy.policy
    helper = rules.helper(answer.helper)
    if helper is None or (answer.federation, answer.policy_hash) != (rules.federation, policy.hash):
        raise MessageError(
            ReceiptCode.MISPLACED, "an answer under another policy, or of a helper that it does not name"
        )
    if not envelope.is_signed_by(helper.signing_key, Topics(rules.federation).helper_answers(helper.name)):
        raise MessageError(ReceiptCode.BAD_SIGNATURE, f"an answer that {helper.name} has not signed")
    return answer


def _read(envelope: Envelope) -> HelperAnswer:
    if envelope.kind == CheckAnswer.kind_name:
        return envelope.read(CheckAnswer)
    if envelope.kind == HelperRefusal.kind_name:
        return envelope.read(HelperRefusal)
    if envelope.kind == SetCommitment.kind_name:
        return envelope.read(SetCommitment)
    return envelope.read(OpenAnswer)
