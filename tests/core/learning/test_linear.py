import itertools

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from foltr.core.errors import DataError
from foltr.core.learning.linear import rank_by_score, sample_plackett_luce, score


def plackett_luce(scores: np.ndarray, ranking: tuple[int, ...]) -> float:
    """P(R) by the definition (FPDGD, Eq. 1 and 2)."""
    left = list(range(len(scores)))
    probability = 1.0
    for document in ranking:
        probability *= np.exp(scores[document]) / np.exp(scores[left]).sum()
        left.remove(document)
    return probability


def test_score_is_one_inner_product_per_document() -> None:
    """Equal scores keep the document order; a seed shows one list, a short query all documents."""
    features = np.array([[3, 4], [0, 1]], np.float32)
    result = score(np.array([1.0, 2.0]), features)
    assert result.tolist() == [1 * 3 + 2 * 4, 2 * 1]
    assert result.dtype == np.float32
    assert rank_by_score(np.array([1.0, 2.0, 1.0, 2.0]), 4).tolist() == [1, 3, 0, 2]
    scores = np.zeros(5, np.float32)
    first, second = (sample_plackett_luce(scores, 10, np.random.default_rng(1)) for _ in range(2))
    assert first.tolist() == second.tolist()
    assert sorted(first.tolist()) == [0, 1, 2, 3, 4]
    for k in [2, 30]:
        for bad in [np.nan, -np.inf]:
            scores = np.zeros(40)
            scores[7] = bad
            with pytest.raises(DataError, match="finite"):
                rank_by_score(scores, k)


@given(st.lists(st.integers(-5, 5), max_size=60), st.integers(0, 70))
def test_rank_by_score_is_a_stable_descending_sort(values: list[int], k: int) -> None:
    """Short and long rankings, found in different ways, are both the head of the stable sort."""
    scores = np.array(values, np.float64)
    assert rank_by_score(scores, k).tolist() == sorted(range(len(values)), key=lambda i: -values[i])[:k]


@pytest.mark.parametrize("shift", [0.0, 5000.0])
def test_sampling_follows_the_plackett_luce_law(rng: np.random.Generator, shift: float) -> None:
    """All ordered pairs of four documents come as often as Eq. 2 says, also where exp(score) overflows."""
    scores = np.array([0.0, 1.0, -0.5, 0.3])
    outcomes = list(itertools.permutations(range(4), 2))
    draws = 20_000
    seen = dict.fromkeys(outcomes, 0)
    for _ in range(draws):
        seen[tuple(sample_plackett_luce(scores + shift, 2, rng).tolist())] += 1
    expected = [draws * plackett_luce(scores, outcome) for outcome in outcomes]
    assert scipy.stats.chisquare([seen[outcome] for outcome in outcomes], expected).pvalue > 1e-3
