"""The simulation reports what the model can and what people saw, as the results of a real federation."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from support.completed_process import completed

from collection import JudgedQueries
from foltr.core.data.dataset import RankingDataset
from simulate import mrr_at_10, reciprocal_rank

SIMULATE = Path(__file__).parents[3] / "examples/desktop_search/simulate.py"


def test_mrr_is_the_mean_of_one_over_the_rank_of_what_was_meant():
    """Equal scores keep the order, and below the tenth place nothing counts."""
    relevance = np.zeros(15, np.int16)
    relevance[[2, 13]] = 1
    dataset = RankingDataset(
        "two queries", np.zeros((15, 1), np.float32), relevance, np.array([0, 3, 15]), np.arange(2)
    )
    asked = JudgedQueries(dataset, np.zeros((15, 1)), np.zeros(15), np.zeros(2, np.int64), 2)
    assert mrr_at_10(np.zeros(15), asked) == (1 / 3 + 0) / 2  # the second is at the eleventh place
    assert mrr_at_10(relevance.astype(np.float64), asked) == 1.0
    scores = np.zeros(15)
    scores[[0, 13, 14]] = 1.0, 1.0, 2.0
    assert mrr_at_10(scores, asked) == (1 / 3 + 1 / 2) / 2
    assert reciprocal_rank(np.array([False, False])) == 0.0


@pytest.mark.nightly
def test_a_short_simulation_learns_and_says_so(tmp_path):
    """A federation of eight devices over the embedded broker, with a fifth of the queries."""
    file = tmp_path / "results.json"
    command = [sys.executable, str(SIMULATE), "--rounds", "30", "--share", "0.2", "--json", str(file)]
    done = completed(command)
    assert done.returncode == 0, done.stderr
    results = json.loads(file.read_text())
    assert len(results["shown_minus_base"]) == len(results["standard_errors"]) == 2
    assert len(results["model_mrr_at_10_by_round"]) == 31
    assert results["model_mrr_at_10"] == results["model_mrr_at_10_by_round"][-1]
    assert 0.2 < results["base_mrr_at_10"] < results["model_mrr_at_10"]
    assert results["base_mrr_at_10"] < results["full_information"] < 0.7
    assert f"{results['model_mrr_at_10']:.3f}" in done.stdout
    assert done.stderr == ""
