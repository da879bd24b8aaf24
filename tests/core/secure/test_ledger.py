"""What participations cost together: k of a policy's own pass exactly, one more does not."""

from dataclasses import replace
from functools import partial
from itertools import product

import pytest

from foltr.core.secure.accounting import (
    NORM_PROOF_DELTA,
    epsilon_of,
    gaussian_variance,
    laplace_scale,
    least_scale,
    least_variance,
    norm_proof_rho,
    rho_for,
)
from foltr.core.secure.ledger import (
    NOTHING,
    Allowance,
    Charge,
    Spent,
    gaussian_charge,
    laplace_charge,
    norm_proof_charge,
    participations_left,
    refusal,
)

BOUND, DELTA = 256, 1e-6


def gaussian(k, epsilon, bound=BOUND):
    return Allowance(k, epsilon, DELTA, gaussian_charge(bound, gaussian_variance(bound, rho_for(epsilon, DELTA), k)))


def gamma(k, epsilon, bound=BOUND):
    # With a delta so small that nothing but the pure epsilon adds up well.
    return Allowance(k, epsilon, 1e-300, laplace_charge(bound, laplace_scale(bound, epsilon, k)))


def proven_gaussian(k, epsilon, bound=BOUND):
    variance = least_variance(bound, epsilon=epsilon, delta=DELTA, participations=k, norm_proofs=True)
    return Allowance(k, epsilon, DELTA, gaussian_charge(bound, variance) + norm_proof_charge(bound))


def proven_gamma(k, epsilon, bound=BOUND):
    scale = least_scale(bound, epsilon=epsilon, delta=DELTA, participations=k, norm_proofs=True)
    return Allowance(k, epsilon, DELTA, laplace_charge(bound, scale) + norm_proof_charge(bound))


def spent_under(allowance, n):
    """Spent one by one, like a ledger adds it up."""
    spent = Spent()
    for _ in range(n):
        spent = Spent(spent.last + 1, spent.charge + allowance.charge)
    return spent


def test_charges_by_hand():
    """C^2 / (2 sigma^2); C / s with its square over 2. Replaced: twice the pure epsilon, four times the noise's rho."""
    assert gaussian_charge(256, 622_754) == Charge(256**2 / (2 * 622_754), None)
    assert laplace_charge(256, 640) == Charge(0.4**2 / 2, 0.4)
    assert laplace_charge(256, 640).times(3) + NOTHING == Charge(3 * (0.4**2 / 2), 3 * 0.4)
    assert (laplace_charge(256, 640) + gaussian_charge(256, 622_754)).epsilon is None
    assert NOTHING.epsilon_at(DELTA) == 0.0
    charge = laplace_charge(10, 100) + norm_proof_charge(10)
    replaced = charge.replacing()
    assert replaced.epsilon == pytest.approx(2 * charge.epsilon)
    assert replaced.rho == pytest.approx(4 * 0.1**2 / 2 + charge.proof_rho)
    assert (replaced.proof_rho, replaced.delta) == (charge.proof_rho, charge.delta)
    assert gaussian_charge(20, 10_000).rho == pytest.approx(gaussian_charge(10, 10_000).replacing().rho)


OFTEN_AND_FAR = list(product([1, 2, 7, 20, 200, 1000], [0.1, 1.0, 8.0]))
WITH_PROOFS = list(product([1, 2, 20, 200], [2.0, 8.0]))


def test_as_many_participations_as_a_policy_was_made_for_pass_and_no_more():
    """By their number and, were that not looked at, by what they cost; norm proofs have their room beside the noise."""
    # So fine that rounding the noise up leaves nothing over.
    made = [partial(make, k, epsilon, bound=2**20) for make in (gaussian, gamma) for k, epsilon in OFTEN_AND_FAR]
    made += [partial(make, k, epsilon) for make in (proven_gaussian, proven_gamma) for k, epsilon in WITH_PROOFS]
    for make in made:
        k, allowance = make.args[0], make()
        spent = spent_under(allowance, k - 1)
        assert refusal(spent, allowance, k) is None, make
        assert participations_left(spent, allowance) == 1, make
        spent = spent_under(allowance, k)
        assert refusal(spent, allowance, k + 1) == f"participation {k + 1} of {k}", make
        assert participations_left(spent, allowance) == 0, make
        if make.func is not proven_gamma:
            assert "would make epsilon" in refusal(spent, replace(allowance, participations=10 * k), k + 1), make


def test_the_charge_of_a_norm_proof():
    """Its rho is part of all, its delta is taken off before an epsilon is found: once it is spent no epsilon holds."""
    proof, rho = norm_proof_charge(256), float(norm_proof_rho(256))
    assert proof == Charge(rho, 0.0, rho, NORM_PROOF_DELTA)
    gaussian_one = gaussian_charge(256, 622_756) + proof
    assert gaussian_one == Charge(256**2 / (2 * 622_756) + rho, None, rho, NORM_PROOF_DELTA)
    assert gaussian_one.epsilon_at(DELTA) == epsilon_of(gaussian_one.rho, DELTA - NORM_PROOF_DELTA)
    gamma_one = laplace_charge(256, 641) + proof
    assert gamma_one.epsilon_at(DELTA) == 256 / 641 + epsilon_of(rho, DELTA - NORM_PROOF_DELTA)
    assert gamma_one.times(3) == gamma_one + gamma_one + gamma_one
    assert proof.epsilon_at(DELTA) == epsilon_of(rho, DELTA - NORM_PROOF_DELTA)
    spent = spent_under(proven_gaussian(20, 8.0), 10)
    assert spent.charge.epsilon_at(10 * NORM_PROOF_DELTA) == float("inf")
    later = replace(gaussian(200, 8.0), delta=1e-11)
    assert refusal(spent, later, 11) == "participation 11 would make delta 1.819e-11 of 1e-11"
    assert participations_left(spent, later) == 0


def test_a_pure_promise_stays_pure_under_a_later_policy():
    """Hundreds of pure charges add up better by their rho; but then the epsilon that is promised would need a delta."""
    first, second = (replace(gamma(k, 8.0), delta=DELTA, is_pure=True) for k in (200, 400))
    spent = spent_under(first, 200)
    assert spent.charge.epsilon_at(DELTA) < 4.0
    assert refusal(spent, second, 201) == "participation 201 would make epsilon 8.02 of 8"
    assert participations_left(spent, second) == 0
    assert participations_left(spent_under(first, 100), second) == 200


@pytest.mark.parametrize("make", [gaussian, proven_gamma])
def test_who_has_spent_what_is_not_pure_takes_part_with_a_delta(make):
    """Nothing is pure for this client any more; what it may spend in all is the same."""
    pure = replace(gamma(20, 8.0), delta=DELTA, is_pure=True)
    spent = spent_under(make(20, 8.0), 10)
    assert pure.epsilon_of(spent.charge) == spent.charge.epsilon_at(DELTA)
    assert refusal(spent, pure, 11) is None
    assert 0 < participations_left(spent, pure) <= 10


def test_the_smaller_of_two_ways_to_add_up_counts():
    """Few pure charges add up better as they are, many by their rho; more than the last digits beyond is refused."""
    charge = laplace_charge(1, 10)
    assert charge.times(2).epsilon_at(DELTA) == pytest.approx(0.2)
    assert charge.times(10_000).epsilon_at(DELTA) == pytest.approx(epsilon_of(50.0, DELTA))
    assert epsilon_of(50.0, DELTA) < 1000.0
    mixed = charge + gaussian_charge(1, 100)
    assert mixed.epsilon_at(DELTA) == pytest.approx(epsilon_of(0.01, DELTA))
    allowance = gamma(20, 8.0)
    barely = Spent(1, Charge(1.0, 8.0 - allowance.charge.epsilon))
    assert refusal(barely, allowance, 2) is None
    beyond = Spent(1, Charge(1.0, 8.0 - allowance.charge.epsilon + 1e-7))
    assert refusal(beyond, allowance, 2) is not None


def test_what_was_spent_under_one_policy_is_missing_under_the_next():
    """A larger k with the same epsilon leaves what the first has left over; numbers passed over are charged."""
    first, second = gaussian(20, 8.0), gaussian(200, 8.0)
    spent = spent_under(first, 10)
    left = participations_left(spent, second)
    assert left == pytest.approx(100, abs=1)
    assert refusal(Spent(spent.last + left, spent.charge + second.charge.times(left)), second, spent.last + left + 1)
    allowance = gaussian(20, 8.0)
    assert refusal(Spent(), allowance, 20) is None
    assert refusal(Spent(), allowance, 21) is not None
    dearer = spent_under(gaussian(10, 8.0), 5)
    assert refusal(dearer, allowance, 15) is None
    assert "would make epsilon" in refusal(dearer, allowance, 17)


def test_what_is_left_is_the_most_that_is_not_refused():
    """Also nothing, because of what was spent or because of the number."""
    for spent in (Spent(), Spent(3, gaussian(20, 8.0).charge.times(3)), Spent(3, gaussian(3, 8.0).charge.times(3))):
        allowance = gaussian(20, 8.0)
        left = participations_left(spent, allowance)
        passed = [n for n in range(1, 25) if refusal(spent, allowance, spent.last + n) is None]
        assert passed == list(range(1, left + 1))
