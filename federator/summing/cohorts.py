"""The tickets of a cohort, in the pages shown to helpers, and the final set."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from foltr.core.protocol.helper_messages import PAGE_TICKETS, position_bits, tickets_of_page, words_of_answer
from foltr.core.protocol.policies import Policy
from foltr.core.protocol.signed_tickets import set_digest, ticket_hash
from foltr.storage.sum_records import NewSet, TicketRow

PAGE_BYTES = 200_000
"""How many bytes of tickets and enrolments fit one message with room to spare."""


@dataclass(frozen=True)
class PageForm:
    """A page's most tickets, and how many numbers its answer has for each ticket that is not refused."""

    n_tickets: int = PAGE_TICKETS
    n_answer: int = 0

    @classmethod
    def under(cls, policy: Policy) -> "PageForm":
        return cls(tickets_of_page(policy), words_of_answer(policy))


@dataclass(frozen=True)
class Page:
    """Consecutive tickets that one request shows."""

    rows: tuple[TicketRow, ...]
    digest: bytes

    @property
    def first(self) -> int:
        return self.rows[0].position

    @property
    def positions(self) -> range:
        return range(self.first, self.first + len(self.rows))


@dataclass(frozen=True)
class CohortTickets:
    """The tickets of one cohort by position. Positions of clients that left are empty."""

    number: int
    rows: tuple[TicketRow, ...]

    @property
    def n_tickets(self) -> int:
        """How many positions there are."""
        return self.rows[-1].position + 1

    def pages(self, form: PageForm) -> list[Page]:
        return list(pages_of(self.rows, form))

    def set_of(self, out: Collection[int], n_norm_proofs_failed: int | None) -> NewSet | None:
        """Return the set of all except those at these positions; None if it is empty."""
        kept = [row for row in self.rows if row.position not in out]
        if not kept:
            return None
        positions = [row.position for row in kept]
        digest = set_digest(ticket_hash(row.ticket) for row in kept)
        bits = position_bits(positions, self.n_tickets)
        return NewSet(self.number, self.n_tickets, len(kept), bits, digest, n_norm_proofs_failed)


def cohorts_of(rows: Iterable[TicketRow]) -> dict[int, CohortTickets]:
    """Sort a round's tickets into cohorts."""
    ordered = sorted(rows, key=lambda row: (row.cohort, row.position))
    return {
        number: CohortTickets(number, tuple(of_cohort))
        for number, of_cohort in groupby(ordered, lambda row: row.cohort)
    }


def pages_of(rows: Sequence[TicketRow], form: PageForm) -> Iterator[Page]:
    """Cut tickets into pages of consecutive positions, each small enough for a message."""
    page: list[TicketRow] = []
    n_bytes = 0
    for row in rows:
        size = len(row.ticket) + len(row.enrolment)
        follows = bool(page) and row.position == page[-1].position + 1
        if page and (not follows or len(page) == form.n_tickets or n_bytes + size > PAGE_BYTES):
            yield _page(page)
            page, n_bytes = [], 0
        page.append(row)
        n_bytes += size
    if page:
        yield _page(page)


def _page(rows: Sequence[TicketRow]) -> Page:
    return Page(tuple(rows), set_digest(ticket_hash(row.ticket) for row in rows))
