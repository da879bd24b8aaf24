"""What a federator is told at start is checked there, with the key in the message."""

from dataclasses import replace

import pytest

from foltr.core.aggregation.rule_spec import MEAN, read_rule
from foltr.core.errors import SettingsError
from foltr.core.protocol.fields import MAX_DIM
from foltr.core.protocol.schemas import Feature, FeatureSchema
from foltr.core.protocol.states import Pacing
from foltr.core.protocol.trainings import (
    EvolutionTraining,
    FedIpsTraining,
    FedPerTraining,
    FpdgdPaperTraining,
    LinearRankerSpec,
    NeuralRankerSpec,
)
from foltr.federator.plan import FederationPlan
from foltr.federator.round import RoundPolicy

SCHEMA = FeatureSchema(name="shop", version=1, features=[Feature(name="bm25", scaling="ratio")])
BUFFER, MEDIAN = RoundPolicy(1, 3, 0, 10, pacing=Pacing.BUFFERED), RoundPolicy(1, 9, rule=read_rule("median"))
NAN = float("nan")


def test_a_model_has_the_values_that_ranker_and_method_need():
    """A neural ranker has more weights than features, and a method may train more than the ranker."""
    for training, ranker, n_values in [
        (FedPerTraining(), NeuralRankerSpec(n_features=136, hidden=64), 8_832),
        (EvolutionTraining(), LinearRankerSpec(n_features=136), 136),
        (FedIpsTraining(propensities="estimated"), LinearRankerSpec(n_features=136), 136 + 137),
    ]:
        plan = FederationPlan("mail", 136, training=training, chosen_ranker=ranker)
        assert (plan.training, plan.ranker, plan.n_values) == (training, ranker, n_values), training


def test_a_federation_keeps_the_activation_that_it_was_created_with():
    """Where nobody asks for one; another method's, or that of a linear ranker, changes nothing."""
    usual = NeuralRankerSpec(n_features=3, hidden=2, activation="relu")
    plan = FederationPlan("mail", 3, training=EvolutionTraining(), chosen_ranker=usual)
    assert plan.with_activation("sigmoid").ranker == NeuralRankerSpec(n_features=3, hidden=2, activation="sigmoid")
    assert plan.with_activation("relu") == plan.with_activation(None) == plan
    linear = FederationPlan("mail", 3, training=EvolutionTraining())
    fedper = FederationPlan("mail", 3, training=FedPerTraining(), chosen_ranker=NeuralRankerSpec(n_features=3))
    assert (linear.with_activation("relu"), fedper.with_activation("relu")) == (linear, fedper)


def test_a_method_that_cannot_work_is_refused_in_words():
    """Before anything is stored or announced."""
    for n_features, told, plan in [
        (3, "fedper: a linear ranker has no hidden layer", {"training": FedPerTraining()}),
        (3, "foltr-es: antithetic", {"training": EvolutionTraining(min_interactions=1)}),
        (3, "n_features: 3, but the ranker's are 4", {"chosen_ranker": LinearRankerSpec(n_features=4)}),
        (MAX_DIM, f"n_features: {2 * MAX_DIM + 1} values", {"training": FedIpsTraining(propensities="estimated")}),
        (3, "n_features: 3, but the schema has 1", {"schema": SCHEMA}),
        (3, "initial_model: 2 weights; the ranker has 3", {"first_weights": bytes(8)}),
        (3, ".*fpdgd-paper needs deadline", {"policy": BUFFER, "training": FpdgdPaperTraining(n_clients=3)}),
        (3, "aggregation: .*choose aggregation = mean", {"policy": MEDIAN, "training": EvolutionTraining()}),
    ]:
        with pytest.raises(SettingsError, match=f"^{told}"):
            FederationPlan("mail", n_features, **plan)


def test_a_policy_that_cannot_work_is_refused():
    """Contradictions are refused at start, by name; what a number may be is for the settings to say."""
    for key, policy in [
        ("max_clients", {"min_clients": 5, "max_clients": 4}),
        ("max_clients", {"max_clients": 0}),
        ("min_time_s", {"min_time_s": 601.0}),
        ("min_time_s", {"min_time_s": NAN}),
        ("min_time_s", {"max_time_s": NAN}),
        ("over_selection", {"over_selection": 0.5, "pacing": Pacing.BUFFERED}),
    ]:
        with pytest.raises(SettingsError, match=f"^{key}: "):
            FederationPlan("mail", n_features=1, policy=RoundPolicy(**policy))


def test_a_federation_needs_a_name():
    """The name is one level of the topics."""
    for name in ["", "a/b", "+", "mail\n"]:
        with pytest.raises(SettingsError, match=r"^federation: "):
            FederationPlan(name, n_features=1)


def test_a_rule_that_no_round_could_follow_is_refused():
    """The line has how many it needs, how many a round has, and the ways out."""
    for rule, policy, told in [
        (
            read_rule("krum", byzantine=2),
            {"max_clients": 6},
            "krum needs at least 2m [+] 3 = 7 updates .* raise max_clients to 7, lower byzantine to 1, or",
        ),
        (read_rule("bulyan", byzantine=0.2), {"max_clients": 10}, "bulyan needs .* lower byzantine to 1"),
        (read_rule("adaptive"), {"max_clients": 3}, "adaptive needs at least 4 updates .* raise max_clients to 4, or"),
        (read_rule("krum"), {"min_clients": 6, "max_clients": 6}, "krum needs at least 2m [+] 3 = 7 updates"),
    ]:
        with pytest.raises(SettingsError, match=f"^aggregation: {told}"):
            FederationPlan("mail", n_features=1, policy=RoundPolicy(rule=rule, **policy))


def test_rounds_too_small_for_the_rule_are_told_at_start():
    """The warning says which rounds and what becomes of them; otherwise it is silent."""
    for rule, policy, warning in [
        (MEAN, RoundPolicy(1, 10), None),
        (read_rule("krum", byzantine=1), RoundPolicy(5, 10), None),
        (read_rule("adaptive"), RoundPolicy(2, 4), None),
        (
            read_rule("krum", byzantine=1),
            RoundPolicy(2, 10),
            "and there are 2: a round of 2 to 4 updates is aggregated by median",
        ),
        (
            read_rule("krum", fallback="abandon"),
            RoundPolicy(4, 6),
            "and there are 4: a round of 4 or 6 updates is abandoned",
        ),
    ]:
        found = FederationPlan("mail", n_features=1, policy=replace(policy, rule=rule)).rule_warning
        if warning is None:
            assert found is None, rule
        else:
            assert found == f"krum needs at least 2m + 3 = 5 updates to tolerate m = 1 hostile ones, {warning}", rule
