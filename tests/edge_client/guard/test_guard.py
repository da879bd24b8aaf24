"""The guard of one device: what it holds back, what it refuses, and what it remembers of both."""

from dataclasses import replace

import numpy as np
import pytest
from drawn import even_reversals
from structlog.testing import capture_logs

from foltr.core.errors import DataError, SettingsError
from foltr.core.methods.registry import METHODS
from foltr.core.methods.spec import Lists
from foltr.core.protocol.announcements import ModelAnnouncement
from foltr.core.protocol.fields import pack_vector, unpack_vector
from foltr.core.protocol.trainings import (
    FedAvgTraining,
    FedIpsTraining,
    LinearRankerSpec,
    NeuralRankerSpec,
    PdgdTraining,
)
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.guard.guard import Guard
from foltr.edge_client.guard.held_back import MOST_LISTS, HeldBackStore
from foltr.edge_client.guard.model_judgement import FEWEST_LISTS
from foltr.edge_client.options import Connection, Ranking
from foltr.edge_client.serps import Serp, make_serp, read_candidates
from foltr.edge_client.store.store import DeviceStore
from foltr.edge_client.training.working_model import WorkingModel

D, K = 4, 3
GOOD = np.array([3.0, 1.0, 0.0, 0.0], np.float32)


def announced(version, weights, **ranker):
    spec = ranker.get("ranker") or LinearRankerSpec(n_features=len(weights))
    return ModelAnnouncement(federation="mail", version=version, ranker=spec, weights=pack_vector(weights))


def bare(model):
    return unpack_vector(model.weights)


@pytest.fixture
def store(path):
    store = DeviceStore(path, client_id="device-7", federation="mail", max_interactions=100)
    yield store
    store.close()


def guard_of(store, share=0.5, seed=3, training=None):
    guard = Guard(share, store, "device-7", seed)
    guard.follow_training(training or PdgdTraining())
    return guard


def lists(n, weights=GOOD, n_features=D):
    """Lists in an order that says nothing, with a click on what ``weights`` score highest."""
    rng = np.random.default_rng(8)
    for i in range(n):
        features = rng.random((K, n_features), np.float32)
        ranking = rng.permutation(K)
        clicks = ranking == int(np.argmax(features @ weights))
        yield Serp(f"serp-{i}", ranking, 0, features, even_reversals(K), 0.0, ranking.astype(np.int32)), clicks


def fill(guard, n, **options):
    """Let it see lists until it has held back ``n`` more."""
    wanted = guard.n_held_back + n
    for serp, clicks in lists(10_000, **options):
        guard.hold_back(replace(serp, serp_id=f"{wanted}-{serp.serp_id}"), clicks)
        if guard.n_held_back == wanted:
            return
    pytest.fail("it holds nothing back")


def admits(guard, model, kept):
    return guard.admits(model, b"as it came", kept, bare)


# --- what is held back ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.5, 0.1, 0.07])
def test_the_share_is_held_back_evenly(store, share):
    """Of any run of lists the share, give or take one; where it begins is left to chance."""
    firsts = set()
    for seed in range(5):
        guard = guard_of(store, share, seed)
        held = [guard.hold_back(serp, clicks) for serp, clicks in lists(100)]
        assert abs(sum(held) - 100 * share) <= 1
        assert abs(sum(held[:50]) - 50 * share) <= 1
        firsts.add(held.index(True))
    assert len(firsts) > 1


def test_lists_that_say_nothing_take_their_turn_and_are_not_kept(store):
    """Those without a click, and those that were certain to be shown as they were: which are due hangs on no click."""
    held = [guard_of(store) for _ in range(3)]
    for serp, clicks in lists(20):
        turns = {
            held[0].hold_back(serp, np.zeros(K, np.bool_)),
            held[1].hold_back(replace(serp, reversals=np.zeros_like(serp.reversals)), clicks),
        }
        assert HeldBackStore(store).lists() == []
        assert len(turns) == 1
    for serp, clicks in lists(20):
        held[2].hold_back(serp, clicks)
    assert held[0].n_held_back == held[1].n_held_back == held[2].n_held_back > 0


def test_what_goes_with_a_list_is_written_kept_or_not(store):
    """The gate and the vote judge by each list."""
    guard, written = guard_of(store), []
    for serp, _ in lists(20):
        guard.hold_back(serp, np.zeros(K, np.bool_), lambda _cursor: written.append(1))
    assert len(written) == guard.n_held_back > 0


def test_the_newest_are_kept(store):
    """No more than `MOST_LISTS`, as they were, also after a restart."""
    guard, held_back = guard_of(store), HeldBackStore(store)
    fill(guard, MOST_LISTS)
    before = [held.features for held in held_back.lists()]
    fill(guard, 5)
    after = HeldBackStore(store).lists()
    assert len(after) == MOST_LISTS
    np.testing.assert_array_equal([held.features for held in after[:-5]], before[5:])
    said = after[0].preferences
    assert (said.preferred.dtype, said.weight.dtype, after[0].features.dtype) == (np.int64, np.float64, np.float32)
    assert said.total > 0


def test_a_full_disk_is_an_error_and_nothing_is_held_back(store):
    """The application hears of it as of any list that could not be recorded, and may record it again."""
    guard = guard_of(store)
    fill(guard, 1)
    store.rows("PRAGMA query_only = ON")
    with pytest.raises(DataError, match="free space"):
        fill(guard, 1)
    store.rows("PRAGMA query_only = OFF")
    assert guard.n_held_back == len(HeldBackStore(store).lists()) == 1


@pytest.mark.parametrize("share", [0.0, -0.1, 0.6, float("nan"), 1.0])
def test_a_share_is_above_0_and_at_most_half(store, share):
    """Anything else is refused with what is allowed."""
    with pytest.raises(SettingsError, match=r"guard: .* above 0 and at most 0\.5"):
        guard_of(store, share)


def test_the_best_list_says_nothing_of_another(nowhere):
    """A device that is told to explore nothing cannot be guarded, and leaves nothing behind when it is told so."""
    with pytest.raises(SettingsError, match="guard: it judges by lists that are drawn"):
        EdgeClient(
            store=":memory:",
            connection=Connection(broker=nowhere, federation="mail", client_id="device-7"),
            ranking=Ranking(exploration="none", guard=0.1),
        )


@pytest.mark.parametrize("method", METHODS)
def test_which_methods_are_guarded(method):
    """Those whose devices draw lists by their scores; the others' lists are certain, and say nothing to judge by."""
    values = {"n_clients": 1} if method == "fpdgd-paper" else {}
    training = METHODS[method].training(**values)
    draws_lists = METHODS[method].lists is Lists.DRAWN
    assert draws_lists is (method not in {"foltr-es", "fedips", "fedavg"})
    working_model = WorkingModel(announced(0, GOOD), training, None)
    candidates = read_candidates(np.eye(2, D), None)
    serp = make_serp(candidates, 2, working_model, np.random.default_rng(1))
    assert bool(serp.reversals.any()) is draws_lists


def test_nothing_is_held_back_before_a_method_is_known(store):
    """Lists are drawn by scores then, too, but the method to come may need the clicks for itself."""
    guard = Guard(0.5, store, "device-7", 3)
    assert not any(guard.hold_back(serp, clicks) for serp, clicks in lists(20))
    guard.follow_training(PdgdTraining())
    assert any(guard.hold_back(serp, clicks) for serp, clicks in lists(20))


def test_an_idle_guard_stands_in_nobodys_way(store):
    """Where the federation goes on with a method that it cannot guard, it holds nothing back and admits every model."""
    guard, kept = guard_of(store), announced(4, GOOD)
    fill(guard, FEWEST_LISTS)
    assert not admits(guard, announced(5, -GOOD), kept)
    guard.follow_training(FedIpsTraining())
    assert admits(guard, announced(5, -GOOD), kept)
    assert guard.refused is None
    assert not any(guard.hold_back(serp, clicks) for serp, clicks in lists(20))


# --- what is refused ------------------------------------------------------------------------------------------


def test_a_model_turned_upside_down_is_refused(store):
    """With the reason at hand; a better one and one as good are not."""
    guard, kept = guard_of(store), announced(4, GOOD)
    fill(guard, FEWEST_LISTS)
    assert not admits(guard, announced(5, -GOOD), kept)
    (refused,) = guard.refused_models
    assert (refused.version, refused.kept_version, refused.judgement.n_lists) == (5, 4, FEWEST_LISTS)
    assert refused.judgement.kept == pytest.approx(1.0)
    assert refused.judgement.new == pytest.approx(0.0)
    assert guard.refused.version == 5
    assert admits(guard, announced(6, 1.1 * GOOD), kept)
    assert guard.refused is None


def test_too_few_lists_refuse_nothing(store):
    """A new device takes what it is given."""
    guard = guard_of(store)
    assert admits(guard, announced(0, GOOD), None)
    fill(guard, FEWEST_LISTS - 1)
    assert admits(guard, announced(5, -GOOD), announced(4, GOOD))


@pytest.mark.parametrize("weights", [np.zeros(D), np.full(D, np.nan), np.full(D, 3e38)])
def test_what_is_no_ranker_any_more_is_refused(store, weights):
    """Zeros, what is not a number, and weights whose scores overflow."""
    guard = guard_of(store)
    fill(guard, FEWEST_LISTS)
    assert not admits(guard, announced(5, weights), announced(4, GOOD))


def test_a_ranker_of_another_kind_is_judged_too(store):
    """By what it does with the same documents; one for other features is not: nothing of the device fits it."""
    guard, kept = guard_of(store), announced(4, GOOD)
    fill(guard, FEWEST_LISTS)
    upside_down = np.zeros(2 * (D + 2), np.float32)
    upside_down[: 2 * D : 2] = -GOOD  # the first hidden unit
    upside_down[-2] = 1.0
    assert not admits(guard, announced(5, upside_down, ranker=NeuralRankerSpec(n_features=D, hidden=2)), kept)
    assert admits(guard, announced(6, np.zeros(D + 1)), kept)


def test_a_refused_model_is_judged_again_with_more_lists(store):
    """Announced again, it is refused again at once; lists that speak for it let it in, and it is forgotten."""
    guard, kept, other = guard_of(store), announced(4, GOOD), announced(5, -GOOD)
    fill(guard, FEWEST_LISTS)
    assert not admits(guard, other, kept)
    assert not admits(guard, other, kept)
    assert len(guard.refused_models) == 1
    fill(guard, 5 * FEWEST_LISTS, weights=-GOOD)
    assert admits(guard, other, kept)
    assert guard.refused_models == ()


def test_refusals_survive_a_restart(path):
    """What was held back and what was refused; the refused model is refused again when it is announced."""
    for restarts in range(2):
        store = DeviceStore(path, client_id="device-7", federation="mail", max_interactions=100)
        guard = guard_of(store)
        if restarts == 0:
            fill(guard, FEWEST_LISTS)
        else:
            assert [refused.version for refused in guard.refused_models] == [5]
        assert not admits(guard, announced(5, -GOOD), announced(4, GOOD))
        refused = guard.refused_models
        store.close()
    assert len(refused) == 1


def test_a_refusal_that_cannot_be_stored_is_a_refusal(store):
    """A full disk does not let a model in."""
    guard = guard_of(store)
    fill(guard, FEWEST_LISTS)
    store.rows("PRAGMA query_only = ON")
    assert not admits(guard, announced(5, -GOOD), announced(4, GOOD))
    assert [refused.version for refused in guard.refused_models] == [5]


def test_a_method_that_cannot_be_guarded_is_told_once(store):
    """And again only if the federation has changed its method in between."""
    guard = guard_of(store)
    idle, guarded = FedAvgTraining(), PdgdTraining()
    told = []
    for training in (idle, idle, guarded, idle):
        with capture_logs() as logs:
            guard.follow_training(training)
        told.append([line["event"] for line in logs])
    assert told == [["guard_idle"], [], [], ["guard_idle"]]


def test_a_refusal_is_logged_once_with_its_figures(store):
    """As fields, for whoever collects the logs of many devices."""
    guard, kept, other = guard_of(store), announced(4, GOOD), announced(5, -GOOD)
    fill(guard, FEWEST_LISTS)
    with capture_logs() as logs:
        admits(guard, other, kept)
        admits(guard, other, kept)
        fill(guard, 1)
        admits(guard, other, kept)
    (line,) = logs
    assert (line["event"], line["log_level"], line["client_id"]) == ("model_refused", "warning", "device-7")
    assert (line["version"], line["kept_version"], line["n_lists"]) == (5, 4, FEWEST_LISTS)
    assert (line["agreement_kept"], line["agreement_new"]) == (1.0, 0.0)
