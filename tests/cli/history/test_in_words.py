"""What the commands that look at rounds, devices and models show of rules, quarantine, votes and evaluations."""

import asyncio
import json
import sqlite3
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cli.commands import foltr
from support.databases import open_migrated
from support.evaluation_database import REWARDS, made_evaluations
from support.history_database import made_history
from support.tally_database import made_tallies

from foltr.cli.history.clients import fates_in_words
from foltr.core.aggregation.vote_result import RoundEvaluation
from foltr.operations.round_words import rule_in_words
from foltr.storage.anchors import restore_anchor
from foltr.storage.arrivals import commit_batch
from foltr.storage.federations import claim_federation, create_federation
from foltr.storage.history_records import RoundAggregationRow
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


async def _plain_mean(url: str) -> None:
    """The history with a rule, without the rule; b never contributed to a completed round."""
    await made_history(url, "mail")
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    connection.execute("DELETE FROM update_fates")
    connection.execute("DELETE FROM round_aggregations")
    connection.execute("DELETE FROM updates WHERE client = (SELECT id FROM clients WHERE client_id = 'b')")
    connection.commit()
    connection.close()


MADE = {
    "rule": lambda url: made_history(url, "mail"),
    "plain mean": _plain_mean,
    "taken back": _taken_back,
    "tallies": made_tallies,
    "noisy evaluation": lambda url: made_tallies(url, RoundEvaluation(40, 44.0, -6.0, 24.0, 6.0)),
    "evaluations": made_evaluations,
}


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Run a command on a database of this kind, which is made once; return what it prints, in one line."""
    urls = {}

    def show(kind, command):
        if kind not in urls:
            urls[kind] = f"sqlite:///{tmp_path_factory.mktemp('history') / 'foltr.sqlite'}"
            asyncio.run(MADE[kind](urls[kind]))
        return " ".join(foltr(*command.split(), "--db", urls[kind], "--federation", "mail").stdout.split())

    return show


@pytest.mark.parametrize(
    ("kind", "command", "said"),
    [
        (
            "rule",
            "rounds show 1",
            "Aggregated by median (n = 3, m = 1): 1 kept, 1 shortened, 1 left out. Fallback: krum",
        ),
        ("rule", "rounds show 1", "far from its neighbours"),
        ("rule", "rounds show 1", "75.0%"),
        ("rule", "device show b", "rounds it contributed to: 1; left out in 0, shortened in 1, kept in 0"),
        ("rule", "device list", "joined, in quarantine"),
        ("rule", "device quarantine", "In quarantine in mail"),
        ("rule", "device quarantine", "far away in 9 of 10 rounds"),
        ("plain mean", "device show a", "contributed to: 1. Nobody was left out or shortened in any"),
        ("taken back", "rounds list", "abandoned: model_rolled_back"),
        ("taken back", "rounds show 2", "Votes on model 1 against model 0, the anchor: 3 worse, 1 none, 1 better"),
        ("taken back", "rounds why", "The round before it was abandoned: model 2 has the weights of model 0 again."),
        ("tallies", "rounds show 2", "33 worse and -2 better of 40 updates, with noise of standard deviation 3.0"),
        ("tallies", "rounds why", "model 0, the anchor: of 200 updates in 5 rounds, 167 found it worse"),
        ("evaluations", "rounds show 3", "reward 0.700, 0.375 in the base order, 75.0% of lists clicked"),
        ("evaluations", "status", "Reward 0.25 in round 4, base order 0.38, 75% of lists clicked; 0.60 in the 2"),
        # A mean may be below nothing, and more lists clicked than there were.
        ("noisy evaluation", "rounds show 5", "By 40 updates: reward -0.150, 0.600 in the base order"),
        ("noisy evaluation", "rounds show 5", "each with noise of deviation 0.150"),
        (
            "noisy evaluation",
            "status",
            "Reward -0.15 ± 0.15 in round 5, base order 0.60, 1.10 of lists clicked, each as",
        ),
    ],
)
def test_it_is_said_in_words(shown, kind, command, said):
    """What a rule, votes, an evaluation or a quarantine came to."""
    assert said in shown(kind, command)


def test_what_there_is_not_is_not_said(shown):
    """Of an open round, of a client without rounds, of a restored model, and of a round that nobody evaluated."""
    for kind, command, not_said in (
        ("rule", "rounds show 1", " clipped"),  # the page says shortened
        ("rule", "rounds show 2", "Aggregated by"),
        ("plain mean", "device show b", "Completed rounds"),
        ("taken back", "rounds why", "Votes on"),
        ("taken back", "rounds show 3", "Votes on"),
        ("evaluations", "rounds show 1", "of lists clicked"),
    ):
        assert not_said not in shown(kind, command), command


def test_a_program_gets_the_rule_and_each_clients_fate(shown):
    """The rule a round was to have, the one it got and why; for each client its share, score and reason."""
    found = json.loads(shown("rule", "rounds show latest --json"))  # the next one is open
    assert [found["round"][name] for name in ("round", "aggregation", "rule")] == [1, "krum", "median"]
    assert found["aggregation"]["parameters"] == {"n": 3.0, "m": 1.0}
    assert found["aggregation"]["fallback_reason"] == "krum needs 5 updates, 3 arrived"
    lines = [(row["client_id"], row["fate"], row["share"], row["score"]) for row in found["contributions"]]
    assert lines == [("a", "kept", 0.75, 1.5), ("b", "clipped", 0.25, 3.0), ("c", "dropped", 0.0, 9.0)]
    assert found["contributions"][2]["fate_reason"] == "far from its neighbours"
    still_open = json.loads(shown("rule", "rounds show 2 --json"))
    assert [still_open["round"][name] for name in ("aggregation", "byzantine", "rule")] == ["krum", 1.0, None]
    assert still_open["aggregation"] is None


def test_a_program_gets_who_is_in_quarantine(shown):
    """Of the client, of the list, of the open round; who is there already is not proposed."""
    client = json.loads(shown("rule", "device show b --json"))
    assert client["client"]["quarantine_reason"] == "it flips signs"
    assert (client["fates"], client["n_completed_rounds"]) == ({"kept": 0, "clipped": 1, "dropped": 0}, 1)
    rows = json.loads(shown("rule", "device list --json"))
    assert [row["client_id"] for row in rows if row["quarantined_at"] is not None] == ["b"]
    assert json.loads(shown("rule", "rounds why --json"))["quarantined"] == ["b"]
    listed = json.loads(shown("rule", "device quarantine --json"))
    assert [(row["client_id"], row["quarantine_reason"]) for row in listed["quarantined"]] == [("b", "it flips signs")]
    (proposed,) = listed["proposed"]
    assert (proposed["client_id"], proposed["n"], proposed["detail"]) == ("c", 1, "far away in 9 of 10 rounds")


def test_a_program_gets_votes_and_evaluations(shown):
    """Of each round; which model was restored; and how well the ranker does."""
    rows = json.loads(shown("taken back", "rounds list --json"))
    votes = [(row["anchor_version"], row["n_worse"], row["n_none"], row["n_better"]) for row in rows]
    assert votes == [(0, 3, 1, 1), (0, 3, 1, 1), (2, 0, 0, 0)]
    models = json.loads(shown("taken back", "models list --json"))
    assert [(row["version"], row["restored_version"]) for row in models] == [(0, None), (1, None), (2, 0)]
    rows = json.loads(shown("tallies", "rounds list --json"))
    assert [round(row["tally_deviation"], 1) for row in rows[:5]] == [3.0] * 5
    rows = json.loads(shown("evaluations", "rounds list --json"))
    assert [row["reward"] for row in rows] == [*REWARDS.values(), None]
    assert (rows[1]["n_evaluations"], rows[1]["clicked"], rows[1]["evaluation_deviation"]) == (2, 0.75, None)
    found = json.loads(shown("evaluations", "status --json"))["effectiveness"]
    assert (found["newest"]["round"], found["mean_before"], found["n_before"]) == (4, pytest.approx(0.6), 2)


def test_a_clients_rounds_are_all_accounted_for():
    """Rules that record nothing when they keep all do not make the dropped look like many."""
    total = "Completed rounds it contributed to: 9"
    for fates, told in (
        ((0, 0, 0), f"{total}. Nobody was left out or shortened in any of them"),
        ((2, 1, 3), f"{total}; left out in 3, shortened in 1, kept in 2; in the 3 others"),
        ((6, 0, 3), f"{total}; left out in 3, shortened in 0, kept in 6"),
    ):
        said = fates_in_words(dict(zip(("kept", "clipped", "dropped"), fates, strict=True)), 9)
        assert said.removesuffix(" nobody was left out or shortened") == told, fates


def test_a_round_of_the_adaptive_rule_says_whom_it_counted():
    """That the mean was used is no sign that the rule was not."""
    for rule, counts, told in (
        ("mean", (9, 0, 0), "adaptive: mean of all 9, nobody left out or shortened"),
        ("mean", (6, 1, 2), "adaptive: mean of 7 of 9, 2 left out, 1 shortened"),
        ("median", (9, 0, 0), "Aggregated by median (n = 9, m = 2): 9 kept, 0 shortened, 0 left out."),
    ):
        made = RoundAggregationRow("mail", 1, rule, '{"n": 9.0, "m": 2.0}', None, *counts)
        assert rule_in_words("adaptive", made) == told, made
