"""Simulated applications show their own order until the model has earned better, as the service's devices do."""

import numpy as np
import pytest
from simulated import check_resumed, config

from foltr.core.errors import SettingsError
from foltr.core.learning.gate import Source
from foltr.core.methods.base import DeviceContext
from foltr.core.methods.registry import make_device
from foltr.core.protocol.explorations import SAFE, SamplingExploration
from foltr.core.protocol.trainings import LinearRankerSpec, PdgdTraining
from foltr_research.simulation.clients.applications import Applications
from foltr_research.simulation.config import resolve

FEATURES = np.array([[0.2, 0.0], [0.9, 0.5], [0.5, 1.0], [0.9, 0.0]], np.float32)
RELEVANCE = np.array([0, 1, 2, 0], np.int16)


def device_with(weights: list[float]):
    training = PdgdTraining(min_interactions=1)
    return make_device(training, LinearRankerSpec(n_features=2), np.array(weights, np.float32), 0, DeviceContext(1))


def test_documents_come_in_the_applications_order():
    """By the feature that was named, from 1; equal ones as they are given."""
    query = Applications(1, 2).ordered(FEATURES, RELEVANCE)
    assert query.relevance.tolist() == [1, 0, 2, 0]
    assert query.base_scores.tolist() == pytest.approx([0.9, 0.9, 0.5, 0.2])
    assert query.base_ndcg(2) < query.base_ndcg(4) < 1.0
    with pytest.raises(SettingsError, match="has 2 features"):
        Applications(3, 2)


def test_a_client_sees_its_applications_lists_until_its_model_has_earned_better():
    """Its own gate decides, and a gate is in no other client's way."""
    applications, rng = Applications(1, 2), np.random.default_rng(1)
    query, better = applications.ordered(FEATURES, RELEVANCE), device_with([0.0, 1.0])
    untrained = {applications.list_for(1, query, device_with([0.0, 0.0]), SAFE, 4, rng).source for _ in range(100)}
    assert untrained == {Source.BASE}
    sources = []
    for _ in range(400):
        listed = applications.list_for(1, query, better, SAFE, 4, rng)
        clicks = query.relevance[listed.shown.ranking] == 2
        applications.take_clicks(1, listed, clicks)
        sources.append(listed.source)
    assert Source.MODEL not in sources[:10]
    assert sources[-20:].count(Source.MODEL) > 10
    others = {applications.list_for(2, query, better, SAFE, 4, rng).source for _ in range(20)}
    assert Source.MODEL not in others


def test_gates_are_kept_in_a_checkpoint(tmp_path):
    """A run that was stopped goes on as one that was not."""
    whole = check_resumed(config(base_feature=1, rounds=8, clicks=("perfect",)), tmp_path / "checkpoint")
    assert whole.base_online_per_round is not None
    assert whole.base_online_per_round.shape == (8,)


def test_the_defaults_are_the_safe_ones_where_there_is_an_order_to_keep():
    """Without one they are the papers': sampling, and their learning rate."""
    safe, papers = resolve(config(base_feature=1), 5)[0], resolve(config(), 5)[0]
    assert isinstance(safe, PdgdTraining)
    assert isinstance(papers, PdgdTraining)
    assert (safe.exploration, safe.learning_rate) == (SAFE, 3.0)
    assert (papers.exploration, papers.learning_rate) == (SamplingExploration(), 0.1)
