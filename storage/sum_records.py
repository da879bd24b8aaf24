"""The plain values of secure sums that go into and come out of the database."""

from dataclasses import dataclass
from datetime import datetime

from foltr.core.aggregation.fates import Fate
from foltr.core.protocol.states import AbandonReason


@dataclass(frozen=True, slots=True)
class PolicyRecord:
    """An adopted policy; ``signed`` are the bytes that the operator signed, ``hash`` identifies it."""

    hash: bytes
    version: int
    signed: bytes
    adopted_at: datetime


@dataclass(frozen=True, slots=True)
class TicketRow:
    """A ticket of the open round, with the enrolment of its client as the operator signed it."""

    client_id: str
    cohort: int
    position: int
    ticket: bytes
    enrolment: bytes


@dataclass(frozen=True, slots=True)
class NewSet:
    """The clients of a cohort whose sum should be opened, about to be stored.

    Attributes:
        n_tickets: how many were shown.
        n_clients: how many of them are in the set.
        kept: (n_tickets,) bits, as in `foltr.core.protocol.helper_messages.OpenRequest`.
        digest: `foltr.core.protocol.signed_tickets.set_digest` of those in the set.
        n_norm_proofs_failed: how many were excluded because their norm proofs fail; None without proofs.
    """

    cohort: int
    n_tickets: int
    n_clients: int
    kept: bytes
    digest: bytes
    n_norm_proofs_failed: int | None = None


@dataclass(frozen=True, slots=True)
class NewAnswer:
    """A part of a helper's signed answer for the set with this digest; ``start`` is its first number's index."""

    cohort: int
    helper: str
    start: int
    digest: bytes
    answer: bytes


@dataclass(frozen=True, slots=True)
class RoundSumRow:
    """The stored set of a cohort, and its sum once all helpers have answered."""

    federation: str
    round: int
    cohort: int
    n_tickets: int
    n_clients: int
    kept: bytes
    set_digest: bytes
    masked_sum: bytes | None
    fate: Fate | None
    share: float | None
    n_norm_proofs_failed: int | None


@dataclass(frozen=True, slots=True)
class FailedRounds:
    """Rounds since the last one with a model that each cost devices a participation for nothing.

    Attributes:
        n_rounds: how many, or enough of them for the longest pause.
        number, reason, closed_at: of the newest.
    """

    n_rounds: int
    number: int
    reason: AbandonReason
    closed_at: datetime


@dataclass(frozen=True, slots=True)
class HelperAnswerRow:
    """A stored part of a helper's answer."""

    federation: str
    round: int
    cohort: int
    helper: str
    start: int
    set_digest: bytes
    answer: bytes
