"""Peers give the same results as ours; byzfl and Flower are tried if installed (make bench-peers)."""

import numpy as np
import pytest

from foltr.core.learning.pdgd import pdgd_gradient

APART = "it is no dependency of the project: make bench-peers installs it apart"


@pytest.mark.parametrize("peer", ["byzfl", "flwr"])
def test_rules_equal_the_peers(peer: str, benchmark_module) -> None:
    """Rule by rule, with the definitions brought into line as research/benchmarks/aggregation.py says."""
    pytest.importorskip(peer, reason=APART)
    updates = np.random.default_rng(3).normal(size=(23, 50)).astype(np.float32)
    aggregation = benchmark_module("aggregation")
    functions = aggregation.byzfl_functions(updates, 5) if peer == "byzfl" else aggregation.flower_functions(updates, 5)
    assert len(functions) >= 6
    for rule, (function, expected) in functions.items():
        np.testing.assert_allclose(function(), expected, rtol=1e-4, atol=1e-5, err_msg=rule)


def test_the_sum_of_flowers_clients_is_right(benchmark_module) -> None:
    """What is timed is a whole round of SecAgg+: its mean is the updates', up to its grid."""
    pytest.importorskip("flwr", reason=APART)
    updates = np.random.default_rng(3).normal(size=(7, 50)).astype(np.float32)
    group = benchmark_module("secagg_plus").Group(updates)
    assert all(seconds > 0 for seconds in group.client_stages())
    np.testing.assert_allclose(group.release()[0], updates.mean(axis=0), atol=1e-5)


def test_neighbours_are_a_few_of_many(benchmark_module) -> None:
    """Twice the logarithm of the clients, and an odd number, so that as many are on either side."""
    secagg_plus = benchmark_module("secagg_plus")
    assert [secagg_plus.shares_of(n) for n in (5, 50, 1000, 5000)] == [5, 13, 21, 27]
    assert [secagg_plus.threshold_of(n) for n in (3, 13, 21)] == [2, 8, 14]


@pytest.mark.parametrize("clicked", [[0], [3, 7], [9], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], []])
def test_the_gradient_of_the_transcription_is_ours(clicked: list[int], benchmark_module) -> None:
    """Of one list and its clicks, at weights that are not zero."""
    plain_pdgd = benchmark_module("plain_pdgd")
    rng = np.random.default_rng(4)
    features = rng.random((30, 6), np.float32)
    weights = 3 * rng.normal(size=6)
    ranking = rng.permutation(30)[:10]
    clicks = np.isin(np.arange(10), clicked)
    query = plain_pdgd.Query(features, np.zeros(30, np.int16))
    found = plain_pdgd.gradient(query, features @ weights, ranking, clicks)
    np.testing.assert_allclose(found, pdgd_gradient(weights, features, ranking, clicks), rtol=1e-5, atol=1e-9)


def test_lists_come_by_their_softmax(benchmark_module) -> None:
    """The first place by the scores; a document that is hopeless comes last, and comes."""
    drawn_list, rng = benchmark_module("plain_pdgd").drawn_list, np.random.default_rng(5)
    scores = np.log(np.array([1.0, 2.0, 5.0, 1e-300]))
    lists = np.array([drawn_list(scores, 4, rng) for _ in range(2000)])
    assert (np.sort(lists) == np.arange(4)).all()
    assert (lists[:, 3] == 3).all()
    np.testing.assert_allclose(np.bincount(lists[:, 0], minlength=4) / 2000, [1 / 8, 2 / 8, 5 / 8, 0], atol=0.04)
