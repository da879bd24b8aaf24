"""Decides whether a helper commits to a set, whether it opens its sum, and what it answers. No I/O.

A helper opens one set for each round and cohort, and rounds only upwards: two sums that differ by one client would
reveal that client's mask. It first commits to a set, for good, and opens the sum once all other helpers have committed
to the same one. So no helper opens a second set even if its own store has forgotten the first. Repeating a request
repeats the answer; its noise is drawn once.

A commitment also shows a helper that its store is an old copy: it has signed one that the store lacks. Nobody can forge
its signature, and no earlier copy of the store has it, so each newest commitment is retained at the broker. A broker
that withholds it gains nothing: the other helpers have committed too, and a sum needs the commitments of all.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from foltr.core.errors import MessageError
from foltr.core.protocol.helper_messages import (
    PART_WORDS,
    HelperMessage,
    HelperRefusalCode,
    OpenAnswer,
    OpenRequest,
    SetCommitment,
)
from foltr.core.protocol.signed_commitments import read_commitment
from foltr.core.protocol.signed_tickets import set_digest
from foltr.helper.terms import Refusal, Terms


@dataclass(frozen=True)
class CommittedSet:
    """The set that this helper has committed to, of a round and cohort.

    Attributes:
        digest: of the set.
        values: what was answered, little-endian words of 64 bits, each below p; None before its sum is opened.
    """

    policy_hash: bytes
    digest: bytes
    values: bytes | None = None


@dataclass(frozen=True)
class Commit:
    """Commit to the set, for good, under these terms."""

    terms: Terms


@dataclass(frozen=True)
class OpenSet:
    """Open the sum of the request's tickets, once, under these terms."""

    terms: Terms


def decide_open(
    request: OpenRequest,
    committed: CommittedSet | None,
    newest: int | None,
    terms: Terms | Refusal,
    hashes: Mapping[int, bytes],
) -> CommittedSet | Commit | OpenSet | Refusal:
    """Decide on a request: repeat an earlier answer, commit, open, or refuse.

    Args:
        committed: the set that was committed to for this round and cohort.
        newest: the newest round with such a set.
        terms: of the policy that the request names.
        hashes: of the checked, good tickets of this policy, round and cohort, by position.
    """
    if committed is not None:
        if (committed.policy_hash, committed.digest) != (request.policy_hash, request.digest):
            return Refusal(HelperRefusalCode.ANSWERED_OTHERWISE, "another set of this cohort was committed to")
        if committed.values is not None or not request.commitments:
            return committed
    elif newest is not None and request.round < newest:
        return Refusal(HelperRefusalCode.ROUND_OVER, f"a set of round {newest} was committed to")
    if isinstance(terms, Refusal):
        return terms
    refusal = _refuse_set(request, terms, hashes)
    if refusal is not None:
        return refusal
    if committed is None:
        return Commit(terms)
    missing = missing_commitments(request, terms)
    if missing:
        return Refusal(HelperRefusalCode.NOT_COMMITTED, f"to this set {', '.join(missing)} did not commit")
    return OpenSet(terms)


def missing_commitments(request: OpenRequest, terms: Terms) -> list[str]:
    """Return the other helpers whose commitment to the set is missing from the request."""
    others = [keys for keys in terms.policy.policy.helpers if keys.name != terms.name]
    return [keys.name for keys in others if not _has_committed(request, keys.name, keys.signing_key)]


def _has_committed(request: OpenRequest, helper: str, signing_key: bytes) -> bool:
    asked = (request.policy_hash, request.round, request.cohort, request.digest)
    for signed in request.commitments:
        with suppress(MessageError):
            said = read_commitment(signed, signing_key, request.federation, helper)
            if (said.policy_hash, said.round, said.cohort, said.digest) == asked:
                return True
    return False


def _refuse_set(request: OpenRequest, terms: Terms, hashes: Mapping[int, bytes]) -> Refusal | None:
    positions, policy = request.positions, terms.policy.policy
    if len(positions) < policy.n_min:
        return Refusal(HelperRefusalCode.TOO_FEW, f"{len(positions)} clients; the policy asks for {policy.n_min}")
    if len(positions) > policy.n_max:
        return Refusal(HelperRefusalCode.TOO_MANY, f"{len(positions)} clients; the policy allows {policy.n_max}")
    missing = [position for position in positions if position not in hashes]
    if missing:
        return Refusal(HelperRefusalCode.UNKNOWN_SET, f"{len(missing)} tickets were not checked, or are not good")
    if set_digest(hashes[position] for position in positions) != request.digest:
        return Refusal(HelperRefusalCode.UNKNOWN_SET, "the tickets that were checked have another digest")
    return None


def answer_parts(request: OpenRequest, values: bytes) -> list[OpenAnswer]:
    """Return the answer to a request in as many messages as it takes."""
    dim, part = len(values) // 8, 8 * PART_WORDS
    return [
        OpenAnswer(
            **echoed_fields(request), digest=request.digest, dim=dim, start=at // 8, values=values[at : at + part]
        )
        for at in range(0, len(values), part)
    ]


def echoed_fields(request: HelperMessage) -> dict[str, Any]:
    """Return what an answer repeats of its request."""
    return {name: getattr(request, name) for name in HelperMessage.model_fields}


def find_missing(signed: SetCommitment, known: CommittedSet | None, newest: int | None) -> str | None:
    """Return a statement that this helper signed and its store lacks, which shows an old copy; else None.

    Args:
        signed: by this helper itself.
        known: what the store has of this round and cohort.
        newest: the newest round of which it has anything; earlier rounds are not kept.
    """
    if newest is not None and signed.round < newest:
        return None
    if known is not None and (known.policy_hash, known.digest) == (signed.policy_hash, signed.digest):
        return None
    have = "no round" if newest is None else f"round {newest}"
    return f"it has signed a set of round {signed.round}, and its store knows of {have} and not of that set"
