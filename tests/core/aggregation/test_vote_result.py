"""What clients' votes come to: a majority decides, a minority never does."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foltr.core.aggregation.vote_result import (
    LEAST_TALLIES,
    LEAST_VOTERS,
    VOTE_ROUNDS,
    RoundTally,
    Verdict,
    VoteResult,
    result_of_tallies,
    result_of_votes,
)
from foltr.core.learning.comparison import Opinion


def test_what_it_takes():
    """More than half of the updates of all voters, of at least so many clients."""
    for result, verdict in [
        (VoteResult(10, 90, 46, 0), Verdict.TAKE_BACK),
        (VoteResult(10, 90, 45, 0), Verdict.KEEP),
        (VoteResult(10, 90, 0, 46), Verdict.MOVE_ANCHOR),
        (VoteResult(10, 90, 40, 45), Verdict.KEEP),
        (VoteResult(LEAST_VOTERS - 1, 90, 90, 0), Verdict.KEEP),
        (VoteResult(LEAST_VOTERS, 90, 46, 0), Verdict.TAKE_BACK),
        (VoteResult(0, 0, 0, 0), Verdict.KEEP),
    ]:
        assert result.verdict is verdict, result
    votes = {"a": Opinion.WORSE, "b": Opinion.WORSE, "c": Opinion.NONE, "d": Opinion.BETTER}
    found = result_of_votes(votes, {"a": 50, "b": 1, "c": 7, "d": 3})
    assert found == VoteResult(n_voters=4, n_updates=61, n_worse=51, n_better=3)
    assert found.in_words == "of 4 clients by their 61 updates, 51 found it worse and 3 better"
    assert result_of_votes({}, {}) == VoteResult(0, 0, 0, 0)


@given(st.integers(0, 60), st.integers(1, 50), st.data())
def test_fewer_than_half_decide_nothing_alone(n_honest, n_each, data):
    """Whatever they vote while the others have no opinion, and under however many names."""
    sent_by_liars = data.draw(st.integers(0, n_honest * n_each))
    names = data.draw(st.lists(st.sampled_from(Opinion), max_size=sent_by_liars))
    votes = dict.fromkeys((f"honest-{i}" for i in range(n_honest)), Opinion.NONE)
    n_updates = dict.fromkeys(votes, n_each)
    votes |= {f"liar-{i}": lie for i, lie in enumerate(names)}
    n_updates |= {f"liar-{i}": max(1, sent_by_liars // len(names)) for i in range(len(names))}
    assert result_of_votes(votes, n_updates).verdict is Verdict.KEEP


def test_older_rounds_count_as_far_as_noise_needs_them():
    """Five without noise, as many as make the mean precise, at most fifty. Deviations add up as squares do."""
    for deviation, n_counted in [(0.0, LEAST_TALLIES), (0.02 * 100 * math.sqrt(20) - 1e-9, 20), (100.0, VOTE_ROUNDS)]:
        tallies = [RoundTally(100, 60.0, 0.0, deviation)] * 60
        assert result_of_tallies(tallies).n_tallies == n_counted
        assert result_of_tallies(tallies[:3]).n_tallies == 3
    found = result_of_tallies([RoundTally(30, 20.5, -1.0, 3.0), RoundTally(40, 10.0, 2.0, 4.0)])
    assert found == VoteResult(40, 70, 30.5, 1.0, deviation=5.0, n_tallies=2)
    assert found.in_words == (
        "of 70 updates in 2 rounds, 30 found it worse and 1 better, each with noise of standard deviation 5 in it"
    )
    assert result_of_tallies([]).verdict is Verdict.KEEP


def test_a_majority_beyond_the_noise_decides():
    """Over five rounds 250 are half, and noise of 4 deviations is 4 * sqrt(5) * 2 = 17.9."""
    for tally, n, verdict in [
        (RoundTally(100, 51.0, 0.0, 0.0), 5, Verdict.TAKE_BACK),
        (RoundTally(100, 51.0, 0.0, 0.0), 4, Verdict.KEEP),
        (RoundTally(LEAST_VOTERS - 1, 3.0, 0.0, 0.0), 50, Verdict.KEEP),
        (RoundTally(100, 53.5, 0.0, 2.0), 5, Verdict.KEEP),
        (RoundTally(100, 53.6, 0.0, 2.0), 5, Verdict.TAKE_BACK),
        (RoundTally(100, 0.0, 53.6, 2.0), 5, Verdict.MOVE_ANCHOR),
    ]:
        assert result_of_tallies([tally] * n).verdict is verdict, (tally, n)


def test_a_ruined_model_is_seen_through_the_noise_and_liars_never_reach_a_verdict_by_it():
    """Two fifths of liars in 200 drawn federations of 400 rounds; nine of ten honest clients within fifty rounds."""
    rng = np.random.default_rng(3)
    for _ in range(200):
        noisy = 40 + 38 * rng.standard_normal((400, 2))
        tallies = [RoundTally(100, worse, better, 38.0) for worse, better in noisy]
        for newest in range(5, 400, 5):
            assert result_of_tallies(tallies[newest::-1]).verdict is Verdict.KEEP
    rng = np.random.default_rng(3)
    tallies = [RoundTally(100, 90 + 38 * rng.standard_normal(), 0.0, 38.0) for _ in range(50)]
    assert result_of_tallies(tallies).verdict is Verdict.TAKE_BACK
