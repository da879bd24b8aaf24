"""The generated log has the sizes that are published, and otherwise those that its module says it assumes."""

import itertools
from collections import Counter

import numpy as np
import pytest

import foltr_research as fr
from foltr.core.errors import SettingsError
from foltr_research.simulation.logged_clicks.synthetic_log import (
    BEGIN,
    DAYS,
    GAP_S,
    QUERIES_BY_SHARE,
    QUERIES_IN_SESSION,
    SHARE_LEAVING,
    USERS,
    queries_of,
)

END = BEGIN + 86_400 * DAYS


@pytest.fixture(scope="module")
def times():
    """The times of the queries of 300 users, by user."""
    log = fr.SyntheticLog(users=300)
    return [np.array([time for time, _, _ in log._times_of(user)]) for user in range(300)]  # noqa: SLF001


def test_users_have_as_many_queries_as_published():
    """At the points of the published figure exactly; 10,000 users have 2.5 million."""
    for share, queries in QUERIES_BY_SHARE:
        assert queries_of(share) == pytest.approx(queries)
    shares = (np.arange(USERS) + 0.5) / USERS
    counts = [queries_of(share) for share in shares.tolist()]
    assert sum(counts) == pytest.approx(2_490_000, rel=0.01)
    assert counts == sorted(counts, reverse=True)


def test_a_sample_of_users_has_these_quantiles(times):
    """Within what 300 users allow."""
    counts = np.array([len(one) for one in times])
    assert counts.min() >= 145
    assert np.median(counts) == pytest.approx(204, rel=0.1)
    assert np.quantile(counts, 0.9) == pytest.approx(392, rel=0.2)


def test_times_are_of_the_published_span(times):
    """Whole seconds of 92 days, by rising time; users search in bursts, and one in five leaves early."""
    for one in times:
        assert (np.diff(one) >= 0).all()
        assert BEGIN <= one[0] <= one[-1] < END
        assert (one == np.floor(one)).all()
    gaps = np.concatenate([np.diff(one) for one in times])
    between = gaps > 1_800
    n_sessions = between.sum() + len(times)
    assert sum(map(len, times)) / n_sessions > QUERIES_IN_SESSION  # neighbours may merge
    assert np.median(gaps[~between]) == pytest.approx(GAP_S, rel=0.5)
    assert np.quantile(gaps, 0.99) > 100 * np.median(gaps)
    last_days = np.array([(END - one[-1]) / 86_400 for one in times])
    assert (last_days > 14).mean() == pytest.approx(SHARE_LEAVING, abs=0.1)
    days = [len(np.unique((one - BEGIN) // 86_400)) for one in sorted(times, key=len)[-5:]]
    assert np.median(days) > DAYS / 2


def test_queries_are_as_published():
    """20 documents of 103 features in [0, 1], one of them clicked; merged by time, and the same every time."""
    log = fr.SyntheticLog(users=5, share=0.1, test_queries=7)
    queries = list(log)
    assert [one.query_id for one in queries] == list(range(len(queries)))
    assert all(before.time <= after.time for before, after in itertools.pairwise(queries))
    assert {one.features.shape for one in queries} == {(20, 103)}
    assert {int(one.relevance.sum()) for one in queries} == {1}
    assert min(one.features.min() for one in queries) == 0
    assert max(one.features.max() for one in queries) == 1
    counts = Counter(one.user for one in queries)
    assert len(counts) == 5
    assert min(counts.values()) >= 14
    for one, again in zip(queries, log, strict=True):
        np.testing.assert_array_equal(one.features, again.features)
    assert log.test.n_queries == 7
    assert not any(np.array_equal(log.test.query(0).features, one.features) for one in queries)


def test_users_differ_and_agree():
    """What they have in common can be learned; with more variety less of it."""
    learned = []
    for variety in (0.0, 2.0):
        log = fr.SyntheticLog(users=40, share=0.1, variety=variety)
        replay = fr.replay(log, interactions=4, min_clients=10, metrics="mrr@10", eval_every=1_000)
        learned.append(replay.points[-1].means["mrr@10"] - replay.points[0].means["mrr@10"])
    assert learned[0] > 2 * learned[1] > 0


@pytest.mark.parametrize("wrong", [{"users": 0}, {"share": 0.0}, {"share": 2.0}, {"variety": -1.0}, {"seed": -1}])
def test_a_wrong_size_is_refused(wrong):
    """With the ranges."""
    with pytest.raises(SettingsError, match="expected at least 1"):
        fr.SyntheticLog(**wrong)
