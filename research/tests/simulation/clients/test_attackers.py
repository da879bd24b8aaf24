"""Hostile clients in a simulation: who they are, what they send, and that nothing else of the run changes."""

import dataclasses
import json

import numpy as np
import pytest
from simulated import check_resumed, config, data, population, simulated

from foltr.core.aggregation.rule_spec import MEAN, read_rule
from foltr.core.errors import DataError
from foltr.core.evaluation.click_models import click_model
from foltr.core.methods.aggregations import DeltaAggregation
from foltr.core.methods.registry import initial_weights, make_aggregation
from foltr.core.numerics.streams import first_model_rng
from foltr.core.protocol.fields import MAX_ABS_DELTA
from foltr.core.protocol.updates import EvolutionPair
from foltr_research.attacks.attacked_round import attack_rng, craft
from foltr_research.attacks.registry import ATTACKS, has_parameter, read_attack
from foltr_research.simulation.clients.attackers import AttackedAggregation, with_poisoned_clicks
from foltr_research.simulation.clients.crowd import Crowd
from foltr_research.simulation.config import resolve
from foltr_research.simulation.federated import run
from foltr_research.simulation.learners import participants_of
from foltr_research.simulation.runners import ReferenceRunner

BASE = np.zeros(3, np.float32)
ROWS = np.array([[1.0, 2.0, 3.0], [2.0, 2.0, 2.0], [3.0, 1.0, 1.0], [1.0, 1.0, 1.0]], np.float32)
NAMES = ["device-001", "device-002", "device-003", "device-004"]


def attacked(name, hostile=("device-001",), rule=MEAN, **parameters):
    """An aggregation of four updates of which some are replaced."""
    aggregation = AttackedAggregation(
        DeltaAggregation(3, rule=rule), read_attack(name, parameters), hostile, 4, rule, attack_rng(1, 1), 1
    )
    aggregation.add_rows(ROWS.copy(), np.array([1, 1, 1, 1]), NAMES)
    return aggregation


def test_only_the_attackers_rows_are_replaced():
    """The mean of three honest updates and one that is negated, or as large as may be; seeds cannot be attacked."""
    expected = np.array([(-1 + 2 + 3 + 1) / 4, (-2 + 2 + 1 + 1) / 4, (-3 + 2 + 1 + 1) / 4], np.float32)
    np.testing.assert_array_equal(attacked("sign-flip").finish(BASE).weights, expected)
    aggregation = attacked("huge")
    assert (aggregation.finish(BASE).weights <= -MAX_ABS_DELTA / 4 + 10).all()
    assert aggregation.refused == ()
    with pytest.raises(DataError):
        attacked("lie").add(EvolutionPair(seed=1, plus=0.5), 4, client_id="device-001")


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("not-finite", {}),
        ("not-finite", {"value": "inf"}),
        ("huge", {"size": 2 * MAX_ABS_DELTA}),
        ("huge", {"size": 3e38}),
    ],
)
@pytest.mark.parametrize("rule", [MEAN, read_rule("median", byzantine=1)])
def test_what_no_message_may_hold_is_left_out(name, parameters, rule):
    """As a federator's intake refuses it: the round goes on with the others."""
    aggregation = attacked(name, rule=rule, **parameters)
    following = aggregation.finish(BASE)
    assert aggregation.refused == ("device-001",)
    without = DeltaAggregation(3, rule=rule)
    without.add_rows(ROWS[1:], np.array([1, 1, 1]), NAMES[1:])
    np.testing.assert_array_equal(following.weights, without.finish(BASE).weights)


def test_a_round_of_refused_or_absent_clients_makes_no_new_model():
    """With nothing but attackers among those drawn, the model stays."""
    aggregation = attacked("not-finite", hostile=NAMES)
    np.testing.assert_array_equal(aggregation.finish(BASE + 1).weights, BASE + 1)
    assert len(aggregation.refused) == 4
    one = AttackedAggregation(Given(3), read_attack("late-joiners"), NAMES, 4, MEAN, attack_rng(1, 1), 1)
    one.add_rows(ROWS.copy(), np.array([1, 1, 1, 1]), NAMES)
    np.testing.assert_array_equal(one.finish(BASE + 1).weights, BASE + 1)
    assert one.refused == ()


class Given(DeltaAggregation):
    """A mean that remembers whose updates it was given."""

    def add_rows(self, values, n_interactions, client_ids):
        self.names = list(client_ids)
        super().add_rows(values, n_interactions, client_ids)


def in_round(number, name, **parameters):
    """What a round's aggregation is given of the first and the third of four clients who attack, and the model."""
    given = Given(3)
    spec = read_attack(name, parameters)
    one = AttackedAggregation(given, spec, (NAMES[0], NAMES[2]), 4, MEAN, attack_rng(1, number), number)
    one.add_rows(ROWS.copy(), np.array([1, 1, 1, 1]), NAMES)
    following = one.finish(BASE)
    return given.names, following.weights, one.refused


def test_sybils_come_under_other_names_and_late_joiners_are_not_there_at_first():
    """In the order of the names they come under, by which they are refused; the rule is not given who is absent."""
    settings = {"life": 2, "towards": "update", "z": 1}
    assert in_round(2, "sybils", **settings)[0] == NAMES
    names, weights, _ = in_round(3, "sybils", **settings)
    assert names == ["device-001.2", "device-002", "device-003.2", "device-004"]
    np.testing.assert_array_equal(weights, (ROWS * [[-1], [1], [-1], [1]]).sum(axis=0) / 4)
    names, _, refused = in_round(3, "sybils", life=2, towards="update", z=MAX_ABS_DELTA)
    assert refused == ("device-001.2", "device-003.2")
    assert names == ["device-002", "device-004"]
    names, weights, refused = in_round(6, "late-joiners", start=7)
    assert (names, refused) == (["device-002", "device-004"], ())
    np.testing.assert_array_equal(weights, (ROWS[1] + ROWS[3]) / 2)
    assert in_round(7, "late-joiners", start=7)[0] == NAMES


def runs_of(of, **how):
    return tuple(simulated(of, runner=kind, **how) for kind in ("reference", "block"))


@pytest.mark.parametrize("name", ATTACKS)
def test_blocks_equal_the_reference_under_attack(name):
    """The same models, bit for bit, with some clients in a round; and another than without the attack."""
    start = {"start": 1} if has_parameter(name, "start") else {}
    of = config(
        clients=7,
        participants=6,
        attack=name,
        attackers=3,
        attack_parameters=start,
        aggregation="multi-krum",
        byzantine=1,
        clicks="informational",
    )
    reference, block = runs_of(of)
    np.testing.assert_array_equal(reference.weights, block.weights)
    assert reference.robustness == block.robustness
    honest = simulated(of.changed(attack=None, attackers=0, attack_parameters={}))
    assert (honest.weights != block.weights).any()


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("fpdgd", {"ranker": "neural", "hidden": 3}),
        ("fedper", {"ranker": "neural", "hidden": 3}),
        ("fedprox", {}),
        ("fedips", {}),
        ("fedavg", {}),
    ],
)
@pytest.mark.parametrize("aggregation", ["mean", "trimmed-mean", "nnm+krum"])
def test_every_method_of_differences_can_be_attacked_and_defended(method, more, aggregation):
    """Bit for bit the same with either runner, full knowledge included."""
    of = config(
        method=method,
        clients=7,
        aggregation=aggregation,
        byzantine=2,
        attack="fang-trimmed-mean",
        attackers=2,
        attack_parameters={"knowledge": "full"},
        **more,
    )
    reference, block = runs_of(of)
    np.testing.assert_array_equal(reference.weights, block.weights)
    assert (simulated(of.changed(attack=None, attackers=0, attack_parameters={})).weights != block.weights).any()


def test_clicks_can_be_poisoned_with_every_method():
    """Whatever is sent, what is clicked can be a lie."""
    for method in ["foltr-es", "fpdgd-personal", "fpdgd-paper", "pdgd", "pdgd-batch", "local"]:
        of = config(method=method, attack="clicks", attackers=2)
        assert (
            simulated(of).outcome()["ndcg_at_10"]
            != simulated(of.changed(attack=None, attackers=0)).outcome()["ndcg_at_10"]
        )


def test_a_round_by_hand():
    """Round 3 of a federation with some clients drawn: `craft` on what the attackers among them had learned."""
    of = config(clients=12, participants=8, rounds=1, attack="lie", attackers=5, attack_parameters={"z": 1.5}, seed=4)
    people = population(of)
    training, ranker = resolve(of, 8)
    first = initial_weights(training, ranker, first_model_rng(of.seed))
    drawn = participants_of(of.seed, 1, 12, 8)

    class Kept:
        def __init__(self):
            self.rows, self.names = [], []

        def add(self, body, n_interactions, staleness_weight=1.0, client_id=""):  # noqa: ARG002 (it only keeps)
            self.rows.append(np.frombuffer(body.values, "<f4"))
            self.names.append(client_id)

    kept = Kept()
    ReferenceRunner(people, Crowd(people, of.seed, 10), training, ranker).run(first, 0, drawn, kept)
    rows = np.array(kept.rows)
    hostile = drawn < 5
    assert 0 < hostile.sum() < 5, "some attackers are not drawn"
    honest = rows.astype(np.float64)
    rows[hostile] = craft(read_attack("lie", {"z": 1.5}), honest[hostile], None, 8, MEAN, attack_rng(of.seed, 1))
    aggregation = make_aggregation(training, ranker)
    aggregation.add_rows(rows, np.full(8, of.interactions), kept.names)
    np.testing.assert_array_equal(simulated(of).weights, aggregation.finish(first).weights)


def test_attackers_are_the_first_by_number():
    """Not by name: device-1000 is before device-101 in the federator's order."""
    of = config(clients=1001, rounds=1, interactions=1, attack="not-finite", attackers=101)
    refused = simulated(of).robustness["refused"]
    assert set(refused) == {f"device-{i:03d}" for i in range(1, 102)}


def test_poisoned_users_differ_in_nothing_but_clicks():
    """The same queries and streams; the others are untouched."""
    people = population(config(clients=5, clicks="navigational"))
    poisoned = with_poisoned_clicks(people, 2)
    assert [client.click_models[0].name for client in poisoned.clients] == ["poison"] * 2 + ["navigational"] * 3
    for before, after in zip(people.clients, poisoned.clients, strict=True):
        assert dataclasses.replace(after, click_models=before.click_models).n_interactions == before.n_interactions
        assert after.queries is before.queries
    crowds = [Crowd(of, 1, 10).intend(np.arange(5)) for of in (people, poisoned)]
    np.testing.assert_array_equal(crowds[0].picks, crowds[1].picks)
    np.testing.assert_array_equal(crowds[0].draws, crowds[1].draws)
    # Poison is of the data's grades: three have another table than five.
    low = dataclasses.replace(population(config(clicks="perfect")), datasets=(data(n_grades=3)[0],))
    perfect = tuple(dataclasses.replace(client, click_models=(click_model("perfect", 3),)) for client in low.clients)
    poisoned = with_poisoned_clicks(dataclasses.replace(low, clients=perfect), 1)
    assert poisoned.clients[0].click_models[0].click_probability == (1.0, 0.5, 0.0)


def test_online_metrics_are_of_honest_users():
    """Attackers' lists and rankers do not count; without honest users there is no figure."""
    of = config(clients=4, rounds=1, parameters={"learning_rate": 1e-9}, attack="sign-flip", attackers=1)
    people = population(of)
    found = run(of, people)
    training, ranker = resolve(of, 8)
    aggregation = make_aggregation(training, ranker)
    first = initial_weights(training, ranker, first_model_rng(of.seed))
    everybody = ReferenceRunner(people, Crowd(people, of.seed, 10), training, ranker).run(
        first, 0, np.arange(4), aggregation
    )
    assert found.online_per_round[0] == pytest.approx(everybody.ndcg[1:].mean(), abs=1e-12)
    assert found.reciprocal_ranks[0] == pytest.approx(everybody.reciprocal_ranks[1:].mean(), abs=1e-12)
    assert found.interactions == 16, "attackers show lists too"
    of = config(clients=3, participants=1, rounds=30, attack="sign-flip", attackers=1)
    online = simulated(of).online_per_round
    hostile_rounds = [participants_of(of.seed, number, 3, 1)[0] == 0 for number in range(1, 31)]
    assert any(hostile_rounds)
    np.testing.assert_array_equal(np.isnan(online), hostile_rounds)
    of = config(method="local", attack="clicks", attackers=2, clients=5)
    honest = simulated(of.changed(attack=None, attackers=0))
    found = simulated(of)
    assert found.data["clients_evaluated"] == 3
    assert honest.data["clients_evaluated"] == 5


def test_what_a_rule_did_is_counted():
    """Krum keeps one update of seven, so six are dropped a round; beyond its bounds it says so, a mean nothing."""
    of = config(clients=7, rounds=3, aggregation="krum", byzantine=2, attack="huge", attackers=2)
    robustness = simulated(of).robustness
    assert robustness["attackers"] == ["device-001", "device-002"]
    assert sum(robustness["dropped"].values()) == 18
    assert robustness["dropped"]["device-001"] == robustness["dropped"]["device-002"] == 3
    assert set(robustness["honest_dropped"]) <= {f"device-{i:03d}" for i in range(3, 8)}
    assert robustness["honest_dropped"]
    rows = simulated(of).rows()
    assert rows[-1]["updates_dropped"] == 18
    assert rows[-1]["honest_updates_dropped"] == 12
    assert rows[-1]["fallback_rounds"] == rows[-1]["abandoned_rounds"] == 0
    assert rows[-1]["attack"] == "huge"
    of = config(clients=10, rounds=2, aggregation="krum", byzantine=4, aggregation_parameters={"beyond_bounds": True})
    assert simulated(of).robustness["beyond_bounds_rounds"] == 2
    result = simulated(config())
    assert result.robustness is None
    assert result.rows()[0]["fallback_rounds"] is None


def test_the_record_knows_hostile_clients_by_all_their_names():
    """What is dropped of sybils is not dropped of honest clients, and who is not there is not dropped."""
    settings = {"towards": "update", "z": 100}
    krum = config(clients=7, rounds=4, aggregation="krum", byzantine=2, attackers=2, attack="sybils")
    result = simulated(krum.changed(attack_parameters={"life": 2, **settings}))
    robustness = result.robustness
    assert robustness["attackers"] == ["device-001", "device-001.2", "device-002", "device-002.2"]
    assert {name: robustness["dropped"][name] for name in robustness["attackers"]} == dict.fromkeys(
        robustness["attackers"], 2
    )
    assert set(robustness["honest_dropped"]) <= {f"device-{i:03d}" for i in range(3, 8)}
    assert result.rows()[-1]["honest_updates_dropped"] == 4 * 6 - 8
    robustness = simulated(krum.changed(attack="late-joiners", attack_parameters={"start": 4, **settings})).robustness
    assert robustness["fallback_rounds"] == 3
    assert robustness["dropped"].get("device-001", 0) == robustness["dropped"].get("device-002", 0) == 1
    assert robustness["refused"] == {}


def test_sums_that_hide_updates_have_them_too():
    """What a name changes there is the cohort."""
    for name in ["sybils", "late-joiners"]:
        parameters = {"life": 1} if name == "sybils" else {"start": 2}
        secure = {"privacy": "secure", "mechanism": "none"}
        of = config(clients=8, rounds=3, attack=name, attackers=2, attack_parameters=parameters, **secure)
        honest = of.changed(attack=None, attackers=0, attack_parameters={})
        assert (simulated(of).weights != simulated(honest).weights).any()


def test_rounds_with_too_few_updates_are_counted():
    """What intake refuses leaves Krum with five of seven: the fallback, or no model at all. All of it is JSON."""
    of = config(clients=7, rounds=3, aggregation="krum", byzantine=2, attack="not-finite", attackers=2)
    fell_back = simulated(of)
    assert fell_back.robustness["fallback_rounds"] == 3
    assert fell_back.robustness["refused"] == {"device-001": 3, "device-002": 3}
    assert np.any(fell_back.weights)
    abandoned = simulated(of.changed(aggregation_fallback="abandon"))
    assert abandoned.robustness["abandoned_rounds"] == 3
    assert not np.any(abandoned.weights), "the first model stays"
    of = config(clients=7, aggregation="adaptive", byzantine=2, attack="not-finite", attackers=3)
    read = json.loads(json.dumps(simulated(of).to_dict(), allow_nan=False))
    assert read["robustness"]["refused"].keys() == {"device-001", "device-002", "device-003"}


@pytest.mark.parametrize(
    ("aggregation", "name"),
    [("adaptive", "fang-krum"), ("adaptive", None), ("bucketing+median", "fang-trimmed-mean"), ("krum", "clicks")],
)
@pytest.mark.parametrize("kind", ["reference", "block"])
def test_a_resumed_run_remembers_its_defence(tmp_path, aggregation, name, kind):
    """Stopped after two rounds: the same models, counts and findings as without a stop."""
    hostile = {"attack": name, "attackers": 2 if name else 0}
    of = config(clients=8, rounds=6, aggregation=aggregation, byzantine=1, participants=7, **hostile)
    check_resumed(of, tmp_path / "run.checkpoint", after=2, runner=kind)
