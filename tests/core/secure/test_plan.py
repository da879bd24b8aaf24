"""A plan's arithmetic: how often a client takes part, and the noise beside what it says."""

import math

import pytest

from foltr.core.errors import SettingsError
from foltr.core.secure.plan import TYPICAL_L1, TYPICAL_MEAN, plan_noise

USUAL = {"clients": 1000, "rounds": 200, "dim": 136, "epsilon": 8.0, "delta": 1e-6, "participations": 20, "helpers": 2}
NOTHING_BESIDE = {"votes": False, "evaluation": False}


def test_the_usual_plan_by_hand():
    """Each client in each 10th of 200 rounds is 20 participations, and 100 of 1,000 clients a round."""
    gaussian, gamma, often, gamma_often = plan_noise(**USUAL, norm_proof="none")
    assert (gaussian.mechanism, gaussian.period, gaussian.clients_per_round) == ("gaussian", 10, 100)
    assert gaussian.sigma / gaussian.bound == pytest.approx(3.083, abs=1e-3)
    assert gaussian.noise_to_update == pytest.approx(math.sqrt(2 * 136) * 3.083 / 100 / TYPICAL_MEAN, rel=1e-3)
    # s = 20 / 8 bounds, whose deviation is sqrt(2) times that, and the L1 norm is 0.75 sqrt(136) times the L2 norm.
    expected = math.sqrt(2 * 136) * math.sqrt(2) * 2.5 * TYPICAL_L1 * math.sqrt(136) / 100 / TYPICAL_MEAN
    assert gamma.noise_to_update == pytest.approx(expected, rel=1e-3)
    assert (often.participations, often.period, often.clients_per_round) == (200, 1, 1000)
    # Ten times as often is sqrt(10) times the noise over ten times as many: of pure epsilon ten over ten.
    assert often.noise_to_update == pytest.approx(gaussian.noise_to_update / math.sqrt(10), rel=1e-3)
    assert gamma_often.noise_to_update == pytest.approx(gamma.noise_to_update, rel=1e-3)


def test_norm_proofs_make_a_plan_dearer_by_what_they_cost():
    """A millionth of the noise of gaussian; of gamma, which turns their rho into an epsilon, less than a hundredth."""
    proven, bare = plan_noise(**USUAL, **NOTHING_BESIDE), plan_noise(**USUAL, norm_proof="none")
    ratios = [one.sigma / other.sigma - 1.0 for one, other in zip(proven, bare, strict=True)]
    assert [0.0 < ratio < most for ratio, most in zip(ratios, (2e-6, 0.002, 2e-5, 0.01), strict=True)] == [True] * 4
    with pytest.raises(SettingsError, match="--norm-proof none, or a smaller --dim"):
        plan_noise(**{**USUAL, "dim": 480_000})


def test_votes_and_evaluations_make_a_plan_of_gaussian_noise_dearer():
    """By three and, with credits, by five per cent; that of gamma has none, nor has any without proofs."""
    both, voting = plan_noise(**USUAL), plan_noise(**USUAL, evaluation=False)
    plain, bare = plan_noise(**USUAL, **NOTHING_BESIDE), plan_noise(**USUAL, norm_proof="none")
    votes, evaluations = math.sqrt(1 + 1 / 16), math.sqrt(1 + (3 / 64 + 1 / 16) / (1 + 1 / 16))
    for planned, than, dearer in ((voting, plain, votes), (both, voting, evaluations)):
        ratios = [one.sigma / other.sigma for one, other in zip(planned, than, strict=True)]
        assert ratios == pytest.approx([dearer, 1.0, dearer, 1.0], rel=1e-4)
    assert bare == plan_noise(**USUAL, norm_proof="none", **NOTHING_BESIDE)


def test_proofs_that_cost_too_much_are_not_planned_with():
    """A small epsilon for many participations leaves too little for them: that noise is planned without, in words."""
    planned = plan_noise(**{**USUAL, "epsilon": 0.1}, **NOTHING_BESIDE)
    bare = plan_noise(**{**USUAL, "epsilon": 0.1}, norm_proof="none")
    assert [one.sigma > other.sigma for one, other in zip(planned, bare, strict=True)] == [True, True, False, False]
    words = "; without norm proofs, which would cost too much (--norm-proof none)"
    assert [one.verdict.endswith(words) for one in planned] == [False, False, True, True]


def test_each_verdict_has_its_words():
    """From as good as no noise to nothing; below a hundred a round nothing is opened, without any there is no round."""
    for epsilon, words in [(8.0, "learns as"), (1.0, "learns, but"), (0.25, "learns little:"), (0.05, "hopeless: the")]:
        assert plan_noise(**{**USUAL, "epsilon": epsilon, "dim": 46})[0].verdict.startswith(words), epsilon
    few, *_ = plan_noise(**{**USUAL, "clients": 990})
    assert few.verdict.endswith("a round wants 100 clients")
    nobody, *_ = plan_noise(**{**USUAL, "clients": 9})
    assert nobody.clients_per_round == 0
    assert math.isinf(nobody.noise_to_update)
    assert nobody.verdict.startswith("hopeless")
    planned = plan_noise(**{**USUAL, "rounds": 5})
    assert [(one.mechanism, one.participations, one.period) for one in planned] == [("gaussian", 5, 1), ("gamma", 5, 1)]


def test_what_cannot_be_planned_is_refused():
    for name, value in [
        *(("clients", 0), ("rounds", 0), ("dim", 0), ("participations", 0), ("helpers", 1), ("helpers", 9)),
        *(("epsilon", 0.0), ("epsilon", math.nan), ("delta", 0.0), ("delta", 1.0)),
    ]:
        with pytest.raises(SettingsError, match=name):
            plan_noise(**{**USUAL, name: value})
