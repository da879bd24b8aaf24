"""A configuration is one record that says everything, or one line that says what is wrong with it."""

import json

import pytest

from foltr.core.aggregation.rule_spec import MEAN, read_rule
from foltr.core.errors import SettingsError
from foltr.core.methods.registry import METHODS
from foltr.core.protocol.trainings import EvolutionTraining, FpdgdPaperTraining, PdgdTraining
from foltr_research.attacks.registry import read_attack
from foltr_research.simulation.config import SimulationConfig, attack_of, check_config, resolve, rule_of
from foltr_research.simulation.method_names import SIMULATOR_METHODS, all_methods, simulated_parameters_of

SECURE = {"privacy": "secure"}
OF_SECURE_SUMS = ("epsilon", "cohorts", "helpers", "participations", "clip_norm")


def test_it_survives_json():
    """A configuration read from its own JSON equals it, and numbers as text are the same numbers."""
    config = SimulationConfig(method="fedprox", parameters={"mu": 0.1}, clicks=("perfect", "poison"), fold=2)
    assert SimulationConfig.read(json.loads(json.dumps(config.model_dump(mode="json")))) == config
    one = SimulationConfig(parameters={"learning_rate": "0.2", "antithetic": "true"})
    assert one == SimulationConfig(parameters={"antithetic": True, "learning_rate": 0.2})
    assert SimulationConfig(clicks="perfect").clicks == ("perfect",)


def test_what_every_method_is_told():
    """Interactions, or the least and the greatest of quantities; fpdgd-paper's n is the number of participants."""
    for method in METHODS:
        ranker = "neural" if method == "fedper" else "linear"
        training, _ = resolve(SimulationConfig(method=method, ranker=ranker, interactions=3), 7)
        assert (training.min_interactions, training.max_interactions) == (3, 3)
    for method in SIMULATOR_METHODS:
        assert isinstance(resolve(SimulationConfig(method=method), 7)[0], PdgdTraining)
    assert set(all_methods()) == {*METHODS, *SIMULATOR_METHODS}
    assert all(simulated_parameters_of(method) for method in all_methods())
    training, _ = resolve(SimulationConfig(method="fpdgd-paper", clients=9, participants=4), 7)
    assert isinstance(training, FpdgdPaperTraining)
    assert training.n_clients == 4
    training, _ = resolve(SimulationConfig(method="fpdgd-paper", parameters={"n_clients": 5}), 7)
    assert training.n_clients == 5
    config = SimulationConfig(population="type4", quantities=(2, 9), method="foltr-es")
    training, _ = resolve(config, 7)
    assert isinstance(training, EvolutionTraining)
    assert (training.min_interactions, training.max_interactions) == (2, 9)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"method": "fpgdd"}, "known are fpdgd"),
        ({"parameters": {"rate": 1}}, "fpdgd has no such parameter; it has"),
        ({"parameters": {"learning_rate": -1}}, "learning_rate"),
        ({"method": "lambdarank", "parameters": {"mu": 1}}, "lambdarank has no such parameter"),
        ({"method": "lambdarank", "parameters": {"learning_rate": 0}}, "not a number above 0"),
        ({"method": "lambdarank", "ranker": "neural"}, "choose ranker = linear"),
        ({"method": "lambdarank", "participants": 3}, "participants: lambdarank .* leave it out"),
        ({"clicks": "prefect"}, "unknown click model 'prefect'"),
        ({"clicks": "fedips-500"}, "fedips-500: allowed is an exponent from 0 to 4 with lists of 10"),
        ({"clicks": "pbm-4.1"}, "pbm-4.1: allowed is an exponent from 0 to 4 with lists of 10"),
        ({"clicks": "fedips-2", "parameters": {"serp_length": 200}}, "from 0 to 1.73 with lists of 200"),
        ({"method": "fedper"}, "choose ranker = neural"),
        ({"participants": 11}, "11 of 10 clients"),
        ({"clicks_per_round": 3}, "fedips and fedavg, not fpdgd"),
        ({"logging_fraction": 0.1}, "fedips and fedavg, not fpdgd"),
        ({"method": "fedips", "parameters": {"logging_policy": "x"}}, "logging_fraction"),
        ({"method": "foltr-es", "interactions": 1}, "at least 2 interactions"),
        ({"method": "foltr-es", "population": "type4"}, "at least 2 interactions"),
        (
            {"method": "foltr-es", "shared_fraction": 0.1, "warm_up_interactions": 5},
            "warm_up_interactions: for methods by PDGD",
        ),
        ({"shared_alpha": 0.1}, "shared_fraction"),
        ({"shared_fraction": 0.1, "population": "type1"}, "not type1"),
        ({"aggregation": "krumm"}, "aggregation: .*krum"),
        ({"aggregation": "krum", "aggregation_parameters": {"beta": 1}}, "beta"),
        ({"aggregation": "krum", "byzantine": 4}, "2m . 3 = 11 .* there are 10; .* beyond_bounds=true"),
        (
            {"aggregation": "adaptive", "clients": 3},
            "adaptive needs at least 4 updates .*; raise clients to 4, or choo",
        ),
        ({"aggregation": "adaptive", "participants": 3}, "adaptive needs at least 4 updates .*; raise participants to"),
        ({"aggregation": "krum", "byzantine": 2, "participants": 6}, "there are 6"),
        ({"aggregation": "median", "byzantine": -1}, "byzantine"),
        ({"aggregation": "median", "aggregation_fallback": "give-up"}, "aggregation_fallback"),
        ({"aggregation": "median", "method": "foltr-es"}, "foltr-es sends seeds .* choose aggregation = mean"),
        ({"aggregation": "median", "method": "fpdgd-paper"}, "noise .* choose aggregation = mean"),
        ({"aggregation": "median", "method": "pdgd"}, "pdgd has no federator"),
        ({"attack": "lies", "attackers": 1}, "unknown 'lies'; known are clicks"),
        ({"attack": "lie", "attackers": 1, "attack_parameters": {"epsilon": 1}}, "lie has no such parameter"),
        ({"attackers": 3}, "attackers need an attack"),
        ({"attack_parameters": {"z": 1}}, "attackers need an attack"),
        ({"attack": "lie", "attackers": 5}, "5 of 10 clients; fewer than half"),
        ({"attack": "lie", "attackers": 1, "method": "foltr-es"}, "choose attack = clicks, or another method"),
        ({"attack": "lie", "attackers": 1, "method": "local"}, "local has no updates .* choose attack = clicks"),
        ({"attack": "clicks", "attackers": 1, "method": "lambdarank"}, "lambdarank learns from relevance grades"),
        ({"take_back": True, "method": "foltr-es"}, "take_back: devices do not draw the lists of foltr-es by score"),
        ({"take_back": True, "method": "pdgd"}, "take_back: pdgd has no devices that could vote"),
        ({"take_back": True, "method": "fpdgd-paper"}, "take_back: fpdgd-paper adds noise"),
        ({**SECURE, "take_back": True, "mechanism": "gamma"}, "take_back: votes in secure sums go with gauss"),
        ({**SECURE, "take_back": True, "norm_proof": "none"}, "take_back: in a secure sum each vote needs a"),
        ({"liars_vote": "worse"}, "liars_vote: nobody votes"),
        ({"base_feature": 1, "method": "foltr-es"}, "base_feature: foltr-es draws no lists"),
        ({"base_feature": 1, "method": "pdgd"}, "base_feature: pdgd draws no lists"),
        ({**SECURE, "method": "foltr-es", "interactions": 4}, "foltr-es sends seeds"),
        ({**SECURE, "method": "fpdgd-paper"}, "fpdgd-paper adds noise itself"),
        ({**SECURE, "method": "pdgd"}, "pdgd has no federator"),
        ({**SECURE, "participants": 3}, "participants: "),
        ({**SECURE, "population": "type4"}, "exactly as many interactions"),
        ({**SECURE, "method": "fedips", "clicks_per_round": 3}, "exactly as many interactions"),
        ({**SECURE, "aggregation": "adaptive"}, "adaptive judges by each client's history"),
        ({**SECURE, "aggregation": "median", "cohorts": 1}, "with cohorts = 1 a round has one"),
        ({**SECURE, "aggregation": "krum", "byzantine": 2, "cohorts": 6}, "there are 6; raise cohorts to 7"),
        ({**SECURE, "epsilon": 0}, "epsilon"),
        ({**SECURE, "helpers": 1}, "helpers"),
        ({**SECURE, "norm_proof": "l1"}, "norm_proof"),
        *(({name: 3}, f"{name}: only for secure sums; add privacy = secure") for name in OF_SECURE_SUMS),
        ({"norm_proof": "none"}, "norm_proof: only for secure sums"),
        ({"client": 3}, "client: there is no such field"),
        ({"clients": 0}, "clients: .*not 0"),
        ({"population": "type5"}, "population: .*'type1'"),
        ({"clicks": ()}, "clicks: .*at least one"),
        ({"clients": 0, "rounds": "many"}, "clients: .*; rounds: "),
    ],
)
def test_contradictions_are_one_line(values, words):
    """A setting that makes no sense, by itself or with another, is refused with the reason."""
    with pytest.raises(SettingsError, match=words) as refused:
        check_config(SimulationConfig.read(values))
    assert "\n" not in str(refused.value)


def test_rules_and_attacks_are_read_from_a_configuration():
    """With their parameters as numbers; without attackers nobody attacks, so that a sweep may begin at 0."""
    config = SimulationConfig(
        aggregation="nnm+trimmed-mean",
        byzantine=3,
        aggregation_fallback="abandon",
        attack="lie",
        attackers=3,
        attack_parameters={"z": "1.5"},
    )
    check_config(config)
    assert rule_of(config) == read_rule("nnm+trimmed-mean", byzantine=3, fallback="abandon")
    assert attack_of(config) == read_attack("lie", {"z": 1.5})
    nobody = config.changed(attackers=0)
    check_config(nobody)
    assert attack_of(nobody) is None
    assert rule_of(SimulationConfig()) == MEAN


def test_the_steepest_gamma_that_is_allowed():
    """The bound is on the last document shown: the shorter the list, the steeper; of one document any."""
    for clicks, serp_length in (("fedips-4", 10), ("fedips-5.7", 5), ("fedips-500", 1)):
        check_config(SimulationConfig(clicks=clicks, parameters={"serp_length": serp_length}))
