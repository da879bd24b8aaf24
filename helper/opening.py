"""Whether a helper commits to a set, whether it opens its sum, and what it answers. No I/O.

One set for each round and cohort, and rounds only upwards: two sums that differ by a client would be that client's
mask. A helper first commits to the set, for good; it opens the sum once all other helpers have committed to the same
one, so that none of them opens a second set even where its own store has forgotten the first. The same question has the
same answer, whose noise was drawn once.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import MessageError
from foltr.core.protocol.helper_messages import PART_WORDS, HelperRefusalCode, OpenAnswer, OpenRequest
from foltr.core.protocol.signed_commitments import read_commitment
from foltr.core.protocol.signed_tickets import set_digest
from foltr.core.secure.field import write_words
from foltr.core.secure.masks import open_masks
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
    """The set is to be committed to, now and for good, under these terms."""

    terms: Terms


@dataclass(frozen=True)
class OpenSet:
    """The positions of the tickets whose sum is to be opened, now and never again; and the terms to do so under."""

    positions: list[int]
    terms: Terms


def decide_open(
    request: OpenRequest,
    committed: CommittedSet | None,
    newest: int | None,
    terms: Terms | Refusal,
    hashes: Mapping[int, bytes],
) -> CommittedSet | Commit | OpenSet | Refusal:
    """Decide on a request: what was said before, whether to commit or to open, or why there is no answer.

    Args:
        committed: the set of this round and cohort that was committed to.
        newest: the newest round with such a set.
        terms: of the policy that the request names.
        hashes: of the tickets of this policy, round and cohort that were checked and are good, by position.
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
    decided = _decide_set(request, terms, hashes)
    if isinstance(decided, Refusal):
        return decided
    if committed is None:
        return Commit(terms)
    missing = uncommitted(request, terms)
    if missing:
        return Refusal(HelperRefusalCode.NOT_COMMITTED, f"to this set {', '.join(missing)} did not commit")
    return decided


def uncommitted(request: OpenRequest, terms: Terms) -> list[str]:
    """Return the other helpers of whom the request has no commitment to its set."""
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


def _decide_set(request: OpenRequest, terms: Terms, hashes: Mapping[int, bytes]) -> OpenSet | Refusal:
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
    return OpenSet(positions, terms)


def sum_for(seeds: Iterable[bytes], noise: NDArray[np.int64]) -> bytes:
    """Return what a helper answers: the sum of the masks of these seeds less its noise, as words of 64 bits.

    Args:
        seeds: which the clients of the set have sealed to it.
        noise: (n_summed,) that was drawn ahead, and is in no other sum (`foltr.helper.noise_ahead`).
    """
    return write_words(open_masks(seeds, noise))


def answer_parts(request: OpenRequest, values: bytes) -> list[OpenAnswer]:
    """Return the answer to a request in as many messages as it takes."""
    dim = len(values) // 8
    return [
        OpenAnswer(
            federation=request.federation,
            helper=request.helper,
            policy_hash=request.policy_hash,
            round=request.round,
            cohort=request.cohort,
            digest=request.digest,
            dim=dim,
            start=start,
            values=values[8 * start : 8 * (start + PART_WORDS)],
        )
        for start in range(0, dim, PART_WORDS)
    ]
