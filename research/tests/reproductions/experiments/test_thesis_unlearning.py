"""The experiments of chapter 6: what is run, and claims that can fail."""

import dataclasses

import pytest
from made_results import profile

from foltr_research.reproductions.experiment import CLICKS
from foltr_research.reproductions.experiments import thesis_unlearning
from foltr_research.reproductions.experiments.thesis_unlearning import (
    INTERVALS,
    LOCAL_INTERACTIONS_TRIED,
    RETRAINED,
    TAINTED,
    UNLEARNED,
)
from foltr_research.reproductions.outcomes import Results
from foltr_research.reproductions.registry import EXPERIMENTS


@pytest.fixture
def short(monkeypatch):
    """Federations of a few rounds, on generated data."""
    monkeypatch.setattr(thesis_unlearning, "ROUNDS", {"quick": 40})
    return dataclasses.replace(profile(), data="synthetic")


def test_the_federations_of_figures_and_table(short):
    """6.2: as long, with the same users; 6.3: over calibration rounds, beside level lines; the table's every cell."""
    grid = EXPERIMENTS["thesis-6.2"].grid("quick", short)
    assert [(one.labels["federation"], one.config.clients) for one in grid[::3]] == [("10H-0M", 10), ("9H-0M", 9)]
    tainted = EXPERIMENTS["thesis-6.2"].more("quick", short, 1)
    assert [one.labels for one in tainted] == [{"federation": TAINTED, "clicks": clicks} for clicks in CLICKS]
    assert tainted[0].result["interactions"] == 40 * 10 * 5
    found = Results(tuple(EXPERIMENTS["thesis-6.3"].more("quick", short, 1)), short)
    curve = found.select({"federation": UNLEARNED, "clicks": "perfect"}).curve("offline")
    assert curve.rounds.tolist() == [0, 1, 2, 3, 4]
    level = found.select({"federation": RETRAINED, "clicks": "perfect"}).curve("offline")
    assert level.rounds.tolist() == curve.rounds.tolist()
    assert len(set(level.mean.tolist())) == 1
    one = EXPERIMENTS["thesis-table-6.2"]
    found = one.more("quick", short, 1)
    assert len(found) == len(INTERVALS) * len(LOCAL_INTERACTIONS_TRIED) * len(CLICKS)
    steps = {int(run.labels["interval"]): run.result["ndcg_at_10"][-1]["round"] for run in found}
    assert steps == {5: 8, 10: 4, 20: 2}
    assert {(run.labels["interval"], run.labels["local_interactions"]) for run in one.grid("quick", short)} == {
        ("1", "5")
    }
