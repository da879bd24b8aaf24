"""Votes in the secure sums of a simulation: tallies with the service's noise, and what they come to."""

import math

import numpy as np
import pytest
from simulated import check_resumed, config, simulated

from foltr.core.learning.comparison import Opinion
from foltr.core.methods.registry import make_aggregation
from foltr.core.secure.accounting import default_vote_weight, least_variance
from foltr_research.simulation.config import resolve
from foltr_research.simulation.results import rows_of
from foltr_research.simulation.secure_sums import SecureAggregation, secure_sums_of

DIM = 8
# Honest while the model learns, and then as far from it as norm proofs allow.
RUINED = {"attack": "turncoat", "attackers": 4, "attack_parameters": {"start": 12, "z": 4}}


def voting(**values):
    secure = {"privacy": "secure", "participations": 60, "mechanism": "none", "clip_norm": 4.0, "clients": 12}
    return config(interactions=20, rounds=40, eval_every=1, take_back=True, **{**secure, **values})


def decisions(result, verdict):
    return [made for made in result.robustness["decisions"] if made["verdict"] == verdict]


def tallied(of, votes, hostile=(), number=1, length=0.1):
    """What the votes of so many clients come to, the hostile ones of whom send as much too long an update."""
    training, ranker = resolve(of, DIM)
    sums, names = secure_sums_of(of, training, ranker), [f"device-{i}" for i in range(len(votes))]
    inner = make_aggregation(training, ranker)
    aggregation = SecureAggregation(
        inner, sums, number, len(votes), hostile, lambda: dict(zip(names, votes, strict=True))
    )
    rows = np.full((len(votes), DIM), length, np.float32)
    aggregation.add_rows(rows, np.full(len(votes), 4), names)
    aggregation.finish(np.zeros(DIM, np.float32))
    return aggregation.tally


@pytest.mark.parametrize("cohorts", [1, 3])
def test_a_tally_counts_the_votes_of_all_cohorts(cohorts):
    """Without noise to the last one; who has no opinion is an update alone, who is left out of the sum has no vote."""
    votes = [Opinion.WORSE] * 5 + [Opinion.BETTER] * 2 + [Opinion.NONE] * 4
    found = tallied(voting(cohorts=cohorts), votes)
    assert (found.n_updates, found.worse, found.better, found.deviation) == (11, 5.0, 2.0, 0.0)
    assert tallied(voting().changed(take_back=False), votes) is None
    votes = [Opinion.WORSE] * 5 + [Opinion.BETTER] * 2
    found = tallied(voting(clip_norm=0.1), votes, hostile={"device-0", "device-6"})
    assert (found.n_updates, found.worse, found.better) == (5, 4.0, 1.0)


def test_the_noise_of_a_tally_is_what_it_says():
    """That of every helper and cohort, and more than without votes: these are paid for."""
    of = voting(mechanism="gaussian", helpers=3, cohorts=2, clip_norm=100.0)
    found = [tallied(of, [Opinion.WORSE] * 30, number=number) for number in range(1, 201)]
    deviation = found[0].deviation
    assert np.std([each.worse for each in found]) == pytest.approx(deviation, rel=0.2)
    assert np.mean([each.worse for each in found]) == pytest.approx(30, abs=4 * deviation / math.sqrt(200))
    assert np.mean([each.better for each in found]) == pytest.approx(0, abs=4 * deviation / math.sqrt(200))
    sums = secure_sums_of(of, *resolve(of, DIM))
    promise = {"epsilon": 8.0, "delta": 1e-6, "participations": 60, "norm_proofs": True}
    assert sums.noise == least_variance(sums.bound, vote_weight=default_vote_weight(sums.bound), **promise)
    assert sums.noise > least_variance(sums.bound, **promise)
    assert deviation == pytest.approx(math.sqrt(6 * sums.noise) / sums.vote_weight)


def test_a_ruined_model_is_taken_back_by_tallies():
    """Though four of twelve vote to shield it; of five rounds at least."""
    plain, voted = (simulated(voting(**RUINED).changed(take_back=on)) for on in (False, True))
    taken = decisions(voted, "take_back")
    assert taken
    assert all(2 * made["n_worse"] > made["n_updates"] and made["n_tallies"] >= 5 for made in taken)
    assert all(made["round"] > 12 for made in taken)
    assert max(dict(voted.ndcg_at_10)[i] for i in range(30, 41)) > max(dict(plain.ndcg_at_10)[i] for i in range(30, 41))
    assert rows_of(voted.to_dict())[-1]["models_taken_back"] == len(taken)


@pytest.mark.parametrize("lie", ["worse", "better"])
def test_liars_alone_take_nothing_back(lie):
    """They have one vote each."""
    lied = simulated(voting(attackers=4, liars_vote=lie).changed(rounds=25))
    assert not decisions(lied, "take_back")


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path):
    """Tallies are part of a checkpoint."""
    of = voting(**RUINED, mechanism="gaussian", epsilon=1e6).changed(rounds=18)
    check_resumed(of, tmp_path / "run.checkpoint", after=13)
