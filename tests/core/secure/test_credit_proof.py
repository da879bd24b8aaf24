"""A credit of minus its weight, 0 or its weight always passes; any other number is refused at all points but three."""

import os

import numpy as np
import pytest

from foltr.core.secure.accounting import gaussian_rho, least_variance, squared_sensitivity
from foltr.core.secure.evaluation import encode_credit, longest_credit
from foltr.core.secure.field import MODULUS, add, from_signed, subtract
from foltr.core.secure.ledger import gaussian_charge
from foltr.core.secure.masks import expand_seed, mask_words
from foltr.core.secure.message_proof import MessageShape, answer_message, is_message_proof_valid, prove_message
from foltr.core.secure.norm_proof import proof_shape
from foltr.core.secure.vote_proof import answer_credit, is_credit_proof_valid, prove_credit, vote_point

WEIGHT = 64
CREDITS = (-WEIGHT, 0, WEIGHT)
POINTS = [vote_point(bytes(range(32)), i.to_bytes(32, "big")) for i in range(200)]
HALF = (MODULUS + 1) // 2
LIES = (1, -1, WEIGHT - 1, 2 * WEIGHT, -2 * WEIGHT, WEIGHT * HALF, MODULUS // 2, pow(7, (MODULUS - 1) // 4, MODULUS))


def words(*numbers):
    return np.array([number % MODULUS for number in numbers], np.uint64)


def message_of(credit, proof=None):
    proof = prove_credit(words(credit), WEIGHT, os.urandom) if proof is None else proof
    return np.concatenate([words(credit), proof])


def passes(message, point):
    return is_credit_proof_valid(answer_credit(message, point), WEIGHT)


def test_the_three_numbers_always_pass_and_no_other() -> None:
    for point in (1, 2, MODULUS - 1, *POINTS[:100]):
        assert all(passes(message_of(credit), point) for credit in CREDITS)
        assert not any(passes(message_of(lie), point) for lie in LIES)


def test_a_forger_passes_at_three_points_that_it_has_guessed_and_at_no_other() -> None:
    """What decides is of degree 3 and not zero: 3 of p - 1 points, below 2^-62."""
    assert 3 / (MODULUS - 1) < 2**-62
    guessed = POINTS[:3]
    for lie in LIES:
        honest, constant = message_of(lie), lie**3 - WEIGHT**2 * lie
        a, b, c = (pow(point, -1, MODULUS) for point in guessed)
        # What is left is constant (1 - X a) (1 - X b) (1 - X c).
        moved = constant * (a + b + c), -constant * (a * b + a * c + b * c), constant * a * b * c
        forged = words(*honest[:2].tolist(), *(int(h) + m for h, m in zip(honest[2:], moved, strict=True)))
        assert [point for point in POINTS if passes(forged, point)] == guessed, lie


def test_what_verifiers_learn_is_as_likely_of_each_credit() -> None:
    for seen in (0, 1, WEIGHT, MODULUS - 1):
        for point in POINTS[:10]:
            answers = []
            for credit in CREDITS:
                drawn = (seen - credit) * pow(point, -1, MODULUS) % MODULUS
                proof = prove_credit(words(credit), WEIGHT, lambda _, r=drawn: np.array([r], "<u8").tobytes())
                answers.append(answer_credit(message_of(credit, proof), point).tolist())
            assert answers[0] == answers[1] == answers[2] == [seen, (seen**3 - WEIGHT**2 * seen) % MODULUS]


@pytest.mark.parametrize("vote_weight", [0, 4])
def test_a_message_with_a_credit_passes_behind_masks_and_any_change_does_not(vote_weight: int) -> None:
    shape, key, ticket = MessageShape(proof_shape(6, 16), vote_weight, 2, 4), bytes(range(32)), bytes(32)
    plain = MessageShape(shape.norm, vote_weight, 2)
    lengths = (shape.n_summed, shape.n_values, shape.n_answer)
    assert lengths == (plain.n_summed + 1, plain.n_values + 5, plain.n_answer + 2)

    def message(credit):
        summed = np.array([1, -2, 7, 3, 1, 5, *((4, 0) if vote_weight else ()), 2, 0, 2, credit])
        return np.concatenate([from_signed(summed), prove_message(summed, shape, os.urandom)])

    def is_kept(message):
        return is_message_proof_valid(answer_message(message, key, ticket, shape), shape)

    assert [credit for credit in range(-9, 10) if is_kept(message(credit))] == [-4, 0, 4]
    seeds = [os.urandom(32) for _ in range(2)]
    sent = mask_words(message(-4), seeds)
    total = answer_message(sent, key, ticket, shape)
    for seed in seeds:
        share = subtract(np.zeros_like(sent), expand_seed(seed, sent.size))
        total = add(total, answer_message(share, key, ticket, shape))
    assert is_message_proof_valid(total, shape)
    honest = message(4)
    for place in range(honest.size):
        changed = honest.copy()
        changed[place] = (int(changed[place]) + 2**40) % MODULUS
        assert not is_kept(changed), place


def test_credits_are_cut_and_rounded_to_one_of_three(rng) -> None:
    """Nothing for sure without any; on average what they are; and the other way round if they are against."""
    for total, mean in [(0.0, 0.0), (0.3, 0.3), (-0.3, -0.3), (1.0, 1.0), (-7.5, -1.0)]:
        drawn = np.array([encode_credit(total, WEIGHT, rng.bytes)[0] for _ in range(2000)])
        assert set(drawn.tolist()) <= {0, int(np.copysign(WEIGHT, total))}, total
        assert drawn.mean() / WEIGHT == pytest.approx(mean, abs=0.05 if 0 < abs(total) < 1 else 0), total
    assert (encode_credit(1.0, 0, rng.bytes).size, longest_credit(0).size) == (0, 0)
    assert longest_credit(WEIGHT).tolist() == [WEIGHT]


def test_noise_covers_a_credit() -> None:
    """An honest client's numbers have C^2 + v^2 + 3 u^2 + w^2 at most, in all that computes a participation's cost."""
    squared = 256**2 + 64**2 + 3 * 32**2 + 48**2
    assert squared_sensitivity(256, 64, 32, 48) == squared
    weights = {"vote_weight": 64, "evaluation_weight": 32, "credit_weight": 48}
    promise = {"epsilon": 8.0, "delta": 1e-6, "participations": 20, "norm_proofs": True}
    variance, without = least_variance(256, **weights, **promise), least_variance(256, **promise)
    assert variance / without == pytest.approx(squared / 256**2, rel=1e-5)
    assert gaussian_charge(256, variance, **weights).rho == float(gaussian_rho(256, variance, **weights))
    assert gaussian_rho(256, variance, **weights) * 2 * variance == squared


def test_the_dp_accounting_library_says_the_same_of_noise_with_a_credit() -> None:
    """Of what an honest client sends at most: a vote, three numbers of an evaluation, and a credit."""
    library = pytest.importorskip(
        "dp_accounting", reason="dp-accounting is in the extra privacy, which nothing but tests needs"
    )
    from dp_accounting import rdp

    weights = {"vote_weight": 64, "evaluation_weight": 32, "credit_weight": 64}
    longest = np.linalg.norm([256, 64, 32, 32, 32, 64])
    for epsilon in (0.5, 8.0):
        variance = least_variance(256, epsilon=epsilon, delta=1e-6, participations=20, **weights)
        orders, relation = (1 + np.logspace(-3, 4, 4000)).tolist(), library.NeighboringRelation.REPLACE_SPECIAL
        accountant = rdp.RdpAccountant(orders, relation)
        accountant.compose(library.GaussianDpEvent(variance**0.5 / longest), 20)
        assert accountant.get_epsilon(1e-6) == pytest.approx(epsilon, rel=1e-3)
