"""What the command line shows of votes, of the anchor and of a model that was rolled back."""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cli.commands import foltr
from support.databases import open_migrated
from support.tally_database import made_tallies

from foltr.storage.anchors import restore_anchor
from foltr.storage.arrivals import commit_batch
from foltr.storage.federations import claim_federation, create_federation
from foltr.storage.records import Batch, MembershipChange, NewEvent, NewModel, NewUpdate, RoundOpening
from foltr.storage.restored_records import Restoration
from foltr.storage.rounds import begin_aggregation, complete_round, open_round

OPENED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
VOTES = {"a": -1, "b": -1, "c": -1, "d": 0, "e": 1}


async def _taken_back(url: str) -> None:
    """Round 1 made model 1, which most found worse than model 0 in round 2; round 3 is open on model 2."""
    at = OPENED + timedelta(seconds=30)
    opening = RoundOpening(1, 0, 2, 10, 0.0, 60.0, OPENED, OPENED + timedelta(seconds=60), anchor_version=0)
    async with await open_migrated(url) as db:
        await create_federation(db, "mail", 1, "linear", bytes(4), OPENED)
        epoch = await claim_federation(db, "mail", 0.0)
        await open_round(db, "mail", epoch, opening)
        joined = [MembershipChange(name, "joined", OPENED) for name in VOTES]
        await commit_batch(db, "mail", epoch, Batch(membership=joined))
        for number, after in ((1, 0), (2, 5)):
            sent = [
                NewUpdate(number, name, f"{name}{number}", 0, after, after + 5, 5, "dense_f32", bytes(4), at, vote=vote)
                for name, vote in VOTES.items()
            ]
            await commit_batch(db, "mail", epoch, Batch(updates=sent))
            await begin_aggregation(db, "mail", epoch, number)
            if number == 1:
                following = replace(opening, number=2, base_version=1)
                await complete_round(db, "mail", epoch, 1, NewModel(1, bytes(4)), at, following)
        told = NewEvent(at, "model_rolled_back", "model 2 has the weights of model 0 again", round=2)
        following = replace(opening, number=3, base_version=2, anchor_version=2)
        await restore_anchor(db, "mail", epoch, Restoration(2, 0, at, "taken back", 2, following, None, [told]))


@pytest.fixture(scope="module")
def options(tmp_path_factory) -> list[str]:
    url = f"sqlite:///{tmp_path_factory.mktemp('votes') / 'foltr.sqlite'}"
    asyncio.run(_taken_back(url))
    return ["--db", url, "--federation", "mail"]


def test_rounds_list_has_the_votes_of_each_round(options):
    """Worse, none and better, for programs."""
    listed = foltr("rounds", "list", *options).stdout
    assert "abandoned: model_rolled_back" in " ".join(listed.split())
    rows = json.loads(foltr("rounds", "list", *options, "--json").stdout)
    assert [(row["anchor_version"], row["n_worse"], row["n_none"], row["n_better"]) for row in rows] == [
        (0, 3, 1, 1),
        (0, 3, 1, 1),
        (2, 0, 0, 0),
    ]


def test_rounds_show_says_what_they_were_about(options):
    """Which model, and against which."""
    shown = foltr("rounds", "show", "2", *options).stdout
    assert "Votes on model 1 against model 0, the anchor: 3 worse, 1 none, 1 better" in shown
    assert "model_rolled_back" in shown


def test_rounds_why_says_why_the_round_before_has_no_model(options):
    """And that there is nothing to vote on: a restored model is its own anchor."""
    told = foltr("rounds", "why", *options).stdout
    assert "The round before it was abandoned: model 2 has the weights of model 0 again." in told
    assert "Devices have nothing to vote on yet: model 2 is the anchor itself." in told
    assert "Votes on" not in told + foltr("rounds", "show", "3", *options).stdout


def test_models_list_says_which_one_was_restored(options):
    """Beside the base, which is the same."""
    rows = json.loads(foltr("models", "list", *options, "--json").stdout)
    assert [(row["version"], row["restored_version"]) for row in rows] == [(0, None), (1, None), (2, 0)]


# --- secure sums ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tallied(tmp_path_factory) -> list[str]:
    url = f"sqlite:///{tmp_path_factory.mktemp('tallies') / 'foltr.sqlite'}"
    asyncio.run(made_tallies(url))
    return ["--db", url, "--federation", "mail"]


def test_tallies_are_shown_with_their_noise(tallied):
    """Worse and better of each round; how many had no opinion is not known."""
    rows = json.loads(foltr("rounds", "list", *tallied, "--json").stdout)
    assert [round(row["tally_deviation"], 1) for row in rows[:5]] == [3.0] * 5
    shown = foltr("rounds", "show", "2", *tallied).stdout
    assert "about 33 worse and -2 better of 40 updates, with noise of standard deviation 3.0 in each" in shown


def test_rounds_why_says_what_tallies_come_to(tallied):
    """Of the rounds that count, and what it takes."""
    told = foltr("rounds", "why", *tallied).stdout
    assert "Votes on model 5 against model 0, the anchor: of 200 updates in 5 rounds, 167 found it worse" in told
    assert "more than half of the updates decide, by more than the noise can be." in told
