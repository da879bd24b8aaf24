"""Choosing a method: names, parameters, and what makes no sense together."""

import numpy as np
import pytest
from support.small_rankers import LINEAR, NEURAL, RANKERS, see, trainings

from foltr.core.aggregation.adaptive import assess
from foltr.core.aggregation.rule_spec import MEAN, read_rule, shortfall
from foltr.core.errors import SettingsError
from foltr.core.methods import registry
from foltr.core.methods.base import DeviceContext
from foltr.core.methods.bodies import check_body
from foltr.core.methods.preconditions import LEAST_FOR_ADAPTIVE, remedies, rule_problem
from foltr.core.protocol.explorations import SAFE, SwapsExploration
from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.trainings import LinearRankerSpec, NeuralRankerSpec


def test_every_method_has_a_name_and_parameters():
    """Learned again is neither what another model makes worthless, nor what spends epsilon, nor what is too long."""
    for method in registry.METHODS:
        training = trainings()[method]
        assert registry.spec_of(training).name == method, method
        assert "serp_length" in registry.parameters_of(method), method
        assert "kind" not in registry.parameters_of(method), method
    again = {name for name, training in trainings().items() if registry.learns_from_kept_lists(training, LINEAR)}
    assert again == set(registry.METHODS) - {"foltr-es", "fpdgd-paper"}
    # A message has 256 KiB, of which 4 KiB are for names, settings and a signature.
    most = (256 - 4) * 1024 // 4
    sizes = [LinearRankerSpec(n_features=n) for n in (most, most + 1)]
    assert [registry.learns_from_kept_lists(trainings()["fpdgd"], ranker) for ranker in sizes] == [True, False]


def test_text_becomes_numbers_and_wrong_settings_are_named():
    """One line says which, and what there is."""
    training = registry.training_for("foltr-es", {"noise_scale": "0.05", "antithetic": "false"}, 4)
    assert (training.noise_scale, training.antithetic, training.min_interactions) == (0.05, False, 4)
    for method, parameters, said in [
        ("pdgd", {}, "unknown 'pdgd'; known are fpdgd, fpdgd-paper"),
        ("fpdgd", {"mu": 1}, "mu: fpdgd has no such parameter; it has .*learning_rate"),
        ("fedprox", {"mu": "much"}, "fedprox: mu: "),
        ("fpdgd-paper", {}, "fpdgd-paper: n_clients: "),
        ("fedips", {"logging_policy": "abcd"}, "logging_policy: give a file"),
        ("fedavg", {"logging_policy": 1.0}, "logging_policy: give a file"),
    ]:
        with pytest.raises(SettingsError, match=said) as caught:
            registry.training_for(method, parameters, 5)
        assert "\n" not in str(caught.value), (method, parameters, said)


def test_what_makes_no_sense_is_refused_in_words():
    for method, parameters, interactions, ranker, said in [
        ("fedper", {}, 5, LINEAR, "no hidden layer to share"),
        ("fpdgd-personal", {}, 5, NEURAL, "for linear rankers"),
        ("fedips", {}, 5, NEURAL, "for linear rankers"),
        ("fedavg", {}, 5, NEURAL, "for linear rankers"),
        ("foltr-es", {}, 1, LINEAR, "at least 2 interactions"),
        ("foltr-es", {"truth_probability": 0.05}, 4, LINEAR, "must be above 1/11"),
        ("fedips", {"propensities": "estimated", "position_bias": 0}, 5, LINEAR, "position_bias must be above 0"),
        ("fedips", {"logging_policy": pack_vector([1.0])}, 5, LINEAR, "1 weights; the ranker has 6"),
        ("fedips", {"logging_policy": b"12345"}, 5, LINEAR, "1.25 weights; the ranker has 6"),
        ("fedips", {"logging_policy": pack_vector([np.nan] * 6)}, 5, LINEAR, "must be finite numbers"),
        ("fedavg", {"logging_policy": pack_vector([np.inf] * 6)}, 5, LINEAR, "must be finite numbers"),
        ("fedavg", {"logging_policy": pack_vector([1e38] * 6)}, 5, LINEAR, "finite float32 scores"),
        ("fpdgd-paper", {"n_clients": 3, "epsilon": 1e-6}, 5, LINEAR, r"\* \(1 \+ 80 / epsilon\) is at most that"),
        ("fpdgd-paper", {"n_clients": 3, "sensitivity": 1e6}, 5, LINEAR, "an update 1.88e.07, and one holds 1e.06"),
        ("fpdgd-paper", {"n_clients": 3, "epsilon": 5e-324}, 5, LINEAR, "their noise could make a weight"),
        ("fedips", {"propensities": "estimated", "position_bias": 1e-17}, 5, LINEAR, "1e-17 is too near 0.* to 10"),
        ("fedips", {"position_bias": 10, "serp_length": 100}, 5, LINEAR, "learning_rate: .* 1e-20, .* at most 1e-17"),
        ("fedips", {"position_bias": 2, "learning_rate": 100}, 5, LINEAR, "smallest propensity .* at most 40$"),
        ("fedips", {"propensities": "estimated", "learning_rate": 100}, 5, LINEAR, ", 0.05, .* at most 50$"),
        ("fedprox", {"mu": 10.1}, 5, LINEAR, "overshoot the global model; with this learning_rate mu is at most 10$"),
        ("fedprox", {"mu": 1, "learning_rate": 2}, 5, NEURAL, "learning_rate \\* mu is 2.* at most 0.5$"),
    ]:
        with pytest.raises(SettingsError, match=said) as caught:
            registry.check_method(registry.training_for(method, parameters, interactions), ranker)
        assert "\n" not in str(caught.value), (method, parameters, interactions, ranker, said)


def test_an_update_with_extreme_settings_can_be_sent(rng):
    """What the check lets through at its edge is accepted by the federator's own check of updates."""
    for method, parameters in [
        ("fedprox", {"mu": 10}),
        ("fedprox", {"mu": 10 / 3, "learning_rate": 0.3}),
        ("fpdgd-paper", {"n_clients": 1, "sensitivity": 5.0, "epsilon": 5e-4}),
        ("fedips", {"position_bias": 2, "learning_rate": 40}),
        ("fedips", {"propensities": "estimated", "position_bias": 1e-9}),
        ("fedips", {"propensities": "estimated", "position_bias": 10, "serp_length": 1000}),
        ("fedavg", {"learning_rate": 100}),
        ("fedavg", {"logging_policy": pack_vector([3e37] * 6)}),
    ]:
        training = registry.training_for(method, parameters, 5)
        model = registry.initial_weights(training, LINEAR, rng)
        for seed in range(20):
            device = registry.make_device(training, LINEAR, model, 1, DeviceContext(seed))
            see(device, training, rng)
            check_body(device.body(rng), registry.body_spec(training, LINEAR))


def test_rankers_by_name():
    """The two kinds, with their sizes; of a method the units that it learns, unless others are asked for."""
    assert registry.ranker_for("linear", 6, 64) == LinearRankerSpec(n_features=6)
    assert registry.ranker_for("neural", 6, 3) == NeuralRankerSpec(n_features=6, hidden=3)
    assert registry.ranker_for("neural", 6, 3).n_weights == 3 * 6 + 3 + 3
    for kind, hidden in [("tree", 64), ("neural", 0), ("neural", 10**7)]:
        with pytest.raises(SettingsError):
            registry.ranker_for(kind, 136, hidden)
    for asked, units in ((None, "relu"), ("sigmoid", "sigmoid")):
        ranker = registry.ranker_for("neural", 6, 3, units)
        assert registry.ranker_of_method("foltr-es", "neural", 6, 3, asked) == ranker, asked
    assert registry.ranker_of_method("lambdarank", "linear", 6, 3, None) == registry.ranker_for("linear", 6, 3)
    with pytest.raises(SettingsError, match="a linear ranker has no hidden units"):
        registry.ranker_of_method("fpdgd", "linear", 6, 3, "relu")


def test_foltr_es_is_usually_of_relu_units_that_begin_at_zero(rng):
    """As published; the others are of sigmoid units, which FOLtR-ES can have, too, and which begin with random ones."""
    assert {method: registry.activation_for(method, "neural", None) for method in registry.METHODS} == {
        method: "relu" if method == "foltr-es" else "sigmoid" for method in registry.METHODS
    }
    training = trainings()["foltr-es"]
    for activation in ("relu", "sigmoid"):
        ranker = registry.ranker_for("neural", 6, 3, registry.activation_for("foltr-es", "neural", activation))
        registry.check_method(training, ranker)
        assert ranker.activation == activation
        assert registry.initial_weights(training, ranker, rng).any() == (activation == "sigmoid")
    with pytest.raises(SettingsError, match="fpdgd learns neural rankers of sigmoid units, not of relu ones"):
        registry.check_method(trainings()["fpdgd"], registry.ranker_for("neural", 6, 3, "relu"))
    with pytest.raises(SettingsError, match="a linear ranker has no hidden units"):
        registry.activation_for("foltr-es", "linear", "relu")


LINEAR_ONLY = {"fpdgd-personal", "fedips", "fedavg"}
NEURAL_ONLY = {"fedper"}
ALLOWED = [
    (method, ranker)
    for method in registry.METHODS
    for ranker in RANKERS
    if method not in (NEURAL_ONLY if ranker is LINEAR else LINEAR_ONLY)
]


@pytest.mark.parametrize("rule", [MEAN, read_rule("median", byzantine=1)], ids=lambda rule: rule.text)
def test_a_round_of_every_method(rng, rule):
    """What devices send passes the federator's check and makes a finite new model, or the rule is refused."""
    for method, ranker in ALLOWED:
        training = trainings()[method]
        model = registry.initial_weights(training, ranker, rng)
        assert model.shape == (ranker.n_weights + registry.n_auxiliary(training, ranker),), (method, ranker)
        if rule is not MEAN and method in {"foltr-es", "fpdgd-paper"}:
            with pytest.raises(SettingsError, match=f"{method}.*choose aggregation = mean"):
                registry.check_rule(training, rule)
            with pytest.raises(SettingsError):
                registry.make_aggregation(training, ranker, rule)
            continue
        registry.check_rule(training, rule)
        aggregation = registry.make_aggregation(training, ranker, rule, n_expected=3)
        for seed in range(3):
            device = registry.make_device(training, ranker, model, 7, DeviceContext(seed))
            assert device.weights.shape == (ranker.n_weights,), (method, ranker)
            see(device, training, rng, base_version=7)
            body = device.body(rng)
            check_body(body, registry.body_spec(training, ranker))
            aggregation.add(body, training.min_interactions, client_id=f"device-{seed}")
        following = aggregation.finish(model)
        assert (following.report is None) == (rule is MEAN), (method, ranker)
        assert following.weights.shape == model.shape, (method, ranker)
        assert following.weights.dtype == np.float32, (method, ranker)
        assert np.isfinite(following.weights).all(), (method, ranker)
        assert (following.weights != model).any(), (method, ranker)


def test_an_exploration_is_for_methods_that_draw_their_lists():
    """The others refuse one that is asked for, with the methods that take it."""
    for method in registry.METHODS:
        parameters = {"n_clients": 3} if method == "fpdgd-paper" else {}
        asked = SwapsExploration(probability=0.2)
        if method in {"foltr-es", "fedips", "fedavg"}:
            with pytest.raises(SettingsError, match=f"exploration: {method} .*choose one of fpdgd"):
                registry.training_for(method, parameters, 4, asked)
        else:
            assert registry.training_for(method, parameters, 4, asked).exploration == asked, method
        assert registry.training_for(method, parameters, 4).exploration == SAFE, method


ADAPTIVE = read_rule("adaptive")


def test_adaptive_needs_so_many_as_it_compares():
    """What is refused at start is what the rule itself looks at; the advice can be used as it stands."""
    for n in [1, 2, 3, 4, 5]:
        rows = np.eye(n, 8, dtype=np.float32) + 1.0
        memory = assess(None, [f"c{i}" for i in range(n)], rows, np.ones(n), ADAPTIVE).memory
        is_enough = rule_problem(ADAPTIVE, n) is None
        assert is_enough == bool(memory.clients["n_updates"].any()) == (n >= LEAST_FOR_ADAPTIVE), n
    for rule in ["mean", "krum", "nnm+median", "bulyan"]:
        for n in [1, 5, 11]:
            assert rule_problem(read_rule(rule), n) == shortfall(read_rule(rule), n), (rule, n)
    for rule, n, advice in [
        (ADAPTIVE, 3, "raise clients to 4, or choose another aggregation"),
        (read_rule("krum", byzantine=2), 6, "raise clients to 7, lower byzantine to 1, or choose another aggregation"),
        # Five would do, and seven: 0.2 of six is two.
        (read_rule("krum"), 6, "raise clients to 7, lower byzantine to 1, or choose another aggregation"),
        # Among six Bulyan tolerates nobody; to lower byzantine to 0 would be no advice.
        (read_rule("bulyan", byzantine=1), 6, "raise clients to 7, or choose another aggregation"),
        (read_rule("trimmed-mean", parameters={"beta": 3}), 5, "raise clients to 7, or choose another aggregation"),
    ]:
        assert remedies(rule, n, "raise clients") == advice, (rule, n, advice)
