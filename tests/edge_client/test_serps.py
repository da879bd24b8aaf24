"""A list is drawn around the model's order, or the application's where there is no model that could rank."""

import numpy as np
import pytest
from support.federator_by_hand import announced
from support.small_rankers import trainings

from foltr.core.errors import DataError
from foltr.core.learning.display import sampled_list
from foltr.core.learning.gate import Source
from foltr.core.methods.base import DeviceContext
from foltr.core.methods.registry import METHODS, draws_lists
from foltr.core.protocol.explorations import SAFE, NoExploration, read_exploration
from foltr.core.protocol.trainings import PdgdTraining
from foltr.edge_client.serps import clicks_on, make_serp, read_candidates
from foltr.edge_client.training.working_model import WorkingModel, device_for

FEATURES = np.random.default_rng(4).random((8, 6), np.float32)
BASE = [3.0, 9.0, 1.0, 4.0, 9.0, 0.0, 2.0, 8.0]
BASE_ORDER = [1, 4, 7, 3, 0, 6, 2, 5]
WEIGHTS = np.array([2.0, -1.0, 0.5, 0.0, 1.0, -2.0], np.float32)


class Decided:
    """A gate that has decided, and says it whenever it may."""

    def __init__(self, source):
        self.source = source

    def source_of_next(self, *, may_interleave):
        return self.source if may_interleave else Source.BASE


def model_of(weights=WEIGHTS, training=None):
    model = announced(3, weights)
    return WorkingModel(model, training, None if training is None else device_for(model, training, DeviceContext(1)))


def score_of(weights, document):
    return float(FEATURES[document] @ weights)


def best_of(weights):
    """The model's order, of equal scores the application's."""
    return sorted(BASE_ORDER, key=lambda document: -float(FEATURES[document] @ weights))


def shown(model, text=None, gate=None, base=BASE, seed=1, k=5):
    asked = None if text is None else read_exploration(text)
    rng = np.random.default_rng(seed)
    return make_serp(read_candidates(FEATURES, base), k, model, rng, exploration=asked, gate=gate)


def test_without_a_model_the_order_is_the_applications():
    """By its scores, of equal ones the first given; without any, as the documents are given."""
    serp = shown(None, "none")
    assert (serp.ranking.tolist(), serp.source, serp.model_version) == (BASE_ORDER[:5], "base", None)
    assert shown(None, "none", base=None).ranking.tolist() == [0, 1, 2, 3, 4]
    # Before a federation says how, it is explored with care.
    lists = [shown(None, seed=seed) for seed in range(40)]
    assert {len(set(BASE_ORDER[:5]) ^ set(one.ranking.tolist())) for one in lists} == {0}
    assert max(abs(BASE_ORDER.index(d) - i) for one in lists for i, d in enumerate(one.ranking.tolist())) == 1
    assert all(one.reversals.any() for one in lists)


def test_a_model_ranks_and_the_application_decides_ties():
    """Of equal scores the application's first one is shown first."""
    serp = shown(model_of(), "none")
    assert (serp.ranking.tolist(), serp.source, serp.model_version) == (best_of(WEIGHTS)[:5], "model", 3)
    alike = shown(model_of(np.zeros(6, np.float32)), "none")
    assert (alike.ranking.tolist(), alike.source) == (BASE_ORDER[:5], "model")


def test_a_list_is_drawn_as_the_federation_says_unless_it_is_asked_for_otherwise():
    """From the same draws whatever the application's order: only ties depend on it."""
    training = PdgdTraining(exploration=read_exploration("sampling"))
    scores = FEATURES @ WEIGHTS
    serp = shown(model_of(training=training), base=None)
    expected = sampled_list(scores, 5, np.random.default_rng(1))
    np.testing.assert_array_equal(serp.ranking, expected.ranking)
    np.testing.assert_array_equal(serp.reversals, expected.reversals)
    assert serp.log_probability == expected.log_probability
    assert shown(model_of(training=training), "none").ranking.tolist() == best_of(WEIGHTS)[:5]


def test_interleaving_shows_both():
    """The first two positions hold the best of each list; without a model there is only one."""
    model_order = best_of(WEIGHTS)
    serp = shown(model_of(), "interleaving", base=[model_order.index(document) for document in range(8)], k=2)
    assert (serp.source, set(serp.ranking.tolist())) == ("interleaved", {model_order[0], model_order[-1]})
    assert shown(None, "interleaving").ranking.tolist() == BASE_ORDER[:5]


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(WorkingModel(announced(3, WEIGHTS[:5]), None, None), id="another number of features"),
        pytest.param(model_of(np.full(6, 3e38, np.float32)), id="scores that are not finite"),
    ],
)
def test_a_model_that_cannot_rank_breaks_no_search(model):
    """The application has its own order, whatever a federation announces."""
    serp = shown(model, "none")
    assert (serp.ranking.tolist(), serp.source, serp.model_version) == (BASE_ORDER[:5], "base", 3)


def test_a_gate_decides_where_lists_are_from():
    """Explored as the federation says; the best list is never interleaved."""
    serp = shown(model_of(), "none", gate=Decided(Source.MODEL))
    assert (serp.ranking.tolist(), serp.source, serp.model_version) == (BASE_ORDER[:5], "base", 3)
    sources = [shown(model_of(), gate=Decided(source)).source for source in Source]
    assert sources == ["base", "model", "interleaved"]
    interleaved = [shown(model_of(), gate=Decided(Source.INTERLEAVED), seed=seed) for seed in range(9)]
    assert all(one.to_credit.shape == (5,) for one in interleaved)
    assert any(one.reversals.any() for one in interleaved)


@pytest.mark.parametrize("method", [method for method in METHODS if method != "fedper"])  # whose ranker is neural
def test_lists_of_a_methods_own_are_not_explored_around(method):
    """What is announced of exploration is for methods that draw their lists."""
    training = trainings()[method].model_copy(update={"exploration": read_exploration("sampling:1000")})
    model = model_of(training=training)
    assert model.exploration == (training.exploration if draws_lists(method) else NoExploration())
    lists = [shown(model, seed=seed) for seed in range(9)]
    assert any(one.reversals.any() for one in lists) is draws_lists(method)
    assert WorkingModel(model.announcement, None, None).exploration == SAFE


def test_a_list_is_printed_in_a_line():
    """What an application's developer wants to see of it: no matrix of features, no probabilities."""
    serp = make_serp(read_candidates(np.zeros((500, 136)), None), 3, None, np.random.default_rng(1))
    assert repr(serp) == (
        f"Serp(serp_id='{serp.serp_id}', ranking={serp.ranking!r}, model_version=None, variant=0, source='base')"
    )
    assert len(repr(serp)) < 150


def test_clicks_are_positions_of_the_list_as_shown():
    """Integers, those of NumPy too, in whatever holds them."""
    unsigned, of_both = np.array([0, 3], np.uint8), [np.int64(0), np.int32(3), 3]
    for clicked in ([0, 3], (3, 0), {0, 3}, iter([0, 3]), np.array([0, 3]), unsigned, of_both):
        assert clicks_on(shown(None), clicked).tolist() == [True, False, False, True, False], clicked


def test_what_is_no_position_is_refused_in_words():
    """A mask of the list, say, would be read as clicks on its first two documents."""
    for clicked, said in (
        (1, "1 is not a list of positions: give integers, from 0"),
        (np.int64(1), "is not a list of positions"),
        (np.array(1), "is not a list of positions"),
        (None, "None is not a list of positions"),
        ([True, False, True, False, False], "True is not a position: give integers, from 0, of the list as shown"),
        (np.array([True, False, True, False, False]), "is not a position"),
        ([1.0], "1.0 is not a position"),
        (np.array([0.0, 3.0]), "is not a position"),
        ("03", "'0' is not a position"),
        ([[0, 3]], "is not a position"),
        ([0, 5], r"position 5 is outside the list \(0 to 4\)"),
        ([-1], r"position -1 is outside the list \(0 to 4\)"),
    ):
        with pytest.raises(DataError, match=f"^clicked: .*{said}"):
            clicks_on(shown(None), clicked)
