"""The tickets of a cohort, in the pages in which helpers are shown them, and the set that is left in the end."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from foltr.core.protocol.helper_messages import PAGE_TICKETS, kept_bits, tickets_of_page, words_of_answer
from foltr.core.protocol.policies import Policy
from foltr.core.protocol.signed_tickets import set_digest, ticket_hash
from foltr.storage.sum_records import NewSet, TicketRow

PAGE_BYTES = 200_000
"""So many bytes of tickets and enrolments fit one message with room to spare."""


@dataclass(frozen=True)
class PageForm:
    """How many tickets a page has at most, and how many numbers its answer has of each that is not taken out."""

    n_tickets: int = PAGE_TICKETS
    n_answer: int = 0

    @classmethod
    def under(cls, policy: Policy) -> "PageForm":
        return cls(tickets_of_page(policy), words_of_answer(policy))


@dataclass(frozen=True)
class Page:
    """Tickets at positions that follow one another, as one request shows them."""

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
    """The tickets of one cohort by position. A position of a client that left before is nobody's."""

    number: int
    rows: tuple[TicketRow, ...]

    @property
    def n_tickets(self) -> int:
        """How many positions there are."""
        return self.rows[-1].position + 1

    def pages(self, form: PageForm) -> list[Page]:
        return list(pages_of(self.rows, form))

    def set_of(self, out: Collection[int], n_norm_proofs_failed: int | None) -> NewSet | None:
        """Return the set of all but those at these positions; None where nobody is left."""
        kept = [row for row in self.rows if row.position not in out]
        if not kept:
            return None
        positions = [row.position for row in kept]
        digest = set_digest(ticket_hash(row.ticket) for row in kept)
        bits = kept_bits(positions, self.n_tickets)
        return NewSet(self.number, self.n_tickets, len(kept), bits, digest, n_norm_proofs_failed)


def cohorts_of(rows: Iterable[TicketRow]) -> dict[int, CohortTickets]:
    """Sort a round's tickets into cohorts."""
    ordered = sorted(rows, key=lambda row: (row.cohort, row.position))
    return {
        number: CohortTickets(number, tuple(of_cohort))
        for number, of_cohort in groupby(ordered, lambda row: row.cohort)
    }


def pages_of(rows: Sequence[TicketRow], form: PageForm) -> Iterator[Page]:
    """Cut tickets into pages: each with positions that follow one another, and small enough for a message."""
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
