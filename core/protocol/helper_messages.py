"""The messages between federator and helpers: *check* these tickets, then *open* the sum of this set.

Before a helper opens a sum, all helpers have committed to its set: each signs that it opens only this set of the round
and cohort. A helper whose store was restored from a copy may have forgotten what it signed; the others sign no second
set.

Every request may be repeated, and the same question has the same answer. Each is about one round and cohort under one
policy. Tickets of a cohort have positions, in the order in which the federator shows them.
"""

from collections.abc import Collection
from enum import StrEnum
from typing import Annotated, ClassVar, Final

import numpy as np
from pydantic import Field, model_validator

from foltr.core.protocol.fields import CHUNK_BYTES, Count, Detail, InFederation, Message, Name, Sha256
from foltr.core.protocol.policies import MAX_SECURE_DIM, N_MAX_HELPERS, Policy
from foltr.core.protocol.tickets import MAX_TICKET_BYTES

PAGE_TICKETS: Final = 256
"""How many tickets one request shows at most; fewer if they, or the answer, would not fit one message."""
MAX_PROOF_ANSWERS_BYTES: Final = 200_000
"""How many bytes of a helper's answers about norm proofs fit one answer with room to spare."""
PART_WORDS: Final = CHUNK_BYTES // 8
"""How many numbers one answer has at most; longer sums come in parts."""
MAX_COHORT: Final = 1_000_000
MAX_COMMITMENT_BYTES: Final = 512


class TicketFault(StrEnum):
    """Why a ticket is refused: its client is then in no sum of the round."""

    MALFORMED = "malformed"
    NOT_ENROLLED = "not_enrolled"
    REVOKED = "revoked"
    BAD_SIGNATURE = "bad_signature"
    MISPLACED = "misplaced"  # another round, cohort or policy, or a participation above the policy's
    PARTICIPATIONS_SPENT = "participations_spent"  # the client has taken part as often as the policy allows
    DUPLICATE_CLIENT = "duplicate_client"
    NOT_OPENED = "not_opened"  # the seal is not to this helper, or not for this ticket
    NORM_PROOF_FAILED = "norm_proof_failed"  # found by all helpers and the federator together


class HelperRefusalCode(StrEnum):
    """Why a helper does not answer."""

    UNKNOWN_POLICY = "unknown_policy"
    KEY_DESTROYED = "key_destroyed"  # of the round's epoch, or of the whole policy
    EPOCH_AHEAD = "epoch_ahead"  # the round's epoch has not begun by the helper's clock, nor the one before
    ROUND_OVER = "round_over"  # it has committed to a set of a later round, or has opened the tickets' cohort
    ANSWERED_OTHERWISE = "answered_otherwise"  # it has committed to another set, for good
    NOT_COMMITTED = "not_committed"  # another helper has not committed to this set
    STORE_RESTORED = "store_restored"  # it has signed something that its store lacks, for good
    TOO_FEW = "too_few"
    TOO_MANY = "too_many"
    VERIFY_KEY_SEALED = "verify_key_sealed"  # the policy's is not sealed to the key of this helper
    UNKNOWN_SET = "unknown_set"  # it has not checked these tickets, or not all: show them again


class HelperMessage(InFederation):
    """Common fields of all requests and answers."""

    helper: Name
    policy_hash: Sha256
    round: Count
    cohort: Count


class HelperRequest(HelperMessage):
    """Common fields of all requests.

    Attributes:
        epoch: of the policy, in which the round was opened; seeds are sealed to its keys.
    """

    epoch: Count = 0


class CheckRequest(HelperRequest):
    """Federator to a helper: check these tickets, at the positions from ``first`` on.

    Attributes:
        enrolments: of the client of each ticket, in the operator's signed bytes.
    """

    kind_name: ClassVar[str] = "check_request"
    longest_list: ClassVar[int] = PAGE_TICKETS
    first: Annotated[int, Field(ge=0, lt=MAX_COHORT)]
    tickets: Annotated[
        list[Annotated[bytes, Field(max_length=MAX_TICKET_BYTES)]], Field(min_length=1, max_length=PAGE_TICKETS)
    ]
    enrolments: Annotated[list[Annotated[bytes, Field(max_length=1024)]], Field(max_length=PAGE_TICKETS)]

    @model_validator(mode="after")
    def _each_ticket_has_an_enrolment(self) -> "CheckRequest":
        if len(self.enrolments) != len(self.tickets):
            raise ValueError(f"{len(self.enrolments)} enrolments for {len(self.tickets)} tickets")
        if self.first + len(self.tickets) > MAX_COHORT:
            raise ValueError(f"positions above {MAX_COHORT}")
        return self


class RefusedTicket(Message):
    """A ticket that a helper refuses."""

    position: Annotated[int, Field(ge=0, lt=MAX_COHORT)]
    fault: Annotated[TicketFault, Field(strict=False)]

    @model_validator(mode="after")
    def _helper_finds_it_alone(self) -> "RefusedTicket":
        if self.fault is TicketFault.NORM_PROOF_FAILED:
            raise ValueError("one helper alone cannot tell that a norm proof fails")
        return self


class CheckAnswer(HelperMessage):
    """Helper to federator: of the page that begins at ``first`` it refuses these tickets; it can open the others.

    Attributes:
        digest: of the page's tickets (`foltr.core.protocol.signed_tickets.set_digest`).
        proofs: under a policy with norm proofs, its share of the verdict on each of the others in order of position,
            `words_of_answer` little-endian words of 64 bits, each below p (`foltr.core.secure.message_proof`); else
            empty.
    """

    kind_name: ClassVar[str] = "check_answer"
    longest_list: ClassVar[int] = PAGE_TICKETS
    first: Annotated[int, Field(ge=0, lt=MAX_COHORT)]
    digest: Sha256
    refused: Annotated[list[RefusedTicket], Field(max_length=PAGE_TICKETS)]
    proofs: Annotated[bytes, Field(max_length=MAX_PROOF_ANSWERS_BYTES)] = b""


def words_of_answer(policy: Policy) -> int:
    """How many numbers a helper's share of the verdict on a message's proofs has; 0 if the policy asks for none."""
    shape = policy.message_shape
    return 0 if shape is None else shape.n_answer


def tickets_of_page(policy: Policy) -> int:
    """How many tickets one request shows at most under a policy."""
    n_words = words_of_answer(policy)
    return min(PAGE_TICKETS, MAX_PROOF_ANSWERS_BYTES // (8 * n_words)) if n_words else PAGE_TICKETS


class OpenRequest(HelperRequest):
    """Federator to a helper: commit to the set of these tickets; with the others' commitments: open its sum.

    Attributes:
        n_tickets: how many positions the cohort has.
        kept: (n_tickets,) bits, the first one the highest of its byte: those in the set.
        digest: of the set's tickets in order of position.
        commitments: of all other helpers to this set, in their signed bytes; empty: asks the helper to commit itself.
    """

    kind_name: ClassVar[str] = "open_request"
    n_tickets: Annotated[int, Field(ge=1, le=MAX_COHORT)]
    kept: Annotated[bytes, Field(max_length=MAX_COHORT // 8)]
    digest: Sha256
    commitments: Annotated[
        list[Annotated[bytes, Field(max_length=MAX_COMMITMENT_BYTES)]],
        Field(max_length=N_MAX_HELPERS, default_factory=list),
    ]

    @model_validator(mode="after")
    def _each_position_has_a_bit(self) -> "OpenRequest":
        if len(self.kept) != -(-self.n_tickets // 8):
            raise ValueError(f"{len(self.kept)} bytes of bits for {self.n_tickets} tickets")
        return self

    @property
    def positions(self) -> list[int]:
        """The positions of the set's tickets, in order."""
        bits = np.unpackbits(np.frombuffer(self.kept, np.uint8), count=self.n_tickets)
        return [int(position) for position in np.flatnonzero(bits)]


def position_bits(positions: Collection[int], n_tickets: int) -> bytes:
    """Return the bits of an `OpenRequest` for a set of these positions."""
    bits = np.zeros(n_tickets, np.uint8)
    bits[list(positions)] = 1
    return np.packbits(bits).tobytes()


def has_position(kept: bytes, position: int) -> bool:
    """Whether the bits of an `OpenRequest` have this position in the set."""
    return bool(kept[position // 8] >> (7 - position % 8) & 1)


class SetCommitment(HelperMessage):
    """Helper to all helpers, through the federator: for this round and cohort it opens only this set, ever.

    Attributes:
        digest: of the set, as in the request.
    """

    kind_name: ClassVar[str] = "set_commitment"
    digest: Sha256


class OpenAnswer(HelperMessage):
    """Helper to federator: the sum of the set's masks less its noise, the numbers from ``start`` on.

    Attributes:
        digest: of the set, as in the request.
        dim: how many numbers all parts have together (`Policy.n_summed`).
        values: little-endian words of 64 bits, each below p.
    """

    kind_name: ClassVar[str] = "open_answer"
    digest: Sha256
    dim: Annotated[int, Field(ge=1, le=MAX_SECURE_DIM)]
    start: Annotated[int, Field(ge=0, lt=MAX_SECURE_DIM)]
    values: Annotated[bytes, Field(min_length=8, max_length=8 * PART_WORDS)]


class HelperRefusal(HelperMessage):
    """Helper to federator: no answer, and why.

    Attributes:
        digest: of the requested set or the page's tickets, so that nobody takes it for the answer to something else.
    """

    kind_name: ClassVar[str] = "helper_refusal"
    digest: Sha256
    code: Annotated[HelperRefusalCode, Field(strict=False)]
    detail: Detail = ""


class HelperStatus(InFederation):
    """Helper to federator, retained; ``online=False`` is also the helper's last will.

    Its sequence rises with each connection (`foltr.core.protocol.signing.SessionSequence`).
    """

    kind_name: ClassVar[str] = "helper_status"
    helper: Name
    online: bool
