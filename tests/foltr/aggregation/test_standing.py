"""What clients' votes come to: a majority decides, a minority never does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foltr.aggregation.standing import LEAST_VOTERS, Standing, Verdict, standing_of
from foltr.learning.comparison import Opinion


def test_every_voter_is_counted_once():
    """Those without an opinion count among the voters alone."""
    votes = {"a": Opinion.WORSE, "b": Opinion.WORSE, "c": Opinion.NONE, "d": Opinion.BETTER}
    assert standing_of(votes) == Standing(n_voters=4, n_worse=2, n_better=1)
    assert standing_of({}) == Standing(0, 0, 0)


@pytest.mark.parametrize(
    ("standing", "verdict"),
    [
        pytest.param(Standing(10, 6, 0), Verdict.TAKE_BACK, id="most find it worse"),
        pytest.param(Standing(10, 5, 0), Verdict.KEEP, id="half find it worse"),
        pytest.param(Standing(10, 0, 6), Verdict.MOVE_ANCHOR, id="most find it better"),
        pytest.param(Standing(10, 4, 5), Verdict.KEEP, id="no majority"),
        pytest.param(Standing(LEAST_VOTERS - 1, 3, 0), Verdict.KEEP, id="too few to tell"),
        pytest.param(Standing(LEAST_VOTERS, 3, 0), Verdict.TAKE_BACK, id="enough to tell"),
        pytest.param(Standing(0, 0, 0), Verdict.KEEP, id="nobody"),
    ],
)
def test_what_it_takes(standing, verdict):
    """More than half of all voters, of at least so many."""
    assert standing.verdict is verdict


@given(st.integers(0, 60), st.data())
def test_fewer_than_half_decide_nothing_alone(n_honest, data):
    """Whatever they vote while the others have no opinion."""
    n_liars = data.draw(st.integers(0, n_honest))
    lies = data.draw(st.lists(st.sampled_from(Opinion), min_size=n_liars, max_size=n_liars))
    votes = dict.fromkeys((f"honest-{i}" for i in range(n_honest)), Opinion.NONE)
    votes |= {f"liar-{i}": lie for i, lie in enumerate(lies)}
    assert standing_of(votes).verdict is Verdict.KEEP
