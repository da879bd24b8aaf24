"""A replay makes the models that the service would make from a log, at the times of the log."""

import tracemalloc

import numpy as np
import pytest
from made_logs import MadeLog, in_order, query, searches
from simulated import config, data

import foltr_research as fr
from foltr.core.data.dataset import relabel
from foltr.core.errors import DataError, SettingsError
from foltr_research.simulation.clients.crowd import Crowd
from foltr_research.simulation.clients.population import iid_population
from foltr_research.simulation.config import resolve
from foltr_research.simulation.federated import run
from foltr_research.simulation.logged_clicks.logs import LoggedQuery

TWO = {"interactions": 2, "eval_every": 1}


def with_sure_clicks():
    """A training and a test set of which a perfect user clicks exactly the relevant documents."""
    return [relabel(one, np.where(one.relevance > 2, 2, 0).astype(np.int16), one.name) for one in data()]


def log_of(of, population, test):
    """What the clients of a synchronous run search for: all of a round's at once."""
    training, _ = resolve(of, test.n_features)
    crowd = Crowd(population, of.seed, training.serp_length)
    queries = []
    for number in range(of.rounds):
        picks = crowd.intend(np.arange(of.clients)).picks
        for i in range(of.interactions):
            for client, pick in zip(population.clients, picks[:, i].tolist(), strict=True):
                found = population.datasets[0].query(pick)
                queries.append(LoggedQuery(3600.0 * number, client.name, len(queries), *found))
    return MadeLog(queries, test)


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "fpdgd"},
        {"method": "fpdgd", "ranker": "neural", "hidden": 4},
        {"method": "fpdgd", "aggregation": "median", "clients": 12},
        {"method": "fedprox", "parameters": {"mu": 0.5}},
        {"method": "fpdgd-personal"},
        {"method": "fpdgd-paper"},
        {"method": "fedips"},
        {"method": "fedavg"},
        {"method": "fedper", "ranker": "neural", "hidden": 4},
        {"method": "foltr-es"},
    ],
    ids=str,
)
@pytest.mark.parametrize("pacing", ["deadline", "buffered"])
def test_updates_that_arrive_together_make_the_models_of_the_synchronous_run(settings, pacing):
    """Bit for bit, with every method, and whether or not devices stay with their model."""
    if settings["method"] == "fpdgd-paper" and pacing == "buffered":
        pytest.skip("its rounds cannot be buffered")
    train, test = with_sure_clicks()
    of = config(rounds=3, **settings)
    population = iid_population(train, test, of.clients, of.clicks, of.interactions)
    wanted = run(of, population)
    log = log_of(of, population, test)
    given = {name: value for name, value in settings.items() if name != "clients"}
    for relearns in (False, True):
        replay = fr.replay(
            log, interactions=4, eval_every=2, pacing=pacing, min_clients=of.clients, relearns=relearns, **given
        )
        np.testing.assert_array_equal(replay.weights, wanted.weights)
        assert replay.curve.rounds.tolist() == [0, 2, 3]
        assert replay.staleness == {0: 3 * of.clients}
        assert not replay.refused
        if replay.config.method not in {"fpdgd-personal", "fedper"}:
            # The simulator's are means over clients, which adds a rounding.
            assert replay.curve.values == pytest.approx([value for _, value in wanted.ndcg_at_10], rel=1e-12)


def test_a_log_in_lockstep_is_a_synchronous_run():
    """Users that searched at different times are in the same rounds; a rest too small for an update is left out."""
    log = MadeLog(in_order(searches("a", 0, 1, 2, 3, 4), searches("b", 100, 200, 300, 400)))
    replay = fr.replay(fr.Lockstep(log, 2), min_clients=1, **TWO)
    assert replay.curve.rounds.tolist() == [0, 1, 2]
    assert replay.staleness == {0: 4}
    assert (replay.lists_shown, replay.lists_counted) == (8, 8)


def test_a_late_update_counts_in_a_later_round_with_less_weight():
    """A device that began under an older model is stale by the models made since; each list counts once."""
    slow = searches("slow", 0, 50)
    quick = [*searches("quick", 10, 11), *searches("brisk", 20, 21)]
    replay = fr.replay(MadeLog(in_order(slow, quick)), min_clients=1, **TWO)
    assert replay.staleness == {0: 2, 2: 1}
    assert replay.curve.times.tolist() == [0, 11, 21, 50]
    assert replay.lists_counted == 6
    log = MadeLog(in_order(slow, quick))
    before = fr.replay(log, min_clients=1, rounds=2, **TWO).weights
    full, light = (
        fr.replay(log, min_clients=1, staleness_exponent=exponent, **TWO).weights - before for exponent in (0.0, 2.0)
    )
    np.testing.assert_allclose(light, full / 9, rtol=1e-4, atol=1e-7)
    assert np.abs(full).max() > 1e-3


def test_an_update_that_is_too_stale_is_refused_and_learned_again():
    """Its lists then count once, on the newest model, when the user searches again."""
    slow = searches("slow", 0, 50, 60)
    quick = [*searches("quick", 10, 11), *searches("brisk", 20, 21)]
    replay = fr.replay(MadeLog(in_order(slow, quick)), min_clients=1, staleness_limit=1, **TWO)
    assert replay.refused == {"stale": 1}
    assert replay.staleness == {0: 3}
    assert (replay.lists_shown, replay.lists_counted) == (7, 6)


def test_with_a_deadline_an_update_of_an_older_round_is_late():
    """As in the service; a device that relearns has none."""
    slow = searches("slow", 0, 50, 60)
    quick = [*searches("quick", 10, 11), *searches("brisk", 20, 21)]
    log = MadeLog(in_order(slow, quick))
    replay = fr.replay(log, min_clients=1, pacing="deadline", **TWO)
    assert replay.refused == {"late": 1}
    assert replay.staleness == {0: 3}
    assert replay.lists_counted == 6
    assert not fr.replay(log, min_clients=1, pacing="deadline", relearns=True, **TWO).refused


def test_a_user_has_one_update_in_a_round():
    """The next one waits for the next round, and is learned again by then if devices relearn."""
    log = MadeLog(in_order(searches("busy", 0, 1, 2, 3, 30), searches("other", 10, 11)))
    for relearns, staleness in ((False, {0: 2, 2: 1}), (True, {0: 3})):
        replay = fr.replay(log, min_clients=1, min_time_s=5, relearns=relearns, **TWO)
        assert replay.staleness == staleness
        assert not replay.refused
        assert (replay.lists_counted, replay.lists_shown) == (6, 7)


def test_an_update_for_a_full_round_is_sent_again():
    """The same one, when its user next searches, and it counts then."""
    log = MadeLog(in_order(searches("first", 0, 1), searches("second", 2, 3, 20)))
    replay = fr.replay(log, min_clients=1, max_clients=1, min_time_s=10, **TWO)
    assert replay.refused == {"busy": 1}
    assert replay.staleness == {0: 1, 1: 1}
    assert replay.lists_counted == 4


def test_lists_of_a_round_without_a_model_count_later():
    """The watermark goes back, so the same lists are in a later update, once."""
    log = MadeLog(in_order(searches("a", 0, 1, 450), searches("b", 451, 452)))
    replay = fr.replay(log, min_clients=2, max_time_s=100, **TWO)
    assert replay.rounds_abandoned == 1
    assert replay.staleness == {0: 2}
    assert (replay.lists_shown, replay.lists_counted) == (5, 4)


def test_a_user_who_leaves_holds_up_nobody():
    """Lists without an update never count, and rounds go on by their quorum or deadline."""
    stays = [("stays", float(time)) for time in range(0, 40, 2)]
    log = MadeLog(in_order(searches("leaves", 0.5, 1.5, 2.5), [(time, user) for user, time in stays]))
    replay = fr.replay(log, min_clients=1, **TWO)
    assert (replay.users, replay.lists_shown, replay.lists_counted) == (2, 23, 22)
    waits = fr.replay(log, min_clients=2, max_time_s=10, **TWO)
    assert waits.curve.rounds[-1] == 1
    assert waits.rounds_abandoned > 1


def test_updates_that_are_on_their_way_are_stale_when_they_arrive():
    """The delay is drawn from the run's seed, and the run ends when the last has arrived."""
    log = MadeLog(in_order(*(searches(f"user-{i}", *range(i, 2_000, 10)) for i in range(8))))
    at_once, again = (fr.replay(log, min_clients=2, delay_s=delay, **TWO) for delay in (0.0, 50.0))
    assert at_once.mean_staleness < again.mean_staleness
    assert at_once.lists_counted == pytest.approx(at_once.lists_shown, abs=4)
    np.testing.assert_array_equal(again.weights, fr.replay(log, min_clients=2, delay_s=50.0, **TWO).weights)
    other = fr.replay(log, min_clients=2, delay_s=50.0, seed=2, **TWO)
    assert not np.array_equal(again.weights, other.weights)


def test_a_log_teaches():
    """Users click the document with the highest first feature, and the ranker finds out."""
    log = MadeLog(in_order(*(searches(f"user-{i}", *range(i, 3_000, 20)) for i in range(10))))
    told = []
    replay = fr.replay(log, min_clients=5, metrics="mrr@10", eval_every=10, interactions=3, on_point=told.append)
    assert replay.curve.values[-1] > 0.9 > replay.curve.values[0]
    assert tuple(told) == replay.points
    assert [replay.rows[-1][name] for name in ("ndcg_at_10", "mrr@10")] == list(replay.points[-1].means.values())
    assert 0.4 < replay.online_rr < 1
    assert fr.replay(log, min_clients=5, interactions=3, rounds=7).curve.rounds[-1] == 7


def test_lists_of_an_old_perturbation_are_dropped():
    """FOLtR-ES learns a list only with the perturbation that it was shown by; a replay goes on without the others."""
    log = MadeLog(in_order(*(searches(f"user-{i}", *range(i, 200, 5)) for i in range(4))))
    replay = fr.replay(log, method="foltr-es", pacing="deadline", min_clients=1, min_time_s=30, max_time_s=30, **TWO)
    assert replay.lists_dropped > 0
    assert 0 < replay.lists_counted <= replay.lists_shown - replay.lists_dropped


def test_a_class_of_ones_own_is_a_method():
    """A plug-in learns from a log as in a simulation."""

    class Halved(fr.Method):
        def send(self, weights, start, rng):  # noqa: ARG002 (one that draws nothing)
            return start + (weights - start) / 2

    log = MadeLog(in_order(*(searches(f"user-{i}", *range(i, 100, 5)) for i in range(4))))
    ours, plain = (fr.replay(log, method=method, min_clients=2, **TWO) for method in (Halved, "fpdgd"))
    assert 0 < np.linalg.norm(ours.weights) < np.linalg.norm(plain.weights)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"attackers": 2}, "attackers: a replay does not have it"),
        ({"pacing": "sometimes"}, "pacing: Input should be"),
        ({"max_time_s": 0}, "max_time_s: Input should be greater"),
        ({"method": "pdgd"}, "pdgd has no federator"),
        ({"method": "fpdgd-paper"}, "fpdgd-paper needs deadline"),
        ({"min_clients": 5, "max_clients": 4}, "max_clients: 4 is below min_clients"),
        ({"min_client": 5}, "min_client: no setting"),
    ],
)
def test_a_wrong_setting_is_one_line(settings, told):
    """With what to do instead."""
    with pytest.raises(SettingsError, match=told):
        fr.replay(MadeLog(searches("a", 0, 1)), **settings)


def test_a_log_that_cannot_be_replayed_is_named():
    """An empty one, and one that is not in the order of time."""
    with pytest.raises(DataError, match="no query to replay"):
        fr.replay(MadeLog([], MadeLog(searches("a", 0)).test))
    with pytest.raises(DataError, match=r"query 1: its time 3\.0 is before 5\.0"):
        fr.replay(MadeLog(searches("a", 5.0, 3.0)))


def test_a_replay_without_a_model_is_an_error():
    """Two users never are the three that a round needs."""
    with pytest.raises(DataError, match=r"3 of the log's 2 users must send .*; lower min_clients"):
        fr.replay(MadeLog(in_order(searches("a", 0, 1), searches("b", 0, 1))), min_clients=3, **TWO)


def test_memory_does_not_grow_with_the_log():
    """Only with the lists that wait, and a small record for each user: here the log grows eightfold."""

    def peak(share):
        log = fr.SyntheticLog(users=20, share=share, test_queries=1)
        fr.replay(log, min_clients=1, interactions=2, rounds=1)
        tracemalloc.start()
        replay = fr.replay(log, min_clients=1, interactions=2, eval_every=1_000)
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size, replay.lists_shown

    small, n_small = peak(0.02)
    large, n_large = peak(0.16)
    bytes_of_query = 20 * 103 * 4
    assert n_large > 7 * n_small
    assert large - small < 0.1 * (n_large - n_small) * bytes_of_query


GOOD = query(0.0, "anna", 1)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (GOOD._replace(time=float("nan")), "its time nan is no finite number"),
        (GOOD._replace(time="2006-03-01"), "its time '2006-03-01' is no finite number"),
        (GOOD._replace(user=7), "its user 7 is no text"),
        (GOOD._replace(features=GOOD.features[:, :2]), r"features \(8, 2\), relevance \(8,\); expected 6 features"),
        (GOOD._replace(relevance=GOOD.relevance[:3]), r"features \(8, 6\), relevance \(3,\)"),
        (GOOD._replace(relevance=None), r"features \(8, 6\), relevance \(\)"),
    ],
)
def test_a_query_of_a_wrong_form_is_named(wrong, told):
    """Instead of a replay that waits for a time that never comes, or a traceback from within."""
    with pytest.raises(DataError, match=f"query 1: {told}"):
        fr.replay(MadeLog([GOOD, wrong]), **TWO)


def test_what_is_no_log_is_refused():
    """A bare list of queries has nothing to measure on; an update of lockstep needs an interaction."""
    with pytest.raises(SettingsError, match="log: expected SyntheticLog, AolLog, or an object with n_features"):
        fr.replay([GOOD], **TWO)
    with pytest.raises(SettingsError, match="n_interactions: 0; expected at least 1"):
        fr.Lockstep(MadeLog([GOOD]), 0)


def test_a_silent_decade_takes_no_time():
    """Rounds of a second begin again at their deadlines, and the searches after it count in them."""
    rest = {"min_clients": 1, "max_time_s": 1.0, **TWO}
    late = 3e8 + 0.25
    soon, decade = (fr.replay(MadeLog(searches("anna", 0.0, 0.0, gap, gap + 0.5)), **rest) for gap in (100.25, late))
    assert (soon.lists_counted, soon.rounds_abandoned) == (decade.lists_counted, decade.rounds_abandoned) == (4, 0)
    assert soon.weights.tolist() == decade.weights.tolist()
