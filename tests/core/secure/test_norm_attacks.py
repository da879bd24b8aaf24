"""A vector within the bound is accepted, others are rejected: attacks, and how often one row lets each through."""

import itertools
import math
import os

import numpy as np
import pytest
from support.plain_norm_proofs import P, answer_of, length_of, message_of, root, roots_that_add_up, rows_of

from foltr.core.secure.accounting import LARGEST_PROJECTION, MASK_DEVIATION
from foltr.core.secure.encoding import encode_l2
from foltr.core.secure.field import add, from_signed, subtract, to_signed
from foltr.core.secure.four_squares import four_squares
from foltr.core.secure.masks import expand_seed, mask_words
from foltr.core.secure.norm_proof import (
    ROWS,
    Challenge,
    ProofShape,
    answer_share,
    challenge_for,
    is_norm_proof_valid,
    proof_shape,
    prove_norm,
)

VERIFY_KEY = bytes(range(32))
BOUND = 256
MOST_A_ROW_LETS_THROUGH = 1 - 0.99**2 / 3
N_CHALLENGES = 150


def challenges(shape: ProofShape, n: int = N_CHALLENGES) -> list[Challenge]:
    return [challenge_for(VERIFY_KEY, i.to_bytes(32, "big"), shape) for i in range(n)]


def answer(values: list[int], challenge: Challenge, shape: ProofShape) -> np.ndarray:
    """(n_answer,): what all verifiers say of a message, added up."""
    return answer_share(np.array(values, np.uint64), challenge, shape)


def long_vector(dim: int, square: int, seed: int = 1) -> list[int]:
    """An integer vector whose squares add up to this, in a random direction."""
    drawn = np.random.default_rng(seed).normal(size=dim)
    scaled = drawn * math.sqrt(square * 0.99) / np.linalg.norm(drawn)
    found = [int(number) for number in scaled]
    found[:4] = [0] * 4
    found[:4] = four_squares(square - sum(number * number for number in found))
    return found


def forged(encoded: list[int], squares: list[int], shape: ProofShape, masks: list[int] | None = None) -> list[int]:
    """V with these q and a, and all else as it has to be."""
    return message_of([*encoded, *squares], masks or [0] * ROWS, expand_seed(bytes(32), shape.n_wires).tolist(), shape)


def honest(dim: int, seed: int) -> tuple[np.ndarray, ProofShape]:
    """(n_values,) at the bound, as a device makes it before the masks."""
    shape, rng = proof_shape(dim, BOUND), np.random.default_rng(seed)
    encoded = encode_l2(rng.normal(size=dim), 1e-6, BOUND, rng.bytes)
    return np.concatenate([from_signed(encoded), prove_norm(encoded, shape, rng.bytes)]), shape


def rate_of_rows(values: list[int], shape: ProofShape) -> float:
    """The share of rows that let it through, of all challenges."""
    sizes = [np.abs(to_signed(answer(values, challenge, shape)[-ROWS:])) for challenge in challenges(shape)]
    return float((np.array(sizes) <= LARGEST_PROJECTION).mean())


def wrapping(name: str, shape: ProofShape) -> list[int]:
    """q and a of an attack whose squares add up to the bound's modulo p, and to much more as integers."""
    dim, square = shape.dim, shape.bound**2
    factors = {"B + 1": None, "1.01 x": 1.01, "2 x": 2.0, "50 x": 50.0}
    if name in factors:
        factor = factors[name]
        encoded = long_vector(dim, square + 1 if factor is None else round(factor**2 * square))
        # The shortest that a forger can take: a sum of p more.
        return [*encoded, *four_squares(P + square - sum(number * number for number in encoded))]
    if name == "spread":
        each = math.isqrt(P // dim)
        return [*[each] * dim, *four_squares(P + square - dim * each * each)]
    if name == "twice T":
        n = P // (2 * LARGEST_PROJECTION) ** 2
        encoded = [2 * LARGEST_PROJECTION] * n + [0] * (dim - n)
        return [*encoded, *four_squares(P + square - n * (2 * LARGEST_PROJECTION) ** 2)]
    encoded = {
        "p / 2": [P // 2] + [0] * (dim - 1),
        "p / 3": [P // 3] + [0] * (dim - 1),
        "two of p / 3": [P // 3, P // 3] + [0] * (dim - 2),
        "roots": long_vector(dim, 4 * square),
    }[name]
    return [*encoded, *roots_that_add_up(square - sum(number * number for number in encoded))]


def test_a_sum_that_wraps_around_is_rejected():
    """All else is in order, so that rows alone stand against it: none lets through more than is claimed."""
    for name, dim in [
        *itertools.product(["B + 1", "1.01 x", "2 x", "50 x", "p / 2", "p / 3", "two of p / 3", "roots"], [5, 136]),
        *itertools.product(["spread"], [136, 1000]),
        ("twice T", 1000),
    ]:
        shape = proof_shape(dim, BOUND)
        inputs = wrapping(name, shape)
        assert sum(number * number for number in inputs) % P == BOUND**2, (name, dim)
        assert length_of(inputs) ** 2 >= P, (name, dim)
        values = forged(inputs[:dim], inputs[dim:], shape)
        for challenge in challenges(shape):
            total = answer(values, challenge, shape)
            at_point, gadget = total[1 : 1 + shape.n_wires].tolist(), int(total[1 + shape.n_wires])
            assert int(total[0]) == BOUND**2, (name, dim)
            assert sum(value * value for value in at_point) % P == gadget, (name, dim)
            assert not is_norm_proof_valid(total, shape), (name, dim)
        assert rate_of_rows(values, shape) < MOST_A_ROW_LETS_THROUGH, (name, dim)


def test_no_mask_helps_a_sum_that_wraps_around():
    """Whatever a forger adds to z: what suits a row of 1 there, or keeps to T. Nor does a longer vector pass."""
    shape = proof_shape(136, BOUND)
    asked = challenges(shape)
    inputs = wrapping("p / 2", shape)
    for mask in [-(P // 2), LARGEST_PROJECTION, P // 4]:
        values = forged(inputs[:136], inputs[136:], shape, [mask % P] * ROWS)
        assert rate_of_rows(values, shape) <= 0.52, mask
        assert not any(is_norm_proof_valid(answer(values, challenge, shape), shape) for challenge in asked), mask
    for factor in [1.01, 2, 50]:
        values = forged(long_vector(136, round(factor**2 * BOUND**2)), [0] * 4, shape)
        assert rate_of_rows(values, shape) == 1.0, factor
        assert not any(is_norm_proof_valid(answer(values, challenge, shape), shape) for challenge in asked), factor


def test_who_knows_the_point_is_accepted_there_and_nowhere_else():
    """G can be bent so that it is right at one point: so t is drawn when the message is there, from a secret key."""
    shape = proof_shape(136, BOUND)
    encoded = long_vector(136, 2500 * BOUND**2)
    values = forged(encoded, [0] * 4, shape)
    first, *others = challenges(shape)
    missing = BOUND**2 - sum(number * number for number in encoded)
    # G + c (X - t): at alpha^1 to alpha^(P - 1) the second adds c (-1 - (P - 1) t) in all.
    slope = missing * pow(-1 - (shape.degree - 1) * first.point, -1, P)
    start = shape.n_values - 2 * shape.degree + 1
    for i in range(2 * shape.degree - 1):
        values[start + i] = (values[start + i] + slope * (pow(root(2 * shape.degree), i, P) - first.point)) % P
    assert is_norm_proof_valid(answer(values, first, shape), shape)
    assert not any(is_norm_proof_valid(answer(values, challenge, shape), shape) for challenge in others)


@pytest.mark.parametrize("dim", [1, 12])
def test_one_more_is_harmless_in_a_mask_alone(dim):
    values, shape = honest(dim, 3)
    challenge = challenges(shape, 1)[0]
    assert is_norm_proof_valid(answer_share(values, challenge, shape), shape)
    for i in range(shape.n_values):
        changed = values.copy()
        changed[i] = add(changed[i : i + 1], np.ones(1, np.uint64))[0]
        is_mask = shape.n_inputs <= i < shape.n_inputs + ROWS
        assert is_norm_proof_valid(answer_share(changed, challenge, shape), shape) == is_mask


def test_a_mask_beyond_the_limit_is_rejected():
    """Nor are random numbers accepted, another seed than masked the vector, or another device's proof."""
    for mask, accepted in [(2, False), (-2, False), (0.9, True), (-0.9, True)]:
        values, shape = honest(136, 4)
        values[shape.n_inputs] = int(mask * LARGEST_PROJECTION) % P
        assert is_norm_proof_valid(answer_share(values, challenges(shape, 1)[0], shape), shape) == accepted, mask
    values, shape = honest(136, 5)
    challenge = challenges(shape, 1)[0]
    assert not is_norm_proof_valid(answer_share(expand_seed(bytes(32), shape.n_values), challenge, shape), shape)
    sent = answer_share(mask_words(values, [b"a" * 32]), challenge, shape)
    helper = answer_share(subtract(values - values, expand_seed(b"b" * 32, shape.n_values)), challenge, shape)
    assert not is_norm_proof_valid(add(sent, helper), shape)
    (one, shape), (other, _) = honest(136, 6), honest(136, 7)
    mixed = np.concatenate([one[:136], other[136:]])
    assert not any(is_norm_proof_valid(answer_share(mixed, challenge, shape), shape) for challenge in challenges(shape))


@pytest.mark.parametrize("other", [(b"x" * 32, bytes(32)), (VERIFY_KEY, b"x" * 32)], ids=["older key", "ticket"])
def test_verifiers_have_to_ask_the_same(other):
    """A helper with an older key, or about another ticket, says what does not go with the others."""
    values, shape = honest(136, 8)
    asked, otherwise = challenge_for(VERIFY_KEY, bytes(32), shape), challenge_for(*other, shape)
    seed = b"s" * 32
    share = subtract(values - values, expand_seed(seed, shape.n_values))
    sent = answer_share(mask_words(values, [seed]), asked, shape)
    assert is_norm_proof_valid(add(sent, answer_share(share, asked, shape)), shape)
    assert not is_norm_proof_valid(add(sent, answer_share(share, otherwise, shape)), shape)


def test_challenges_differ_in_each_bit(monkeypatch):
    """By key and ticket; a quarter of the coefficients is -1, a quarter 1; a root of unity is drawn again."""
    shape = proof_shape(136, BOUND)
    rows = np.array([rows_of(challenge, shape) for challenge in challenges(shape)])
    for value, share in ((-1, 0.25), (0, 0.5), (1, 0.25)):
        assert abs((rows == value).mean() - share) < 5 * math.sqrt(share * (1 - share) / rows.size)
    assert len({challenge.point for challenge in challenges(shape)}) == N_CHALLENGES
    assert challenge_for(b"x" * 32, bytes(32), shape).point != challenges(shape, 1)[0].point
    shape = proof_shape(12, BOUND)
    drawn = iter([1, P - 1, root(2 * shape.degree), root(shape.degree), 5])
    monkeypatch.setattr("foltr.core.secure.norm_proof.words_below", lambda *_: np.array([next(drawn)], np.uint64))
    assert challenge_for(VERIFY_KEY, bytes(32), shape).point == 5


def test_devices_and_verifiers_compute_what_plain_integers_do():
    """G of a message with the same wire values, and the answer to a random share: for each degree of small vectors."""
    for dim in [1, 2, 3, 4, 5, 12, 28, 136]:
        values, shape = honest(dim, dim)
        inputs, masks, first, _ = np.split(values, np.cumsum([shape.n_inputs, ROWS, shape.n_wires]))
        assert values.tolist() == message_of(inputs.tolist(), masks.tolist(), first.tolist(), shape), dim
        share = expand_seed(bytes(32), shape.n_values)
        for challenge in challenges(shape, 2):
            assert answer_share(share, challenge, shape).tolist() == answer_of(share.tolist(), challenge, shape), dim


def test_honest_devices_at_the_bound_are_accepted():
    """None is rejected, FOLTR_TEST_HONEST_PROOFS says of how many; nor by the largest mask and a row of its signs."""
    for dim in [1, 2, 3, 4, 46, 136, 300]:
        shape, rng = proof_shape(dim, BOUND), np.random.default_rng(dim)
        for i in range(int(os.environ.get("FOLTR_TEST_HONEST_PROOFS") or 100)):
            encoded = encode_l2(rng.normal(size=dim), 1e-6, BOUND, rng.bytes)
            values = np.concatenate([from_signed(encoded), prove_norm(encoded, shape, rng.bytes)])
            challenge = challenge_for(VERIFY_KEY, i.to_bytes(32, "big"), shape)
            assert is_norm_proof_valid(answer_share(values, challenge, shape), shape), dim
    shape = proof_shape(136, BOUND)
    all_ones = Challenge(5, np.full((-(-shape.n_inputs // 8), 2, ROWS), 255, np.uint8))
    encoded = [abs(number) for number in long_vector(136, BOUND**2)]
    assert rows_of(all_ones, shape).min() == 1
    for over, accepted in ((0, True), (shape.n_inputs * BOUND, False)):
        values = forged(encoded, [0] * 4, shape, [shape.largest_mask + over] * ROWS)
        assert is_norm_proof_valid(answer(values, all_ones, shape), shape) == accepted


def drawn_answers(encoded: np.ndarray, shape: ProofShape, challenge: Challenge, n: int) -> np.ndarray:
    """(n, n_answer): what verifiers learn of a device that sends this, each time with fresh random numbers."""
    rng = np.random.default_rng(10)
    first = from_signed(encoded)
    proofs = [np.concatenate([first, prove_norm(encoded, shape, rng.bytes)]) for _ in range(n)]
    return np.array([answer_share(values, challenge, shape) for values in proofs])


def test_values_at_the_point_say_nothing_of_the_vector(monkeypatch):
    """f_l(t) are uniform, G(t) follows from them, and v is the bound's square: whatever was encoded."""
    # No mask is in any of these, and to draw them takes two thirds of the time.
    monkeypatch.setattr("foltr.core.secure.norm_proof._draw_mask", lambda *_: np.zeros(ROWS, np.int64))
    shape, n = proof_shape(4, BOUND), 1500
    challenge = challenges(shape, 1)[0]
    for encoded in ([0, 0, 0, 0], [BOUND, 0, 0, 0]):
        answers = drawn_answers(np.array(encoded), shape, challenge, n)
        at_point = answers[:, 1 : 1 + shape.n_wires]
        assert (answers[:, 0] == BOUND**2).all()
        gadgets = [sum(value * value for value in row) % P for row in at_point.tolist()]
        assert gadgets == answers[:, 1 + shape.n_wires].tolist()
        # 16 bins for each wire, and 64 for the first two together; 5 deviations of chi-square above its mean.
        bins = (at_point >> np.uint64(60)).astype(np.int64)
        together = 8 * (bins[:, 0] // 2) + bins[:, 1] // 2
        for counts in [
            *(np.bincount(bins[:, i], minlength=16) for i in range(shape.n_wires)),
            np.bincount(together, minlength=64),
        ]:
            expected = n / counts.size
            chi_square = float(((counts - expected) ** 2 / expected).sum())
            assert chi_square < counts.size - 1 + 5 * math.sqrt(2 * (counts.size - 1))


def test_the_masked_projections_differ_by_what_is_charged():
    """Two vectors are rarely more than sqrt(510 B) apart, of 4 B at most; the noise is sigma_y's, with room for any."""
    shape = proof_shape(136, BOUND)
    difference = 2 * np.array([*long_vector(136, BOUND**2), 0, 0, 0, 0])
    moved = [int(((rows_of(challenge, shape) @ difference) ** 2).sum()) for challenge in challenges(shape, 600)]
    assert max(moved) < 510 * BOUND**2
    assert np.mean(moved) == pytest.approx(ROWS / 2 * 4 * BOUND**2, rel=0.03)
    shape = proof_shape(4, BOUND)
    encoded, n = np.array([BOUND, 0, 0, 0]), 300
    challenge = challenges(shape, 1)[0]
    answers = drawn_answers(encoded, shape, challenge, n)
    places = rows_of(challenge, shape)[:, :4] @ encoded
    noise = to_signed(answers[:, -ROWS:].reshape(-1)).reshape(n, ROWS) - places
    assert abs(noise.mean()) < 5 * MASK_DEVIATION / math.sqrt(noise.size)
    assert noise.std() == pytest.approx(MASK_DEVIATION, rel=5 / math.sqrt(2 * noise.size))
    assert np.abs(noise).max() <= shape.largest_mask
