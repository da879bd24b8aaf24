"""Lists are drawn as the federation asks, around a model's order or the application's own."""

import numpy as np
import pytest
from support.small_rankers import trainings

from foltr.core.learning.display import best_list, interleaved_list, sampled_list, sometimes_sampled_list, swapped_list
from foltr.core.learning.gate import Source
from foltr.core.learning.linear import rank_by_score
from foltr.core.methods.lists import draw_base_list, draw_list, list_from, make_list
from foltr.core.methods.registry import METHODS, draws_lists
from foltr.core.protocol.explorations import SAFE, read_exploration

K = 6
SCORES = np.random.default_rng(5).normal(size=9).astype(np.float32)
EXPECTED = {
    "none": lambda _rng: best_list(SCORES, K),
    "share:0.4:0.7": lambda rng: sometimes_sampled_list(SCORES, K, rng, 0.4, 0.7),
    "swaps:0.3": lambda rng: swapped_list(rank_by_score(SCORES, K), rng, 0.3),
    "interleaving": lambda rng: interleaved_list(rank_by_score(SCORES, K), np.arange(K), rng)[0],
    "sampling": lambda rng: sampled_list(SCORES, K, rng),
    "sampling:0.3": lambda rng: sampled_list(SCORES, K, rng, 0.3),
}


def test_each_exploration_draws_its_own_lists():
    """As long as there are documents."""
    for text, draw in EXPECTED.items():
        for seed in range(5):
            shown = draw_list(read_exploration(text), SCORES, K, np.random.default_rng(seed))
            expected = draw(np.random.default_rng(seed))
            np.testing.assert_array_equal(shown.ranking, expected.ranking)
            np.testing.assert_array_equal(shown.reversals, expected.reversals)
            assert shown.log_probability == expected.log_probability, text
    for text in EXPECTED:
        for n in (1, 3):
            shown = draw_list(read_exploration(text), SCORES[:n], K, np.random.default_rng(1))
            assert sorted(shown.ranking.tolist()) == list(range(n)), text
            assert shown.reversals.shape == (n * (n - 1) // 2,), text


def test_methods_with_lists_of_their_own_show_the_best():
    """Whatever the training says of exploration: theirs is in the scores."""
    for method in METHODS:
        training = trainings()[method].model_copy(update={"exploration": read_exploration("sampling:1000")})
        lists = [make_list(training, SCORES, K, np.random.default_rng(seed)).ranking.tolist() for seed in range(9)]
        assert (len({tuple(one) for one in lists}) > 1) is draws_lists(method), method
        if not draws_lists(method):
            assert lists[0] == rank_by_score(SCORES, K).tolist(), method


def test_the_applications_order_is_explored_around_too():
    """Interleaved with nothing it is shown as it is; its scores have any scale, so samples are of standardised ones."""
    falling = -np.sort(-SCORES.astype(np.float64))
    rng = np.random.default_rng
    assert draw_base_list(read_exploration("interleaving"), falling, K, rng(1)).ranking.tolist() == list(range(K))
    assert draw_base_list(read_exploration("none"), falling, K, rng(1)).ranking.tolist() == list(range(K))
    for text in ("sampling", "sampling:0.5"):
        shown = [draw_base_list(read_exploration(text), falling * scale, K, rng(2)) for scale in (1.0, 1e4)]
        np.testing.assert_array_equal(shown[0].ranking, shown[1].ranking)
        assert shown[0].log_probability == pytest.approx(shown[1].log_probability)
    swapped = [draw_base_list(SAFE, falling, K, rng(seed)).ranking for seed in range(30)]
    assert max(np.abs(ranking - np.arange(K)).max() for ranking in swapped) == 1


@pytest.mark.parametrize("text", EXPECTED)
def test_a_list_comes_from_where_the_gate_says(text):
    """And says so: one that was interleaved by the exploration is to somebody's credit, too."""
    exploration, falling = read_exploration(text), np.arange(9, 0, -1.0)

    def drawn(source):
        return list_from(source, exploration, SCORES, falling, K, np.random.default_rng(1))

    of_base = drawn(Source.BASE)
    assert (of_base.source, of_base.to_credit) == (Source.BASE, None)
    expected = draw_base_list(exploration, falling, K, np.random.default_rng(1))
    np.testing.assert_array_equal(of_base.shown.ranking, expected.ranking)
    of_model = drawn(Source.MODEL)
    expected = draw_list(exploration, SCORES, K, np.random.default_rng(1))
    np.testing.assert_array_equal(of_model.shown.ranking, expected.ranking)
    assert of_model.source is (Source.INTERLEAVED if text == "interleaving" else Source.MODEL)
    interleaved = drawn(Source.INTERLEAVED)
    assert interleaved.source is Source.INTERLEAVED
    assert interleaved.to_credit is not None
    assert set(interleaved.to_credit.tolist()) == {-1, 1}
