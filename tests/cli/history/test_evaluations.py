"""What the command line shows of how well the ranker does."""

import asyncio
import json

import pytest
from cli.commands import foltr
from support.evaluation_database import REWARDS, made_evaluations
from support.tally_database import made_tallies

from foltr.core.aggregation.vote_result import RoundEvaluation


@pytest.fixture(scope="module")
def options(tmp_path_factory) -> list[str]:
    url = f"sqlite:///{tmp_path_factory.mktemp('evaluations') / 'foltr.sqlite'}"
    asyncio.run(made_evaluations(url))
    return ["--db", url, "--federation", "mail"]


def test_rounds_list_has_what_each_round_earned(options):
    """Beside the base order, for programs."""
    rows = json.loads(foltr("rounds", "list", *options, "--json").stdout)
    assert [row["reward"] for row in rows] == [*REWARDS.values(), None]
    assert (rows[1]["n_evaluations"], rows[1]["clicked"], rows[1]["evaluation_deviation"]) == (2, 0.75, None)


def test_rounds_show_says_it_in_words(options):
    """And nothing where nobody has said anything."""
    told = " ".join(foltr("rounds", "show", "3", *options).stdout.split())
    assert "By 2 updates: reward 0.700, 0.375 in the base order, 75.0% of lists clicked" in told
    assert "of lists clicked" not in foltr("rounds", "show", "1", *options).stdout


def test_status_says_how_well_it_does(options):
    """The newest round that says so, and those before it."""
    told = " ".join(foltr("status", *options).stdout.split())
    assert "Reward 0.25 in round 4, base order 0.38, 75% of lists clicked; 0.60 in the 2 before" in told
    found = json.loads(foltr("status", *options, "--json").stdout)["effectiveness"]
    assert (found["newest"]["round"], found["mean_before"], found["n_before"]) == (4, pytest.approx(0.6), 2)


def test_of_secure_sums_the_noise_is_beside_what_it_is_in(tmp_path):
    """A mean may be below nothing, and more lists clicked than there were."""
    url = f"sqlite:///{tmp_path / 'foltr.sqlite'}"
    asyncio.run(made_tallies(url, RoundEvaluation(40, 44.0, -6.0, 24.0, 6.0)))
    told = " ".join(foltr("rounds", "show", "5", "--db", url).stdout.split())
    assert "By 40 updates: reward -0.150, 0.600 in the base order" in told
    assert "each with noise of deviation 0.150" in told
    status = " ".join(foltr("status", "--db", url).stdout.split())
    assert "Reward -0.15 ± 0.15 in round 5, base order 0.60, 1.10 of lists clicked, each as noisy" in status
