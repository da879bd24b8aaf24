"""What is stored of a round's sums makes one update for each cohort, or is told to be missing or damaged."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from support.secure_cohorts import FEDERATION, SecureFederation

from foltr.core.errors import DataError
from foltr.core.methods.bodies import BodySpec
from foltr.core.protocol.codec import encode
from foltr.core.protocol.fields import unpack_vector
from foltr.core.protocol.helper_messages import OpenAnswer
from foltr.core.protocol.topics import Topics
from foltr.core.protocol.updates import PartDelta
from foltr.core.secure.field import add_up, from_signed, write_words
from foltr.federator.secure_terms import SecureTerms
from foltr.federator.summing.masked_sums import ImplausibleSumError, add_masked, release
from foltr.storage.records import UpdateRow
from foltr.storage.sum_records import HelperAnswerRow, RoundSumRow

DIM, N_CLIENTS, CLIP_NORM = 6, 4, 2.56
SECURE = SecureFederation(dim=DIM, n_min=2)
TERMS = SecureTerms(SECURE.policy, CLIP_NORM)
DENSE = BodySpec("dense", DIM, 0, DIM)
DIGEST = b"d" * 32
VECTOR = np.array([400, -80, 40, 0, 0, 8], np.int64)
"""A sum of four clients."""


def words(numbers) -> bytes:
    return write_words(from_signed(np.asarray(numbers, np.int64)))


def sum_row(**changes) -> RoundSumRow:
    row = RoundSumRow(FEDERATION, 1, 0, N_CLIENTS, N_CLIENTS, b"\xf0", DIGEST, words(VECTOR + 12), None, None, None)
    return replace(row, **changes)


def answer(helper: int, masks: int, *, start: int = 0, end: int = DIM, **changes) -> HelperAnswerRow:
    """A part of what a helper says that its masks add up to, the same in each number."""
    pair = SECURE.helpers[helper]
    said = {"federation": FEDERATION, "helper": pair.name, "policy_hash": TERMS.policy.hash, "round": 1, "cohort": 0}
    said |= {"digest": DIGEST, "dim": DIM, "start": start, "values": words([masks] * (end - start))} | changes
    signed = encode(OpenAnswer(**said), Topics(FEDERATION).helper_answers(pair.name), 1, pair.signing_key)
    return HelperAnswerRow(FEDERATION, 1, 0, pair.name, start, DIGEST, signed)


BOTH = [answer(0, 5), answer(1, 7)]


def means(sums=None, answers=None, spec=DENSE):
    return release([sum_row()] if sums is None else sums, BOTH if answers is None else answers, TERMS, spec).means


def test_the_mean_is_what_is_left_without_the_masks():
    """In steps of C / C_int, over the number of clients."""
    ((name, mean),) = means()
    assert name == "cohort 0"
    np.testing.assert_allclose(unpack_vector(mean.values), VECTOR * (CLIP_NORM / 256 / N_CLIENTS), rtol=1e-6)


def test_a_part_of_the_model_is_all_that_a_method_with_parts_is_given():
    """The other numbers are the noise alone."""
    ((_, mean),) = means(spec=BodySpec("part", DIM, 1, 2))
    assert isinstance(mean, PartDelta)
    assert (mean.dim, mean.start) == (DIM, 1)
    np.testing.assert_allclose(unpack_vector(mean.values), VECTOR[1:3] * 0.0025, rtol=1e-6)


def test_an_answer_in_parts_is_put_together():
    """In the order of their numbers."""
    parts = [answer(0, 5, end=2), answer(0, 5, start=2), answer(1, 7)]
    assert means(answers=parts) == means()


def test_what_is_missing_or_was_not_signed_for_this_set_is_told():
    """Nothing is made of the rest."""
    for told, sums, answers in [
        ("is gone", [sum_row(masked_sum=None)], BOTH),
        ("the answer of south for cohort 0 is missing", None, BOTH[:1]),
        ("the answer of north for cohort 0 is missing", [sum_row(set_digest=bytes(32))], BOTH),
        ("is not whole", None, [answer(0, 5, start=1), BOTH[1]]),
        ("is not whole", None, [answer(0, 5, end=3), BOTH[1]]),
        ("signed for something else", None, [answer(0, 5, digest=bytes(32)), BOTH[1]]),
        ("signed for something else", None, [answer(0, 5, round=2), BOTH[1]]),
        ("signed for something else", None, [answer(0, 5, cohort=1), BOTH[1]]),
        ("signed for something else", None, [replace(BOTH[0], helper="south"), BOTH[1]]),
        ("an answer for cohort 0 of round 1", None, [replace(BOTH[0], answer=BOTH[0].answer[:-1]), BOTH[1]]),
    ]:
        with pytest.raises(DataError, match=told):
            means(sums, answers)


def test_a_sum_that_is_longer_than_its_clients_can_make_it_is_discarded():
    """The noise alone, of two helpers with a deviation of 1,000, is 11,800 long once in a billion sums."""
    means([sum_row(masked_sum=words([12 + 12_000, 12, 12, 12, 12, 12]))])
    with pytest.raises(ImplausibleSumError, match="longer than 4 clients"):
        means([sum_row(masked_sum=words([12 + 13_000, 12, 12, 12, 12, 12]))])


UNSAID = dict.fromkeys(
    ("vote", "clicked", "reward", "base_reward", "credit_total", "credit_squares", "key_fingerprint")
)


async def stream(n: int, cohort: int = 0) -> AsyncIterator[UpdateRow]:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    for i in range(n):
        body = words([i + 1] * DIM)
        about = (FEDERATION, 1, f"client-{i}", "u", 0, 1, "masked_u64", len(body), at, 0, 1, cohort, i, None)
        yield UpdateRow(*about, **UNSAID, cipher="", ticket=b"t", body=body)


async def test_only_those_in_the_set_are_added_up():
    """Whom a helper took out, or who is of a cohort that was dropped, is in no sum."""
    row = sum_row(kept=b"\xb0", n_clients=3)
    added = await add_masked(stream(4), [row], DIM)
    assert added == {0: write_words(add_up([from_signed(np.full(DIM, 1 + 3 + 4))], DIM))}
    assert await add_masked(stream(4, cohort=1), [], DIM) == {}


async def test_the_norm_proof_behind_a_vector_is_in_no_sum():
    """Of what is stored the first words are the vector."""

    async def with_proofs() -> AsyncIterator[UpdateRow]:
        async for row in stream(4):
            yield replace(row, body=row.body + words([9] * 20))

    assert await add_masked(with_proofs(), [sum_row()], DIM) == await add_masked(stream(4), [sum_row()], DIM)


async def test_a_vector_that_is_gone_makes_no_sum():
    """The answers are for the whole set: without one of its vectors the rest would be random."""
    with pytest.raises(DataError, match="3 of the 4 vectors"):
        await add_masked(stream(3), [sum_row()], DIM)
