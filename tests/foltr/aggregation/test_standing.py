"""What clients' votes come to: a majority decides, a minority never does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foltr.aggregation.standing import LEAST_VOTERS, Standing, Verdict, standing_of
from foltr.learning.comparison import Opinion


def test_every_voter_is_counted_by_its_updates():
    """Those without an opinion count among the voters alone."""
    votes = {"a": Opinion.WORSE, "b": Opinion.WORSE, "c": Opinion.NONE, "d": Opinion.BETTER}
    found = standing_of(votes, {"a": 50, "b": 1, "c": 7, "d": 3})
    assert found == Standing(n_voters=4, n_updates=61, n_worse=51, n_better=3)
    assert found.in_words == "of 4 clients by their 61 updates, 51 found it worse and 3 better"
    assert standing_of({}, {}) == Standing(0, 0, 0, 0)


@pytest.mark.parametrize(
    ("standing", "verdict"),
    [
        pytest.param(Standing(10, 90, 46, 0), Verdict.TAKE_BACK, id="most find it worse"),
        pytest.param(Standing(10, 90, 45, 0), Verdict.KEEP, id="half find it worse"),
        pytest.param(Standing(10, 90, 0, 46), Verdict.MOVE_ANCHOR, id="most find it better"),
        pytest.param(Standing(10, 90, 40, 45), Verdict.KEEP, id="no majority"),
        pytest.param(Standing(LEAST_VOTERS - 1, 90, 90, 0), Verdict.KEEP, id="too few to tell"),
        pytest.param(Standing(LEAST_VOTERS, 90, 46, 0), Verdict.TAKE_BACK, id="enough to tell"),
        pytest.param(Standing(0, 0, 0, 0), Verdict.KEEP, id="nobody"),
    ],
)
def test_what_it_takes(standing, verdict):
    """More than half of the updates of all voters, of at least so many clients."""
    assert standing.verdict is verdict


@given(st.integers(0, 60), st.integers(1, 50), st.data())
def test_fewer_than_half_decide_nothing_alone(n_honest, n_each, data):
    """Whatever they vote while the others have no opinion, and under however many names."""
    sent_by_liars = data.draw(st.integers(0, n_honest * n_each))
    names = data.draw(st.lists(st.sampled_from(Opinion), max_size=sent_by_liars))
    votes = dict.fromkeys((f"honest-{i}" for i in range(n_honest)), Opinion.NONE)
    n_updates = dict.fromkeys(votes, n_each)
    votes |= {f"liar-{i}": lie for i, lie in enumerate(names)}
    n_updates |= {f"liar-{i}": max(1, sent_by_liars // len(names)) for i in range(len(names))}
    assert standing_of(votes, n_updates).verdict is Verdict.KEEP
