"""What a round's masked vectors and its helpers' answers add up to: one update for each cohort."""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from federator.secure_terms import SecureTerms
from federator.summing.answers import read_answer
from foltr.errors import DataError, MessageError
from foltr.methods.bodies import BodySpec
from foltr.protocol.fields import pack_vector
from foltr.protocol.helper_messages import OpenAnswer, is_kept
from foltr.protocol.policies import GaussianNoise, Policy
from foltr.protocol.updates import DenseDelta, PartDelta
from foltr.secure.coins import Words
from foltr.secure.encoding import decode_mean
from foltr.secure.field import add_up, read_words, to_signed, write_words
from foltr.secure.masks import release_sum
from foltr.secure.plausibility import is_plausible
from storage.records import UpdateRow
from storage.sum_records import HelperAnswerRow, RoundSumRow


class ImplausibleSumError(DataError):
    """A sum is longer than what its clients and the noise can make it."""


async def add_masked(updates: AsyncIterator[UpdateRow], sets: Iterable[RoundSumRow], dim: int) -> dict[int, bytes]:
    """Return by cohort the sum of the masked vectors of those in its set, as words of 64 bits.

    Args:
        updates: of the round.
        sets: as they are stored.
        dim: d.

    Raises:
        DataError: an update cannot be read, or one of a set is not there.
    """
    kept = {row.cohort: row for row in sets}
    totals = {number: np.zeros(dim, np.uint64) for number in kept}
    n_added = dict.fromkeys(kept, 0)
    async for row in updates:
        number = row.cohort
        if number not in kept or row.position is None or not is_kept(kept[number].kept, row.position):
            continue
        # Behind the vector there may be its norm proof, which is no part of the sum.
        totals[number] = add_up([totals[number], read_words(row.body[: 8 * dim], dim)], dim)
        n_added[number] += 1
    for number, fixed in kept.items():
        if n_added[number] != fixed.n_clients:
            raise DataError(f"cohort {number} has {n_added[number]} of the {fixed.n_clients} vectors of its set")
    return {number: write_words(total) for number, total in totals.items()}


def means_of(
    sums: Sequence[RoundSumRow], answers: Iterable[HelperAnswerRow], terms: SecureTerms, spec: BodySpec
) -> Iterator[tuple[str, DenseDelta | PartDelta]]:
    """Return a name and an update, the mean with the noise in it, for each cohort.

    Args:
        sums: of the round, by cohort.
        answers: of its helpers, all of them.
        terms: that the round was under.
        spec: what the method's updates look like.

    Raises:
        DataError: a sum or an answer is missing, or is not what was signed for this set.
        ImplausibleSumError: somebody has not kept the bound.
    """
    opened = opened_masks(answers, terms)
    for row in sums:
        policy = terms.policy.policy
        if row.masked_sum is None:
            raise DataError(f"the sum of cohort {row.cohort} is not there any more, as an erased client was in it")
        total = release_sum([read_words(row.masked_sum, policy.dim)], _all_answers(row, opened, policy), policy.dim)
        _check_plausible(row, to_signed(total), policy)
        mean = decode_mean(total, row.n_clients, terms.clip_norm, policy.bound)
        yield f"cohort {row.cohort}", _as_update(mean, spec)


def opened_masks(answers: Iterable[HelperAnswerRow], terms: SecureTerms) -> dict[tuple[int, str, bytes], Words]:
    """Return what was answered, by cohort, helper and digest of the set, from what the helpers have signed.

    Raises:
        DataError: a part is missing, or was not signed by its helper for this round.
    """
    dim = terms.policy.policy.dim
    opened = {}
    for (cohort, helper, digest), rows in groupby(answers, lambda row: (row.cohort, row.helper, row.set_digest)):
        parts = [_signed_part(row, terms) for row in rows]
        if [part.start for part in parts] != list(_starts(parts)) or sum(len(part.values) for part in parts) != 8 * dim:
            raise DataError(f"the answer of {helper} for cohort {cohort} is not whole")
        opened[cohort, helper, digest] = read_words(b"".join(part.values for part in parts), dim)
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
            raise DataError(f"the answer of {helper.name} for cohort {row.cohort} is not there")
        yield answer


def _check_plausible(row: RoundSumRow, total: NDArray[np.int64], policy: Policy) -> None:
    noise = policy.noise
    is_gaussian = isinstance(noise, GaussianNoise)
    shares = None if isinstance(noise, GaussianNoise) else noise.n_shares
    if not is_plausible(
        total,
        noise.kind,
        n_clients=row.n_clients,
        bound=policy.bound,
        noise=noise.variance if isinstance(noise, GaussianNoise) else noise.scale,
        noises=len(policy.helpers) if is_gaussian or shares is None else row.n_clients / shares,
    ):
        raise ImplausibleSumError(
            f"the sum of cohort {row.cohort} is longer than {row.n_clients} clients and the noise can make it"
        )


def _as_update(mean: NDArray[np.float64], spec: BodySpec) -> DenseDelta | PartDelta:
    values = mean.astype(np.float32)
    if spec.kind == "part":
        shared = values[spec.start : spec.start + spec.n_values]
        return PartDelta(dim=spec.dim, start=spec.start, values=pack_vector(shared))
    return DenseDelta(dim=spec.dim, values=pack_vector(values))
