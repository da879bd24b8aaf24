"""The experiments of chapter 6: what is run, and claims that can fail."""

import dataclasses

import pytest
from made_results import profile, results

from foltr_research.reproductions.claims import Status
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


def claim(name, text):
    return next(one for one in EXPERIMENTS[name].claims if text in one.text)


def made(**finals):
    names = {"tainted": TAINTED, "honest": "10H-0M", "retrained": RETRAINED, "unlearned": UNLEARNED}
    return results(
        {
            (("federation", names[key]), ("shown", "steps"), ("clicks", clicks)): [value, value + 0.001]
            for key, value in finals.items()
            for clicks in CLICKS
        }
    )


def test_the_federations_of_figure_6_2(short):
    """The honest ones are the simulator's own; the tainted one is as long, with the same users."""
    grid = EXPERIMENTS["thesis-6.2"].grid("quick", short)
    assert [(one.labels["federation"], one.config.clients) for one in grid[::3]] == [("10H-0M", 10), ("9H-0M", 9)]
    tainted = EXPERIMENTS["thesis-6.2"].more("quick", short, 1)
    assert [one.labels for one in tainted] == [{"federation": TAINTED, "clicks": clicks} for clicks in CLICKS]
    assert tainted[0].result["interactions"] == 40 * 10 * 5


def test_the_curves_of_figure_6_3(short):
    """Over calibration rounds, with what it is compared with as level lines."""
    found = Results(tuple(EXPERIMENTS["thesis-6.3"].more("quick", short, 1)), short)
    curve = found.select({"federation": UNLEARNED, "clicks": "perfect"}).curve("offline")
    assert curve.rounds.tolist() == [0, 1, 2, 3, 4]
    level = found.select({"federation": RETRAINED, "clicks": "perfect"}).curve("offline")
    assert level.rounds.tolist() == curve.rounds.tolist()
    assert len(set(level.mean.tolist())) == 1


def test_the_cells_of_table_6_2(short):
    """Every local_interactions with every interval, and retraining beside them."""
    one = EXPERIMENTS["thesis-table-6.2"]
    found = one.more("quick", short, 1)
    assert len(found) == len(INTERVALS) * len(LOCAL_INTERACTIONS_TRIED) * len(CLICKS)
    steps = {int(run.labels["interval"]): run.result["ndcg_at_10"][-1]["round"] for run in found}
    assert steps == {5: 8, 10: 4, 20: 2}
    assert {(run.labels["interval"], run.labels["local_interactions"]) for run in one.grid("quick", short)} == {
        ("1", "5")
    }


@pytest.mark.parametrize(("value", "status"), [(0.3, Status.CONFIRMED), (0.5, Status.NOT_CONFIRMED)])
def test_the_tainted_federation_is_worse(value, status):
    """Below both honest ones with each click model."""
    found = made(tainted=value, honest=0.5, retrained=0.5)
    for honest in ("10H-0M", RETRAINED):
        assert claim("thesis-6.2", f"below {honest}").check(found).status is status


@pytest.mark.parametrize(("value", "status"), [(0.495, Status.CONFIRMED), (0.48, Status.NOT_CONFIRMED)])
def test_honest_federations_alike(value, status):
    """However bad the tainted one is."""
    found = made(tainted=0.1, honest=0.5, retrained=value)
    assert claim("thesis-6.2", "cannot be told apart").check(found).status is status


@pytest.mark.parametrize(
    ("value", "converges", "no_better"),
    [
        (0.495, Status.CONFIRMED, Status.CONFIRMED),
        (0.48, Status.NOT_CONFIRMED, Status.CONFIRMED),
        (0.52, Status.CONFIRMED, Status.NOT_CONFIRMED),
    ],
)
def test_unlearning_is_as_good_as_retraining(value, converges, no_better):
    """Neither below nor above by more than the tolerance."""
    found = made(tainted=0.3, retrained=0.5, unlearned=value)
    assert claim("thesis-6.3", "converges").check(found).status is converges
    assert claim("thesis-6.3", "no better").check(found).status is no_better
    assert claim("thesis-6.3", "better than 9H-1M").check(found).status is Status.CONFIRMED


def test_trends_of_the_table():
    """More local updates and a smaller interval; the other way round neither holds."""

    def cells(sign):
        return results(
            {
                (
                    ("federation", UNLEARNED),
                    ("interval", str(interval)),
                    ("local_interactions", str(local_interactions)),
                    ("clicks", clicks),
                ): [0.5 + sign * (0.01 * local_interactions - 0.001 * interval) + 0.0001 * seed for seed in (1, 2)]
                for interval in INTERVALS
                for local_interactions in LOCAL_INTERACTIONS_TRIED
                for clicks in CLICKS
            }
        )

    for text in ("More local updates", "smaller interval"):
        assert claim("thesis-table-6.2", text).check(cells(1)).status is Status.CONFIRMED
        assert claim("thesis-table-6.2", text).check(cells(-1)).status is Status.NOT_CONFIRMED
