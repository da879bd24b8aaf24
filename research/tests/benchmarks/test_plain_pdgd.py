"""What learners are measured beside learns the same: gradients of the transcription equal ours."""

import sys
from pathlib import Path

import numpy as np
import pytest

from foltr.core.learning.pdgd import pdgd_gradient

BENCHMARKS = Path(__file__).parents[3] / "research/benchmarks"


@pytest.mark.parametrize("clicked", [[0], [3, 7], [9], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], []])
def test_the_gradient_is_ours(clicked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one list and its clicks, at weights that are not zero."""
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    from plain_pdgd import Query, gradient

    rng = np.random.default_rng(4)
    features = rng.random((30, 6), np.float32)
    weights = 3 * rng.normal(size=6)
    ranking = rng.permutation(30)[:10]
    clicks = np.isin(np.arange(10), clicked)
    found = gradient(Query(features, np.zeros(30, np.int16)), features @ weights, ranking, clicks)
    np.testing.assert_allclose(found, pdgd_gradient(weights, features, ranking, clicks), rtol=1e-5, atol=1e-9)


def test_lists_come_by_their_softmax(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first place by the scores; a document that is hopeless comes last, and comes."""
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    from plain_pdgd import drawn_list

    rng = np.random.default_rng(5)
    scores = np.log(np.array([1.0, 2.0, 5.0, 1e-300]))
    lists = np.array([drawn_list(scores, 4, rng) for _ in range(2000)])
    assert (np.sort(lists) == np.arange(4)).all()
    assert (lists[:, 3] == 3).all()
    np.testing.assert_allclose(np.bincount(lists[:, 0], minlength=4) / 2000, [1 / 8, 2 / 8, 5 / 8, 0], atol=0.04)
