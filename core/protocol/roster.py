"""The operator's announcements to all, retained at the broker.

Which enrolments are void, the federator's key, and the authorities that vouch for the broker.
"""

from typing import Annotated, ClassVar

from pydantic import Field, StringConstraints

from foltr.core.protocol.fields import Count, InFederation, KeySequence, Message, Name, PublicKey, Salt, Tombstone

N_MAX_AUTHORITIES = 4
MAX_SUCCESSIONS = 64
MAX_KEPT_DOCUMENTS = 16
# A list of this length fits a message.
MAX_KEPT_ENROLMENTS = 14_000
_KeptDigest = Annotated[bytes, Field(min_length=16, max_length=16)]
Pem = Annotated[str, StringConstraints(min_length=1, max_length=8192, pattern=r"^[\x20-\x7e\n]*$")]


class Revocation(Message):
    """Every enrolment of ``client_id`` with a serial below ``void_below`` is void."""

    client_id: Name
    void_below: Annotated[int, Field(ge=2, le=2**31 - 1)]


class Roster(InFederation):
    """Operator to federator and all, retained: a snapshot of the log of orders. A higher version replaces a lower.

    Attributes:
        through: the newest order that is in it.
        salt: of the tombstones; a reader of the roster can test whether a guessed name was forgotten.
        forgotten: the tombstones of clients that were forgotten by order; their names cannot be reused.
    """

    kind_name: ClassVar[str] = "roster"
    # Read only once the operator's signature is checked.
    longest_list: ClassVar[int] = 1_000_000
    version: Annotated[int, Field(ge=1, le=2**31 - 1)]
    through: Count
    revoked: list[Revocation]
    salt: Salt
    forgotten: list[Tombstone]


class FederatorKey(InFederation):
    """Operator to devices, retained: from now on ``new_key`` is the federator's. A higher sequence replaces a lower."""

    kind_name: ClassVar[str] = "federator_key"
    sequence: KeySequence
    old_key: PublicKey
    new_key: PublicKey


class Authorities(InFederation):
    """Operator to all, retained: the authorities to trust, as PEM text. A higher version replaces a lower."""

    kind_name: ClassVar[str] = "authorities"
    longest_list: ClassVar[int] = N_MAX_AUTHORITIES
    version: Annotated[int, Field(ge=1, le=2**31 - 1)]
    certificates: Annotated[list[Pem], Field(min_length=1, max_length=N_MAX_AUTHORITIES)]


class SuccessionLink(InFederation):
    """The operator's old key states that ``new_key`` replaces it; in a `Succession`, never alone."""

    kind_name: ClassVar[str] = "succession_link"
    sequence: KeySequence
    old_key: PublicKey
    new_key: PublicKey


class Succession(InFederation):
    """Operator to all, retained: the enrolment key has a successor. Signed with the newest key.

    Attributes:
        links: a signed `SuccessionLink` from each key to the next, from the first on.
        documents: digests of documents of former keys that still count, e.g. the newest policy.
    """

    kind_name: ClassVar[str] = "succession"
    longest_list: ClassVar[int] = MAX_SUCCESSIONS + MAX_KEPT_DOCUMENTS
    links: Annotated[list[bytes], Field(min_length=1, max_length=MAX_SUCCESSIONS)]
    documents: Annotated[list[_KeptDigest], Field(max_length=MAX_KEPT_DOCUMENTS)]


class KeptEnrolments(InFederation):
    """Operator to helpers, retained, and in the federator's credentials: enrolments of former keys that still count.

    Attributes:
        sequence: of the key that signs the list.
        digests: one for each device; they reveal no name without the device's key and serial.
    """

    kind_name: ClassVar[str] = "kept_enrolments"
    longest_list: ClassVar[int] = MAX_KEPT_ENROLMENTS
    sequence: KeySequence
    digests: Annotated[list[_KeptDigest], Field(max_length=MAX_KEPT_ENROLMENTS)]
