"""Rewards in the secure sums of a simulation: what they add up to with the service's noise, and what is taken back."""

import math

import numpy as np
import pytest
from simulated import config, population, simulated

from foltr.core.aggregation.effectiveness import reward_of_sums
from foltr.core.learning.comparison import Opinion
from foltr.core.methods.registry import make_aggregation
from foltr.core.secure.accounting import default_evaluation_weight, default_vote_weight, least_variance
from foltr_research.simulation.checkpoint import CheckpointPlan
from foltr_research.simulation.clients.crowd import Crowd
from foltr_research.simulation.config import resolve, rule_of
from foltr_research.simulation.declines import Declines
from foltr_research.simulation.learners import Defence, Federation
from foltr_research.simulation.runners import Experience, ReferenceRunner
from foltr_research.simulation.secure_sums import SecureAggregation, secure_sums_of

DIM = 8


def ruled(**values):
    secure = {"privacy": "secure", "participations": 60, "mechanism": "none", "clip_norm": 4.0, "clients": 50}
    fields = {"interactions": 5, "rounds": 40, "eval_every": 1, "evaluation_take_back": True}
    return config(**{**fields, **secure, **values})


def summed(of, rewards, *, hostile=(), votes=(), number=1):
    """What the rewards of so many clients come to, the hostile ones of whom send too long an update."""
    training, ranker = resolve(of, DIM)
    sums, names = secure_sums_of(of, training, ranker), [f"device-{i}" for i in range(len(rewards))]
    said = dict(zip(names, rewards, strict=True))
    aggregation = SecureAggregation(
        make_aggregation(training, ranker),
        sums,
        number,
        len(rewards),
        hostile,
        lambda: dict(zip(names, votes, strict=True)),
        lambda: {name: reward for name, reward in said.items() if reward is not None},
    )
    aggregation.add_rows(np.full((len(rewards), DIM), 0.1, np.float32), np.full(len(rewards), 4), names)
    aggregation.finish(np.zeros(DIM, np.float32))
    return aggregation


@pytest.mark.parametrize("cohorts", [1, 3])
def test_rewards_of_all_cohorts_add_up(cohorts):
    """Those of 0 and 1 to the last one; who says nothing is counted among the updates alone."""
    found = summed(ruled(cohorts=cohorts), [1.0] * 5 + [0.0] * 3 + [None] * 4).evaluation
    assert (found.n_updates, found.reward, found.deviation) == (12, 5.0, 0.0)
    assert summed(ruled().changed(evaluation_take_back=False), [1.0] * 5).evaluation is None


def test_votes_and_rewards_are_told_apart():
    """They lie beside each other in a sum."""
    votes = [Opinion.WORSE] * 5 + [Opinion.BETTER] * 2 + [Opinion.NONE] * 4
    found = summed(ruled(take_back=True), [1.0] * 3 + [0.0] * 8, votes=votes)
    assert (found.tally.worse, found.tally.better, found.evaluation.reward) == (5.0, 2.0, 3.0)


def test_who_is_left_out_of_the_sum_says_nothing():
    """Its norm proof fails, and with it its message."""
    found = summed(ruled(clip_norm=0.1), [1.0] * 7, hostile={"device-0", "device-6"}).evaluation
    assert (found.n_updates, found.reward) == (5, 5.0)


def test_a_reward_is_rounded_at_random():
    """On average it is what it is; a round's error counts that it is drawn."""
    found = [summed(ruled(), [0.3] * 50, number=number).evaluation for number in range(1, 101)]
    assert {float(each.reward).is_integer() for each in found} == {True}
    means = np.array([each.reward / 50 for each in found])
    error = math.sqrt(0.3 * 0.7 / 50)
    assert means.mean() == pytest.approx(0.3, abs=4 * error / 10)
    assert means.std() == pytest.approx(error, rel=0.3)
    assert reward_of_sums(0, found[0]).standard_error == pytest.approx(error, rel=0.5)


@pytest.mark.parametrize("take_back", [False, True])
def test_the_noise_of_rewards_is_what_it_says(take_back):
    """That of every helper and cohort, and more than without them: all three numbers of an evaluation are paid for."""
    of = ruled(mechanism="gaussian", helpers=3, cohorts=2, clip_norm=100.0, take_back=take_back)
    votes = [Opinion.NONE] * 30
    found = [summed(of, [1.0] * 30, votes=votes, number=number).evaluation for number in range(1, 101)]
    deviation = found[0].deviation
    assert np.std([each.reward for each in found]) == pytest.approx(deviation, rel=0.3)
    assert np.mean([each.reward for each in found]) == pytest.approx(30, abs=4 * deviation / 10)
    assert np.mean([each.clicked for each in found]) == pytest.approx(0, abs=4 * deviation / 10)
    sums = secure_sums_of(of, *resolve(of, DIM))
    promise = {"epsilon": 8.0, "delta": 1e-6, "participations": 60, "norm_proofs": True}
    promise["vote_weight"] = default_vote_weight(sums.bound) if take_back else 0
    weight = default_evaluation_weight(sums.bound)
    assert sums.noise == least_variance(sums.bound, evaluation_weight=weight, **promise)
    assert sums.noise > least_variance(sums.bound, **promise)
    assert deviation == pytest.approx(math.sqrt(6 * sums.noise) / weight)


def test_the_longest_client_is_plausible():
    """A sum in which a client has all it may have is not discarded, and one that is far longer is."""
    sums = secure_sums_of(ruled(take_back=True), *resolve(ruled(), DIM))
    beside = [sums.vote_weight] * 2 + [sums.evaluation_weight] * 3
    longest = np.array([sums.bound, *beside], np.int64)
    assert sums.is_plausible(longest, 1)
    assert not sums.is_plausible(longest + np.array([sums.bound, 0, 0, 0, 0, 0]), 1)


def test_a_run_says_what_its_evaluations_weigh():
    """Beside what the promise is, and they lengthen what a device sends."""
    with_rule, without = (simulated(ruled(rounds=1, evaluation_take_back=on)) for on in (True, False))
    assert with_rule.privacy["evaluation_weight"] == 32
    assert without.privacy["evaluation_weight"] is None
    sums = [secure_sums_of(ruled(evaluation_take_back=on), *resolve(ruled(), DIM)) for on in (True, False)]
    assert sums[0].bytes_of_vector(DIM) - sums[1].bytes_of_vector(DIM) == 96


@pytest.mark.parametrize("mechanism", ["none", "gaussian"])
@pytest.mark.parametrize("seed", range(2))
def test_a_ruined_model_is_taken_back_in_three_rounds(seed, mechanism):
    """Its weights are turned round after round 25; devices have no gate, nobody votes, nobody sees an update."""
    of = ruled(seed=seed, mechanism=mechanism, epsilon=1000.0, participations=40)
    people, (training, ranker) = population(of), resolve(of, DIM)
    crowd, first = Crowd(people, of.seed, training.serp_length), np.zeros(DIM, np.float32)
    runner, sums = ReferenceRunner(people, crowd, training, ranker), secure_sums_of(of, training, ranker)
    rest = {"secure": sums, "declines": Declines()}
    learner = Federation(people, runner, training, ranker, first, of.seed, None, Defence(rule_of(of), **rest))
    models, declined = [], {}
    for number in range(1, 32):
        models.append(learner.weights)
        defence = learner.round(number).defence
        if defence is not None and defence.decline is not None:
            declined[number] = defence.decline.base_version
            assert defence.norm_proofs.checked == 50
        if number == 25:
            learner.restore(learner.state() | {"model": -10 * learner.weights})
    assert declined == {28: 20}
    assert np.array_equal(models[28], models[20])


@pytest.mark.parametrize("mechanism", ["none", "gaussian"])
@pytest.mark.parametrize("seed", range(3))
def test_an_honest_federation_loses_no_model(seed, mechanism):
    """Whether noise drowns what is said, or there is none."""
    assert simulated(ruled(seed=seed, mechanism=mechanism)).robustness["declines"] == []


def test_liars_say_what_they_like():
    """The first clients by number, under whichever name they send; the others what they have seen."""
    seen = Experience(np.zeros(3), np.array([0.5, 0.25, 0.75]), 3, np.array([0, 2, 1]))
    declines = Declines(1, 1.0)
    declines.take_lists(seen)
    assert declines.rewards_of({0: "sybil-7", 1: "device-1", 2: "device-2"}) == {
        "sybil-7": 1.0,
        "device-1": 0.75,
        "device-2": 0.25,
    }


TURNED = {
    "attack": "turncoat",
    "attackers": 20,
    "attack_parameters": {"start": 26, "z": 100},
    "liars_vote": "honest",
}


@pytest.mark.parametrize("take_back", [False, True])
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, take_back):
    """What sums said of rounds is part of a checkpoint, with votes beside it and without."""
    of = ruled(rounds=34, mechanism="gaussian", epsilon=1e4, take_back=take_back, **TURNED)
    path, asked = tmp_path / "run.checkpoint", []
    with pytest.raises(KeyboardInterrupt):
        simulated(of, checkpoint=CheckpointPlan(path), stop=lambda: asked.append(1) or len(asked) == 20)
    resumed = simulated(of, checkpoint=CheckpointPlan(path, resume=True))
    assert resumed.outcome() == simulated(of).outcome()
