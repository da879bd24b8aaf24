"""Whether a helper opens the sum of a set, and what it answers. No I/O.

One answer for each round and cohort, and rounds only upwards: two sums that differ by a client would be that client's
mask. The same question has the same answer, whose noise was drawn once.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foltr.protocol.helper_messages import PART_WORDS, HelperRefusalCode, OpenAnswer, OpenRequest
from foltr.protocol.signed_tickets import set_digest
from foltr.secure.field import write_words
from foltr.secure.masks import open_masks
from helper.terms import Refusal, Terms


@dataclass(frozen=True)
class OpenedSum:
    """An answer that was given for a round and cohort.

    Attributes:
        digest: of the set.
        values: little-endian words of 64 bits, each below p.
    """

    policy_hash: bytes
    digest: bytes
    values: bytes


@dataclass(frozen=True)
class OpenSet:
    """The positions of the tickets whose sum is to be opened, now and never again; and the terms to do so under."""

    positions: list[int]
    terms: Terms


def decide_open(
    request: OpenRequest,
    opened: OpenedSum | None,
    newest_opened: int | None,
    terms: Terms | Refusal,
    hashes: Mapping[int, bytes],
) -> OpenedSum | OpenSet | Refusal:
    """Decide on a request: the answer that was given before, the set to open, or why there is no answer.

    Args:
        opened: what was answered for this round and cohort.
        newest_opened: the newest round of which a sum was opened.
        terms: of the policy that the request names.
        hashes: of the tickets of this policy, round and cohort that were checked and are good, by position.
    """
    if opened is not None:
        if (opened.policy_hash, opened.digest) == (request.policy_hash, request.digest):
            return opened
        return Refusal(HelperRefusalCode.ANSWERED_OTHERWISE, "the sum of another set of this cohort was opened")
    if newest_opened is not None and request.round < newest_opened:
        return Refusal(HelperRefusalCode.ROUND_OVER, f"a sum of round {newest_opened} is opened")
    if isinstance(terms, Refusal):
        return terms
    return _decide_set(request, terms, hashes)


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
        noise: (n_summed,) that was drawn ahead, and is in no other sum (`helper.noise_ahead`).
    """
    return write_words(open_masks(seeds, noise))


def answer_parts(request: OpenRequest, opened: OpenedSum) -> list[OpenAnswer]:
    """Return the answer to a request in as many messages as it takes."""
    dim = len(opened.values) // 8
    return [
        OpenAnswer(
            federation=request.federation,
            helper=request.helper,
            policy_hash=request.policy_hash,
            round=request.round,
            cohort=request.cohort,
            digest=opened.digest,
            dim=dim,
            start=start,
            values=opened.values[8 * start : 8 * (start + PART_WORDS)],
        )
        for start in range(0, dim, PART_WORDS)
    ]
