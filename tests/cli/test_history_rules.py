"""``foltr rounds show``, ``foltr device show`` and ``foltr device quarantine`` of a federation with a rule."""

import asyncio
import json
import sqlite3

import pytest
from cli.commands import foltr
from support.history_database import made_history

from foltr.cli.history.clients import fates_in_words
from foltr.operations.round_words import rule_in_words
from foltr.storage.history_records import RoundAggregationRow


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    """The options that name a database with one round of a rule."""
    db = f"sqlite:///{tmp_path_factory.mktemp('rules')}/history.sqlite"
    asyncio.run(made_history(db, "mail"))
    return ("--db", db, "--federation", "mail")


def printed(*arguments):
    return foltr(*arguments, code=0).stdout


def test_a_round_shows_its_rule_and_each_clients_fate(options):
    """The rule it was to have, the one it got and why, and for each client its share, score and reason."""
    shown = json.loads(printed("rounds", "show", "latest", *options, "--json"))  # the next one is open
    assert [shown["round"][name] for name in ("round", "aggregation", "rule")] == [1, "krum", "median"]
    assert shown["aggregation"]["parameters"] == {"n": 3.0, "m": 1.0}
    assert shown["aggregation"]["fallback_reason"] == "krum needs 5 updates, 3 arrived"
    lines = [(row["client_id"], row["fate"], row["share"], row["score"]) for row in shown["contributions"]]
    assert lines == [("a", "kept", 0.75, 1.5), ("b", "clipped", 0.25, 3.0), ("c", "dropped", 0.0, 9.0)]
    assert shown["contributions"][2]["fate_reason"] == "far from its neighbours"
    text = printed("rounds", "show", "1", *options)
    assert "Aggregated by median (n = 3, m = 1): 1 kept, 1 shortened, 1 left out. Fallback: krum needs 5" in text
    assert "75.0%" in text
    assert (" shortened " in text, " clipped" in text) == (True, False)  # as the page says it
    assert "far from its neighbours" in text


def test_an_open_round_shows_the_rule_it_will_have(options):
    """And no aggregation yet."""
    shown = json.loads(printed("rounds", "show", "2", *options, "--json"))
    assert (shown["round"]["aggregation"], shown["round"]["byzantine"], shown["round"]["rule"]) == ("krum", 1.0, None)
    assert shown["aggregation"] is None
    assert "Aggregated by" not in printed("rounds", "show", "2", *options)


def test_a_client_shows_its_quarantine_and_how_often_it_was_dropped(options):
    """Both for people and for programs."""
    shown = json.loads(printed("device", "show", "b", *options, "--json"))
    assert shown["client"]["quarantine_reason"] == "it flips signs"
    assert shown["fates"] == {"kept": 0, "clipped": 1, "dropped": 0}
    assert shown["n_completed_rounds"] == 1
    text = printed("device", "show", "b", *options)
    assert "Completed rounds it contributed to: 1; left out in 0, shortened in 1, kept in 0\n" in text


def test_a_clients_rounds_are_all_accounted_for():
    """Rules that record nothing when they keep all do not make the dropped look like many."""
    for fates, n_completed, told in (
        ((0, 0, 0), 9, "Completed rounds it contributed to: 9. Nobody was left out or shortened in any of them"),
        (
            (2, 1, 3),
            9,
            "Completed rounds it contributed to: 9; left out in 3, shortened in 1, kept in 2; in the 3 others",
        ),
        ((6, 0, 3), 9, "Completed rounds it contributed to: 9; left out in 3, shortened in 0, kept in 6"),
    ):
        said = fates_in_words(dict(zip(("kept", "clipped", "dropped"), fates, strict=True)), n_completed)
        assert said.removesuffix(" nobody was left out or shortened") == told, fates


def test_a_client_of_a_plain_mean_is_told_too(tmp_path):
    """Its rounds are counted; and one that never contributed to a completed round has nothing to tell."""
    db = f"sqlite:///{tmp_path}/history.sqlite"
    asyncio.run(made_history(db, "mail"))
    connection = sqlite3.connect(tmp_path / "history.sqlite")
    try:
        with connection:
            connection.execute("DELETE FROM update_fates")
            connection.execute("DELETE FROM round_aggregations")
            connection.execute("DELETE FROM updates WHERE client = (SELECT id FROM clients WHERE client_id = 'b')")
    finally:
        connection.close()
    options = ("--db", db, "--federation", "mail")
    assert "contributed to: 1. Nobody was left out or shortened in any" in printed("device", "show", "a", *options)
    assert "Completed rounds" not in printed("device", "show", "b", *options)


def test_the_list_of_clients_shows_who_is_in_quarantine(options):
    """Beside the membership, which goes on; programs find the date."""
    lines = printed("device", "list", *options).splitlines()
    a, b, c = (line for line in lines if line.split()[0] in {"a", "b", "c"})
    assert "joined, in quarantine" in b
    assert "quarantine" not in a + c
    rows = json.loads(printed("device", "list", *options, "--json"))
    assert [row["client_id"] for row in rows if row["quarantined_at"] is not None] == ["b"]


def test_the_open_round_tells_of_the_quarantine(options):
    """Who is in it and a member still, in words and for programs."""
    assert json.loads(printed("rounds", "why", *options, "--json"))["quarantined"] == ["b"]
    assert "their updates do not count: b." in printed("rounds", "why", *options)


def _made(rule, n_kept, n_clipped, n_dropped):
    return RoundAggregationRow("mail", 1, rule, '{"n": 9.0, "m": 2.0}', None, n_kept, n_clipped, n_dropped)


def test_a_round_of_the_adaptive_rule_says_whom_it_counted():
    """That the mean was used is no sign that the rule was not."""
    for made, told in (
        (_made("mean", 9, 0, 0), "adaptive: mean of all 9, nobody left out or shortened"),
        (_made("mean", 6, 1, 2), "adaptive: mean of 7 of 9, 2 left out, 1 shortened"),
        (_made("median", 9, 0, 0), "Aggregated by median (n = 9, m = 2): 9 kept, 0 shortened, 0 left out."),
    ):
        assert rule_in_words("adaptive", made) == told, made


def test_the_quarantine_lists_who_is_there_and_who_is_proposed(options):
    """With reasons and evidence; who is there already is not proposed."""
    shown = json.loads(printed("device", "quarantine", *options, "--json"))
    assert [(row["client_id"], row["quarantine_reason"]) for row in shown["quarantined"]] == [("b", "it flips signs")]
    (proposed,) = shown["proposed"]
    assert (proposed["client_id"], proposed["n"], proposed["detail"]) == ("c", 1, "far away in 9 of 10 rounds")
    text = printed("device", "quarantine", *options)
    assert "In quarantine in mail" in text
    assert "far away in 9 of 10 rounds" in text
