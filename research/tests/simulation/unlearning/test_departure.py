"""A federation that a client leaves: what it sends, what is kept, and what unlearning makes of it."""

from dataclasses import replace

import numpy as np
import pytest
from simulated import config, population, simulated

from foltr.core.errors import SettingsError
from foltr.core.methods.base import NextModel
from foltr.core.protocol.states import Strategy
from foltr.core.unlearning.measures import cosine
from foltr.core.unlearning.schedule import FEWEST_INTERACTIONS, Schedule
from foltr.edge_client.store import store
from foltr_research.simulation.unlearning.departure import Leaver, UnlearningSimulation, turned_round
from foltr_research.simulation.unlearning.kept_interactions import KEPT_INTERACTIONS, drawn
from foltr_research.simulation.unlearning.own_labels import with_reset_labels

ROUNDS = 12
LAST = 4


def simulation(leaver=None, **values):
    of = config(**{"rounds": ROUNDS, "seed": 3, **values})
    return UnlearningSimulation(of, population(of), leaver or Leaver(LAST))


def thesis(strategy: Strategy, interval: int = 10, local_interactions: int = 3) -> Schedule:
    """Every so many-th round, however few steps that makes."""
    return Schedule(strategy, interval, local_interactions, least_steps=1)


def test_an_honest_leaver_changes_nothing():
    """Nor does recording, which has everybody's interactions; without the leaver it is a federation of the others."""
    expected = simulated(config(rounds=ROUNDS, seed=3))
    found = simulation(Leaver(LAST, z=None)).federate().trained
    np.testing.assert_array_equal(found.weights, expected.weights)
    assert found.ndcg == expected.ndcg_at_10
    assert found.interactions == expected.interactions
    expected = simulated(config(rounds=ROUNDS, seed=3, clients=4))
    found = simulation().federate(with_leaver=False)
    np.testing.assert_array_equal(found.trained.weights, expected.weights)
    assert np.isnan(found.lengths[:, LAST]).all()
    plain, recorded = simulation().federate(), simulation().federate(record_every=5)
    np.testing.assert_array_equal(plain.trained.weights, recorded.trained.weights)
    assert sorted(recorded.interactions) == [1, 6, 11]
    assert {client: len(kept) for client, kept in recorded.interactions[6].items()} == dict.fromkeys(range(5), 4)


def test_what_the_leaver_sends():
    """Its model becomes -z times what it learned (equation 6.4): of two clients, the mean has half of it."""
    of = config(rounds=1, clients=2, seed=3)
    people = population(of)
    honest = UnlearningSimulation(of, people, Leaver(1, z=None)).federate()
    alone = UnlearningSimulation(of, people, Leaver(1, z=None)).federate(with_leaver=False)
    poisoned = UnlearningSimulation(of, people, Leaver(1, z=2.0)).federate()
    # The first model is zeros, so a local model is its update.
    other = 2 * honest.trained.weights - alone.trained.weights
    np.testing.assert_allclose(poisoned.trained.weights, (alone.trained.weights - 2 * other) / 2, rtol=1e-5, atol=1e-7)
    assert poisoned.lengths[0, 1] == pytest.approx(2 * honest.lengths[0, 1])
    base, learned = np.array([1.0, -2.0], np.float32), np.array([0.1, 0.2], np.float32)
    np.testing.assert_allclose(base + turned_round(learned, base, 2.0), -2.0 * (base + learned), rtol=1e-6)


def test_a_late_leaver_is_not_there_before():
    """Until it joins, the federation is that of the others, and that model is kept."""
    late = simulation(Leaver(LAST, joined=7)).federate()
    others = simulated(config(rounds=6, seed=3, clients=4))
    assert np.isnan(late.lengths[:6, LAST]).all()
    assert np.isfinite(late.lengths[6:, LAST]).all()
    np.testing.assert_array_equal(late.before_leaver.weights, others.weights)


@pytest.mark.parametrize(("strategy", "steps"), [(Strategy.FED_ERASER, 3), (Strategy.ROLLBACK, 2)])
def test_how_much_is_replayed(strategy, steps):
    """Every fifth round from the first, or from where the leaver joined; retraining replays all, with all lists."""
    of = simulation(Leaver(LAST, joined=6))
    history = of.federate()
    found = of.unlearn(history, thesis(strategy, 5, local_interactions=2))
    assert (found.ndcg[-1][0], found.interactions) == (steps, steps * 4 * 2)
    retrained = of.retrain(history)
    assert (retrained.ndcg[-1][0], retrained.interactions) == (ROUNDS, ROUNDS * 4 * 4)


@pytest.mark.parametrize("interactions", ["fresh", "kept"])
def test_updates_are_as_long_as_the_stored_ones(interactions):
    """A step moves the model by no more than the mean stored length, and by that much where clients agree."""
    of = simulation()
    history = of.federate(record_every=ROUNDS)
    found = of.unlearn(history, thesis(Strategy.FED_ERASER, ROUNDS, local_interactions=2), interactions=interactions)
    mean_length = history.lengths[0, :LAST].mean()
    assert 0.2 * mean_length < np.linalg.norm(found.weights) <= mean_length * (1 + 1e-6)


def test_rollback_starts_before_the_leaver():
    """Where only the newest round is replayed, the model is a step from the one before the leaver came."""
    of = simulation(Leaver(LAST, joined=ROUNDS))
    history = of.federate()
    found = of.unlearn(history, thesis(Strategy.ROLLBACK, 10, local_interactions=4))
    step = np.linalg.norm(found.weights - history.before_leaver.weights)
    assert 0.0 < step <= history.lengths[-1, :LAST].mean() * (1 + 1e-6)


def test_nothing_of_the_leaver_counts():
    """Other updates of the leaver, other recorded lists of it: the retained clients' lengths alone decide."""
    of = simulation(Leaver(LAST, z=None))
    history = of.federate(record_every=1)
    changed = history.lengths.copy()
    changed[:, LAST] *= 1000.0
    logs = {
        number: {client: kept for client, kept in log.items() if client != LAST}
        for number, log in history.interactions.items()
    }
    without = replace(history, lengths=changed, interactions=logs)
    for how in ("fresh", "kept"):
        found = [of.unlearn(one, thesis(Strategy.FED_ERASER, 3), interactions=how) for one in (history, without)]
        np.testing.assert_array_equal(found[0].weights, found[1].weights)


def test_retraining_from_the_kept_log_is_learning_what_was_learned():
    """On the retained clients' lists; in the first round, drawn by the model it began with, to the bit."""
    of = simulation()
    found = of.retrain(of.federate(record_every=1), interactions="kept")
    assert found.interactions == ROUNDS * 4 * 4
    of = simulation(Leaver(LAST, z=None), rounds=1)
    history = of.federate(record_every=1)
    found = of.retrain(history, interactions="kept")
    np.testing.assert_array_equal(found.weights, of.federate(with_leaver=False).trained.weights)
    assert all(one.reversals.any() for kept in history.interactions[1].values() for one in kept)


@pytest.mark.parametrize("how", ["unlearn", "retrain"])
def test_device_code_makes_the_same_model(how):
    """Bit for bit, as everywhere in the simulator."""
    of = simulation()
    history, schedule = of.federate(), [thesis(Strategy.FED_ERASER, 3, local_interactions=2)]
    of_history = [history, *schedule] if how == "unlearn" else [history]
    blocks, devices = (getattr(of, how)(*of_history, runner=kind) for kind in ("auto", "reference"))
    np.testing.assert_array_equal(blocks.weights, devices.weights)


@pytest.mark.parametrize("rule", ["median", "bucketing+geometric-median", "adaptive"])
def test_the_federations_rule_aggregates_the_calibrated_updates_too(rule):
    """Another model than the mean makes, and finite."""
    models = {}
    for name in ("mean", rule):
        of = simulation(aggregation=name, **({} if name in {"mean", "adaptive"} else {"byzantine": 1.0}))
        models[name] = of.unlearn(of.federate(), thesis(Strategy.FED_ERASER, 2, local_interactions=2)).weights
    assert np.isfinite(models[rule]).all()
    assert not np.array_equal(models["mean"], models[rule])


def test_few_participants():
    """Only clients with a stored update take part in a step, and rounds of the leaver alone are left out."""
    of = simulation(participants=1)
    history = of.federate()
    alone = int(np.isfinite(history.lengths[:, LAST]).sum())
    assert alone
    found = of.unlearn(history, thesis(Strategy.FED_ERASER, 1, local_interactions=2))
    assert found.interactions == (ROUNDS - alone) * 2
    of = UnlearningSimulation(
        config(rounds=ROUNDS, clients=2, participants=1, seed=3), population(config(clients=2)), Leaver(1)
    )
    history = of.federate()
    n_others = int(np.isfinite(history.lengths[:, 0]).sum())
    assert 0 < n_others < ROUNDS
    assert of.retrain(history).ndcg[-1][0] == n_others


@pytest.mark.parametrize(
    ("leaver", "values", "told"),
    [
        (Leaver(5), {}, "client 5 of 5"),
        (Leaver(0, joined=0), {}, "joined in round 0"),
        (Leaver(0, joined=ROUNDS + 1), {}, "joined in round 13"),
        (Leaver(0), {"method": "foltr-es"}, "method: foltr-es sends no difference"),
        (Leaver(0), {"method": "fedper", "ranker": "neural"}, "method: fedper"),
    ],
)
def test_what_cannot_be_simulated(leaver, values, told):
    """SettingsError names it."""
    with pytest.raises(SettingsError, match=told):
        simulation(leaver, **values)


def test_what_cannot_be_unlearned():
    """No interactions to learn from, none recorded, the paper's noise, which would be spent twice, no update kept."""
    of = simulation()
    history = of.federate(record_every=2)
    assert isinstance(history.before_leaver, NextModel)
    with pytest.raises(SettingsError, match="local_interactions"):
        of.unlearn(history, thesis(Strategy.FED_ERASER, local_interactions=0))
    with pytest.raises(SettingsError, match="were not recorded"):
        of.unlearn(history, thesis(Strategy.FED_ERASER, 3), interactions="kept")
    noised = simulation(method="fpdgd-paper", rounds=2)
    history = noised.federate(record_every=1)
    with pytest.raises(SettingsError, match="fpdgd-paper learns cannot be learned again"):
        noised.unlearn(history, thesis(Strategy.FED_ERASER), interactions="kept")
    of = simulation()
    history = of.federate()
    for how in (of.remove, of.remove_last, lambda kept: of.ascend(kept, 1)):
        with pytest.raises(SettingsError, match="no update was kept"):
            how(history)


@pytest.mark.parametrize("values", [{}, {"method": "fpdgd", "ranker": "neural"}, {"aggregation": "median"}])
def test_removal_adds_up_the_others_updates_as_they_were_sent(values):
    """Of one round: the rule's result of the others' updates, on the model before."""
    of = simulation(Leaver(LAST, joined=ROUNDS), **values)
    history = of.federate(keep_updates=True)
    last_but_one = history.before_leaver.weights
    sent = history.updates[-1, :LAST]
    expected = (np.median(sent, axis=0) if "aggregation" in values else sent.mean(axis=0)) + last_but_one
    found = of.remove(history)
    np.testing.assert_allclose(found.weights, expected, rtol=1e-5, atol=1e-7)
    assert (found.updates, found.interactions) == (0, 0)


def test_removal_is_retraining_where_nothing_was_learned_from_the_leaver():
    """In the first round all began with the same model; of nobody it changes nothing; of the last it is a mean."""
    of = simulation(rounds=1)
    found = of.remove(of.federate(keep_updates=True))
    np.testing.assert_array_equal(found.weights, of.federate(with_leaver=False).trained.weights)
    of = simulation()
    history = of.federate(with_leaver=False, keep_updates=True)
    np.testing.assert_array_equal(of.remove(history).weights, history.trained.weights)
    of = simulation()
    history = of.federate(keep_updates=True)
    expected = history.before_last.weights + history.updates[-1, :LAST].mean(axis=0)
    np.testing.assert_allclose(of.remove_last(history).weights, expected, rtol=1e-5, atol=1e-7)


def test_removal_goes_on_from_before_the_leaver():
    """Rounds before it joined are as they were; a rule begins with what it remembered then, and remembers on."""
    of = simulation(Leaver(LAST, joined=7))
    history = of.federate(keep_updates=True)
    whole = replace(history, before_leaver=of.start)
    np.testing.assert_array_equal(
        of.remove(history).weights, UnlearningSimulation.remove(simulation(Leaver(LAST)), whole).weights
    )
    of = simulation(Leaver(LAST, joined=7), aggregation="adaptive")
    history = of.federate(keep_updates=True)
    assert history.before_leaver.memory.defence is not None
    assert of.remove(history).model.memory.defence != history.before_leaver.memory.defence


def test_fine_tuning_is_the_federation_going_on_without_the_leaver():
    """From the model of a federation without it: a longer one, bit for bit."""
    of = simulation()
    history = of.federate(with_leaver=False)
    found = of.fine_tune(history, history.trained, 5)
    longer = simulation(rounds=ROUNDS + 5).federate(with_leaver=False).trained
    np.testing.assert_array_equal(found.weights, longer.weights)
    assert (found.interactions, found.updates) == (longer.interactions, longer.updates)
    assert found.ndcg[-1] == (ROUNDS + 5, longer.ndcg[-1][1])


def test_ascent_stays_near_the_others():
    """Within a third of the way to the first model; a step is the opposite of what the leaver would learn next."""
    of = simulation(Leaver(LAST, z=None))
    history = of.federate(keep_updates=True)
    centre = of.remove_last(history).weights
    radius = np.linalg.norm(centre - of.start.weights) / 3
    few, many = of.ascend(history, 1), of.ascend(history, 200)
    assert 0.0 < np.linalg.norm(few.weights - centre) < radius
    assert np.linalg.norm(many.weights - centre) == pytest.approx(radius, rel=1e-5)
    assert (many.updates, many.interactions) == (200, 200 * 4)
    of = UnlearningSimulation(config(rounds=3, clients=2, seed=3), population(config(clients=2)), Leaver(1, z=None))
    history = of.federate(keep_updates=True)
    begun = of.remove_last(history)
    swapped = UnlearningSimulation(
        config(rounds=3, clients=2, seed=3), population(config(clients=2)), Leaver(0, z=None)
    )
    learned = swapped.fine_tune(history, begun, 1).weights - begun.weights
    climbed = of.ascend(history, 1).weights - begun.weights
    assert cosine(climbed, learned) == pytest.approx(-1.0, abs=1e-6)
    assert 0.0 < np.linalg.norm(climbed) <= np.linalg.norm(learned) * (1 + 1e-6)


@pytest.mark.parametrize("interactions", ["fresh", "drawn"])
def test_long_steps_have_the_interactions_of_the_rounds_they_stand_for(interactions):
    """Three steps in place of twelve rounds, and as many interactions; a late leaver's begin where it joined."""
    of = simulation()
    history = of.federate(record_every=1)
    found = of.relearn(history, 4, interactions)
    assert found.ndcg[-1][0] == 3
    assert (found.updates, found.interactions) == (3 * 4, ROUNDS * 4 * 4)
    late = simulation(Leaver(LAST, joined=9), eval_every=4)
    begun = late.federate(record_every=1)
    again = late.relearn(begun, 4, interactions)
    assert (again.ndcg[0][1], again.updates) == (dict(begun.trained.ndcg)[8], 4)


def test_relearning_is_in_the_long_steps_of_the_service():
    """By its schedule: so short a history has a step for each round, of as many interactions, which is retraining."""
    of = simulation(Leaver(LAST, joined=7))
    history = of.federate(record_last=4)
    for how in ("fresh", "drawn"):
        found = of.unlearn(history, thesis(Strategy.RELEARN, 3), interactions=how)
        np.testing.assert_array_equal(found.weights, of.relearn(history, 3, how).weights)
    service = of.unlearn(history, Schedule(Strategy.RELEARN, 3))
    np.testing.assert_array_equal(service.weights, of.relearn(history, 1).weights)
    of = simulation()
    history = of.federate()
    np.testing.assert_array_equal(of.relearn(history, 1).weights, of.retrain(history).weights)
    of = simulation()
    found = of.unlearn(of.federate(), Schedule(Strategy.FED_ERASER))
    assert found.ndcg[-1][0] == ROUNDS
    assert found.interactions == ROUNDS * 4 * FEWEST_INTERACTIONS


def test_drawn_interactions_are_of_the_newest_that_are_kept():
    """A device keeps as many as the service's; who kept fewer than asked for gives all, and the order is drawn."""
    of = simulation()
    history = of.federate(record_last=3)
    assert sorted(history.interactions) == [10, 11, 12]
    rng = np.random.default_rng(1)
    found = drawn(history.interactions, [5, 100, 5, 5, 5], rng)
    assert [len(found[client]) for client in range(5)] == [5, 12, 5, 5, 5]
    kept = [id(one) for log in history.interactions.values() for one in log[1]]
    assert sorted(kept) == sorted(id(one) for one in found[1])
    assert kept != [id(one) for one in found[1]]
    flood = {number: {0: history.interactions[12][0]} for number in range(1, KEPT_INTERACTIONS)}
    flood[KEPT_INTERACTIONS] = {0: history.interactions[10][0]}
    many = drawn({0: {0: history.interactions[11][0]}, **flood}, [10**6], rng)[0]
    assert len(many) == KEPT_INTERACTIONS
    assert not {id(one) for one in many} & {id(one) for one in history.interactions[11][0]}
    assert KEPT_INTERACTIONS == store.KEPT_INTERACTIONS
    of = simulation()
    found = of.unlearn(
        of.federate(record_last=2), thesis(Strategy.FED_ERASER, 4, local_interactions=2), interactions="drawn"
    )
    assert found.interactions == 3 * 4 * 2
    noised = simulation(method="fpdgd-paper", rounds=2)
    with pytest.raises(SettingsError, match="cannot be learned again"):
        noised.relearn(noised.federate(record_last=2), 1, "drawn")


def test_whose_queries_are_measured():
    """The leaver's own by its own labels, those of the others by theirs."""
    of = config(rounds=2, seed=3)
    people = population(of)
    reset = UnlearningSimulation(of, with_reset_labels(people, LAST), Leaver(LAST, z=None))
    plain = UnlearningSimulation(of, people, Leaver(LAST, z=None))
    weights = plain.federate().trained.weights
    assert reset.others_ndcg(weights) == plain.others_ndcg(weights) == plain.own_ndcg(weights)
    assert reset.own_ndcg(weights) < 0.8 * plain.own_ndcg(weights)
