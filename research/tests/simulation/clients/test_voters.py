"""Who votes in a simulation, on what, and what becomes of old votes."""

import numpy as np
import pytest
from support.sampled_lists import even_reversals

from foltr.core.aggregation.vote_result import VOTE_ROUNDS, VoteResult
from foltr.core.learning.comparison import Opinion
from foltr.core.protocol.trainings import LinearRankerSpec
from foltr_research.simulation.clients.voters import Voters

ANCHOR, NEWEST = np.array([1.0, 0.0], np.float32), np.array([-1.0, 0.0], np.float32)
FEATURES = np.array([[0.1, 0], [0.9, 0], [0.5, 0], [0.3, 0]], np.float32)
RANKING, CLICKS = np.array([0, 1]), np.array([False, True])


def voters(*liars, lie=None):
    return Voters(LinearRankerSpec(n_features=2), ANCHOR, frozenset(liars), lie)


def compared(found, client, n_lists=60):
    """A client whose user clicks what the anchor would put first, list by list."""
    for _ in range(n_lists):
        found.take_list(client, (NEWEST, ANCHOR), FEATURES, RANKING, even_reversals(2), CLICKS)
    return found


def names(*clients):
    return {client: f"device-{client}" for client in clients}


def test_who_compared_enough_has_an_opinion_and_others_are_counted():
    """A list without a preference is no list; a vote counts until its client is long absent, by its late updates."""
    found = compared(voters(), 0)
    for _ in range(60):
        found.take_list(1, (NEWEST, ANCHOR), FEATURES, RANKING, even_reversals(2), np.zeros(2, np.bool_))
    assert found.take_votes(1, names(0, 1, 2, 3)) == VoteResult(4, 4, 1, 0)
    found = compared(voters(), 0)
    found.take_votes(1, names(0, 1))
    assert found.take_votes(2, names(0)) == VoteResult(2, 3, 2, 0)
    assert found.take_votes(1 + VOTE_ROUNDS, names(2)) == VoteResult(2, 2, 1, 0)
    assert found.take_votes(2 + VOTE_ROUNDS, names(2)) == VoteResult(1, 2, 0, 0)


@pytest.mark.parametrize(("lie", "result"), [(Opinion.BETTER, VoteResult(2, 2, 0, 1)), (None, VoteResult(2, 2, 1, 0))])
def test_liars_vote_what_they_like(lie, result):
    """Whatever their users click; None: as everybody."""
    assert compared(voters(0, lie=lie), 0).take_votes(1, names(0, 1)) == result


def test_another_anchor_leaves_no_opinion():
    """Those who sent lately are voters still; what was sent to a round that is taken back counts no more."""
    found = compared(voters(), 0)
    found.take_votes(1, names(0, 1, 2))
    found.restart(NEWEST)
    assert not found.compares(NEWEST)
    assert found.compares(ANCHOR)
    assert found.take_votes(2, names(2)) == VoteResult(3, 4, 0, 0)
    found = compared(voters(), 0)
    found.take_votes(1, names(0, 1))
    found.take_votes(2, names(0, 1))
    found.take_back(2)
    assert found.take_votes(3, names(0)) == VoteResult(2, 3, 0, 0)


def test_its_state_is_all_there_is():
    """Another one goes on from it alike, also from the empty one."""
    for found in (voters(), compared(compared(voters(), 0), 3, n_lists=5)):
        found.take_votes(1, names(0, 1))
        again = voters()
        again.restore(found.state())
        assert compared(again, 3).take_votes(2, names(0, 3)) == compared(found, 3).take_votes(2, names(0, 3))
        assert np.array_equal(again.anchor, found.anchor)
