"""Methods that learn from logged lists: what devices start from, assume, learn and send, alone and in federations."""

import numpy as np
import pytest
from simulated import check_resumed, config, simulated

import foltr_research as fr
from foltr.core.errors import SettingsError
from foltr.core.evaluation.click_models import examination_by_rank
from foltr.core.learning.interaction import Interaction
from foltr.core.learning.linear import rank_by_score, score
from foltr.core.methods.base import DeviceContext
from foltr.core.protocol.fields import pack_vector, unpack_vector
from foltr.core.protocol.trainings import LinearRankerSpec
from foltr_research.simulation.config import check_config
from foltr_research.simulation.counterfactual.exposure import rank_weights, utility_gradient
from foltr_research.simulation.counterfactual.methods import DR, PRPO, SAFE_DR, TRUST_IPS
from foltr_research.simulation.counterfactual.rewards import affine_rewards, position_bias, trust_bias
from foltr_research.simulation.plugins import held

METHODS = ("trust-ips", "dr", "safe-dr", "prpo")
LINEAR = LinearRankerSpec(n_features=6)
POLICY = np.array([-1.0, 1.0, 0.0, 0.0, 2.0, 0.0], np.float32)
MODEL = np.array([0.3, -0.2, 0.1, 0.0, 0.5, -0.4], np.float32)


def device_of(spec, base, known=None, **parameters):
    training = spec.training(logging_policy=pack_vector(POLICY), **parameters)
    of_all = np.concatenate([base, np.zeros(spec.n_auxiliary(training, LINEAR), np.float32)])
    return spec.device(training, LINEAR, of_all, 1, DeviceContext(5, None, known))


@pytest.fixture
def shown(rng):
    features = rng.random((8, 6)).astype(np.float32)
    return Interaction(0, features, np.arange(5), np.array([True, False, True, False, False]))


@pytest.mark.parametrize("spec", [TRUST_IPS, DR, SAFE_DR, PRPO], ids=lambda spec: spec.name)
def test_the_first_model_is_the_logging_policy_and_what_was_learned(spec, shown, rng):
    """From a model of zeros; later models are learned from as they are. Lists are the policy's."""
    device = device_of(spec, np.zeros(6, np.float32), learning_rate=1e-9)
    device.learn(shown, rng)
    sent = unpack_vector(device.body(rng).values)
    np.testing.assert_allclose(sent[:6], POLICY, atol=1e-6)
    assert len(sent) == (6 if spec is TRUST_IPS else 13)
    device = device_of(spec, MODEL, learning_rate=0.05)
    device.learn(shown, rng)
    moved = unpack_vector(device.body(rng).values)[:6]
    assert 0 < np.abs(moved).max() < 0.5
    scores, _ = device.scores(shown.features, exploring=True)
    np.testing.assert_array_equal(rank_by_score(scores, 8), rank_by_score(score(POLICY, shown.features), 8))


@pytest.mark.parametrize("known", [None, np.array([1.0, 0.8, 0.7])])
@pytest.mark.parametrize("trust", [True, False])
def test_a_step_follows_the_utility_by_the_assumed_bias(shown, rng, known, trust):
    """The parameters' bias, or an application's own; clicks below its last known rank are not learned."""
    device = device_of(TRUST_IPS, MODEL, known, position_bias=2.0, trust=trust, temperature=0.5, learning_rate=0.1)
    state = rng.bit_generator.state
    device.learn(shown, rng)
    rng.bit_generator.state = state
    examination = examination_by_rank(2.0, 5) if known is None else known
    bias = (trust_bias if trust else position_bias)(examination)
    k = len(examination)
    rewards = affine_rewards(8, shown.ranking[:k], shown.clicks[:k], bias, 0.1)
    scale = 0.5 * score(POLICY, shown.features).astype(np.float64).std()
    noise = rng.gumbel(size=(64, 8))
    gradient = utility_gradient(score(MODEL, shown.features) / scale, rewards, rank_weights(8), noise)
    step = 0.1 * scale * gradient @ shown.features
    np.testing.assert_allclose(device.weights, MODEL + step, rtol=1e-5, atol=1e-6)


def test_a_narrow_bound_and_a_large_risk_keep_the_policy_near_the_safe_one(shown, rng):
    """PRPO stops, and safe-dr turns back, long before doubly robust learning ends."""
    ends = {}
    for spec, parameters in ((DR, {}), (PRPO, {"clip": 0.95}), (SAFE_DR, {"n_logged": 1})):
        device = device_of(spec, np.zeros(6, np.float32), learning_rate=0.5, trust=False, **parameters)
        for _ in range(300):
            device.learn(shown, rng)
        ends[spec.name] = float(np.abs(device.weights - POLICY).max())
    assert ends["prpo"] < 0.7 * ends["dr"]
    assert ends["safe-dr"] < 0.7 * ends["dr"]


@pytest.mark.parametrize("method", METHODS)
def test_each_learns_in_a_federation_and_resumes(method, tmp_path):
    """By its name alone, from an entry point; a resumed run has the bits of a whole one."""
    of = config(method=method, clicks="trust", logging_fraction=0.2)
    check_config(of)
    result = check_resumed(of, tmp_path / "run.checkpoint", after=2)
    assert held("method", method) is not None
    assert result.final_ndcg > result.ndcg_at_10[0][1]


@pytest.mark.parametrize(
    "more",
    [
        {"privacy": "secure", "clients": 30, "participations": 4, "cohorts": 5, "aggregation": "median"},
        {"aggregation": "nnm+krum", "clients": 8, "byzantine": 1},
        {"aggregation": "adaptive", "clients": 8},
        {"attack": "lie", "attackers": 2, "clients": 8},
        {"population": "type2", "clients": 5},
        {"clicks": ("dbn", "ubm"), "population": "type3", "clients": 4},
        {"clicks_per_round": 5, "logging_fraction": 0.0},
        {"participants": 3, "clicks": "pbm-1"},
    ],
    ids=lambda more: "-".join(map(str, more)),
)
def test_they_meet_the_other_settings(more):
    """Secure sums, rules, attacks, populations, and lists by the newest model."""
    plain = {"method": "prpo", "clicks": "trust", "logging_fraction": 0.2, "clients": 4, "interactions": 2, "rounds": 4}
    result = fr.simulate(**{**plain, **more})
    assert np.isfinite(result.weights).all()
    assert result.weights.any()


def test_what_does_not_fit_is_refused():
    """Neural rankers, votes, other methods' settings, users for another number of grades, runs in blocks."""
    for settings, told in (
        ({"ranker": "neural"}, "prpo: it is a method for linear rankers"),
        ({"take_back": True}, "devices do not draw the lists of prpo by score"),
        ({"parameters": {"clip": 1.5}}, "prpo: clip: Input should be less than or equal to 1"),
        ({"parameters": {"logging_policy": "x"}}, "set logging_fraction instead"),
        ({"clicks": "ubm3"}, "ubm3 has probabilities for 3 grades, the data 5"),
        ({"base_feature": 1}, "prpo draws no lists by score"),
    ):
        with pytest.raises(SettingsError, match=told):
            fr.simulate(**{"method": "prpo", "clients": 3, "rounds": 1, **settings})
    with pytest.raises(SettingsError, match="not run in blocks"):
        simulated(config(method="dr"), runner="block")


def test_hostile_users_ruin_doubly_robust_learning_and_not_prpo():
    """Users like the irrelevant best; the first model is the logging policy's."""
    changes = {}
    for method, parameters in (("dr", {}), ("prpo", {"clip": 0.95})):
        settings = {"clients": 5, "interactions": 4, "rounds": 20, "eval_every": 1, "logging_fraction": 0.1}
        result = fr.simulate(method=method, clicks="poison", learning_rate=1.0, **settings, **parameters)
        changes[method] = result.curve.values[-1] - result.curve.values[1]
    assert changes["dr"] < -0.1
    assert changes["prpo"] > changes["dr"] / 2
