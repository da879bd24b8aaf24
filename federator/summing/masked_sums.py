"""Adds up a round's masked vectors and its helpers' answers: an update per cohort, a tally of votes, and rewards."""

import math
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from foltr.core.aggregation.vote_result import RoundEvaluation, RoundTally
from foltr.core.errors import DataError, MessageError
from foltr.core.methods.bodies import BodySpec
from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.helper_messages import OpenAnswer, has_position
from foltr.core.protocol.policies import GaussianNoise, Policy
from foltr.core.protocol.updates import DenseDelta, PartDelta
from foltr.core.secure.accounting import N_EVALUATION, N_VOTES
from foltr.core.secure.coins import Words
from foltr.core.secure.encoding import decode_mean
from foltr.core.secure.field import add_up, read_words, to_signed, write_words
from foltr.core.secure.masks import release_sum
from foltr.core.secure.plausibility import is_plausible
from foltr.federator.secure_terms import SecureTerms
from foltr.federator.summing.helper_session import read_answer
from foltr.storage.records import UpdateRow
from foltr.storage.sum_records import HelperAnswerRow, RoundSumRow


@dataclass(frozen=True)
class ReleasedSums:
    """The results of a round's sums.

    Attributes:
        means: by cohort, a name and an update: the mean including the noise.
        tally: of the votes in all of them; None if the policy has none.
        evaluation: of the lists in all of them; None likewise.
    """

    means: list[tuple[str, DenseDelta | PartDelta]]
    tally: RoundTally | None
    evaluation: RoundEvaluation | None


class ImplausibleSumError(DataError):
    """A sum is longer than its clients and the noise can make it."""


async def add_masked(updates: AsyncIterator[UpdateRow], sets: Iterable[RoundSumRow], n_summed: int) -> dict[int, bytes]:
    """Return by cohort the sum of the masked vectors of those in its set, as words of 64 bits.

    Args:
        updates: of the round.
        sets: as stored.
        n_summed: how many numbers of each vector: the update's, and those after it.

    Raises:
        DataError: an update cannot be read, or one of a set is missing.
    """
    kept = {row.cohort: row for row in sets}
    totals = {number: np.zeros(n_summed, np.uint64) for number in kept}
    n_added = dict.fromkeys(kept, 0)
    async for row in updates:
        number = row.cohort
        if number not in kept or row.position is None or not has_position(kept[number].kept, row.position):
            continue
        # Proofs may follow the vector; they are not part of the sum.
        totals[number] = add_up([totals[number], read_words(row.body[: 8 * n_summed], n_summed)], n_summed)
        n_added[number] += 1
    for number, fixed in kept.items():
        if n_added[number] != fixed.n_clients:
            raise DataError(f"cohort {number} has {n_added[number]} of the {fixed.n_clients} vectors of its set")
    return {number: write_words(total) for number, total in totals.items()}


def release(
    sums: Sequence[RoundSumRow], answers: Iterable[HelperAnswerRow], terms: SecureTerms, spec: BodySpec
) -> ReleasedSums:
    """Return the mean of each cohort, and the results of all votes and evaluations.

    Args:
        sums: of the round, by cohort.
        answers: of its helpers, all of them.
        terms: the round's.
        spec: the form of the method's updates.

    Raises:
        DataError: a sum or an answer is missing, or is not what was signed for this set.
        ImplausibleSumError: a client or helper broke the bound.
    """
    opened, policy = opened_masks(answers, terms), terms.policy.policy
    means, beside = [], np.zeros(policy.n_summed - policy.dim, np.int64)
    for row in sums:
        if row.masked_sum is None:
            raise DataError(f"the sum of cohort {row.cohort} is gone, because an erased client was in it")
        masked = read_words(row.masked_sum, policy.n_summed)
        total = release_sum([masked], _all_answers(row, opened, policy), policy.n_summed)
        _check_plausible(row, to_signed(total), policy)
        mean = decode_mean(total[: policy.dim], row.n_clients, terms.clip_norm, policy.bound)
        means.append((f"cohort {row.cohort}", _as_update(mean, spec)))
        beside += to_signed(total[policy.dim :])
    return ReleasedSums(means, _tally_of(beside, sums, policy), _evaluation_of(beside, sums, policy))


def _tally_of(beside: NDArray[np.int64], sums: Sequence[RoundSumRow], policy: Policy) -> RoundTally | None:
    """Return the tally from the numbers of votes, the first two after the update."""
    if policy.votes is None:
        return None
    worse, better = (beside[:N_VOTES] / policy.votes.weight).tolist()
    return RoundTally(_n_clients(sums), worse, better, _deviation(sums, policy) / policy.votes.weight)


def _evaluation_of(beside: NDArray[np.int64], sums: Sequence[RoundSumRow], policy: Policy) -> RoundEvaluation | None:
    """Return the evaluation from its numbers, the three after the votes, and the credits that may follow."""
    if policy.evaluation is None:
        return None
    earned, credited = np.split(beside[0 if policy.votes is None else N_VOTES :], [N_EVALUATION])
    clicked, reward, base_reward = (earned / policy.evaluation.weight).tolist()
    deviation, weight = _deviation(sums, policy), policy.credit_weight
    of_credits = (float(credited[0]) / weight, deviation / weight) if weight else ()
    deviation /= policy.evaluation.weight
    return RoundEvaluation(_n_clients(sums), clicked, reward, base_reward, deviation, *of_credits)


def _n_clients(sums: Sequence[RoundSumRow]) -> int:
    return sum(row.n_clients for row in sums)


def _deviation(sums: Sequence[RoundSumRow], policy: Policy) -> float:
    """The standard deviation of the noise in each number after the update, of all helpers in all cohorts together."""
    if not isinstance(policy.noise, GaussianNoise):
        raise TypeError(f"a policy with {policy.noise.kind} noise has nothing beside updates")
    return math.sqrt(len(sums) * len(policy.helpers) * policy.noise.variance)


def opened_masks(answers: Iterable[HelperAnswerRow], terms: SecureTerms) -> dict[tuple[int, str, bytes], Words]:
    """Return the helpers' answers by cohort, helper and digest of the set, from the signed bytes.

    Raises:
        DataError: a part is missing, or was not signed by its helper for this round.
    """
    n_summed = terms.policy.policy.n_summed
    opened = {}
    for (cohort, helper, digest), rows in groupby(answers, lambda row: (row.cohort, row.helper, row.set_digest)):
        parts = [_signed_part(row, terms) for row in rows]
        n_bytes = sum(len(part.values) for part in parts)
        if [part.start for part in parts] != list(_starts(parts)) or n_bytes != 8 * n_summed:
            raise DataError(f"the answer of {helper} for cohort {cohort} is not whole")
        opened[cohort, helper, digest] = read_words(b"".join(part.values for part in parts), n_summed)
    return opened


def _signed_part(row: HelperAnswerRow, terms: SecureTerms) -> OpenAnswer:
    try:
        answer = read_answer(row.answer, terms.policy)
    except MessageError as error:
        raise DataError(f"an answer for cohort {row.cohort} of round {row.round}: {error}") from error
    named = (answer.helper, answer.round, answer.cohort, answer.digest) if isinstance(answer, OpenAnswer) else None
    if not isinstance(answer, OpenAnswer) or named != (row.helper, row.round, row.cohort, row.set_digest):
        raise DataError(f"an answer for cohort {row.cohort} of round {row.round} was signed for something else")
    return answer


def _starts(parts: Sequence[OpenAnswer]) -> Iterator[int]:
    end = 0
    for part in parts:
        yield end
        end += len(part.values) // 8


def _all_answers(row: RoundSumRow, opened: Mapping[tuple[int, str, bytes], Words], policy: Policy) -> Iterator[Words]:
    for helper in policy.helpers:
        answer = opened.get((row.cohort, helper.name, row.set_digest))
        if answer is None:
            raise DataError(f"the answer of {helper.name} for cohort {row.cohort} is missing")
        yield answer


def _check_plausible(row: RoundSumRow, total: NDArray[np.int64], policy: Policy) -> None:
    noise = policy.noise
    is_gaussian = isinstance(noise, GaussianNoise)
    shares = None if isinstance(noise, GaussianNoise) else noise.n_shares
    if not is_plausible(
        total,
        noise.kind,
        n_clients=row.n_clients,
        bound=policy.longest_message,
        noise=noise.variance if isinstance(noise, GaussianNoise) else noise.scale,
        noises=len(policy.helpers) if is_gaussian or shares is None else row.n_clients / shares,
    ):
        who = " or ".join(helper.name for helper in policy.helpers)
        # With norm proofs no device can have made it so long.
        lied = f"{who} lied" if policy.norm_proof is not None else f"a client, {who} lied"
        raise ImplausibleSumError(
            f"the sum of cohort {row.cohort} is longer than {row.n_clients} clients and the noise can make it: {lied}"
        )


def _as_update(mean: NDArray[np.float64], spec: BodySpec) -> DenseDelta | PartDelta:
    values = mean.astype(np.float32)
    if spec.kind == "part":
        shared = values[spec.start : spec.start + spec.n_values]
        return PartDelta(dim=spec.dim, start=spec.start, values=pack_vector(shared))
    return DenseDelta(dim=spec.dim, values=pack_vector(values))
