"""Lists fit a screen of 80x24, say what is not shown, and cut nothing; programs get all fields, and streams."""

import asyncio
import json
import sqlite3
import time

import pytest
from cli.commands import foltr, start
from long_histories import long_history
from made_history import OPENED

from foltr.cli.listing import pause_after
from foltr.storage.arrivals import commit_batch
from foltr.storage.database import Database
from foltr.storage.federations import claim_federation
from foltr.storage.records import Batch, MembershipChange, RoundOpening
from foltr.storage.rounds import abandon_round, open_round

NARROW = {"COLUMNS": "80", "LINES": "24"}


@pytest.fixture(scope="module")
def db(tmp_path_factory):
    """62 rounds, 23 clients: of these one has left and one was revoked. Each round has 20 refusals."""
    url = f"sqlite:///{tmp_path_factory.mktemp('lists') / 'foltr.sqlite'}"

    async def make() -> None:
        async with await long_history(url, 60) as database:
            epoch = await claim_federation(database, "mail", 1.0)
            gone = [MembershipChange("a", "revoked", OPENED), MembershipChange("c", "left", OPENED, sequence=9)]
            await commit_batch(database, "mail", epoch, Batch(membership=gone))

    asyncio.run(make())
    return url


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("rounds list", "Earlier rounds not shown: 44; to see them: --limit 62"),
        ("device list", "Clients not shown: 5; to see them: --limit 23"),
        ("models list", None),
        ("erasure list", None),
    ],
)
def test_a_list_fits_the_screen(db, command, more):
    """With a line that says how many more there are, and which option shows them."""
    done = foltr(*command.split(), "--db", db, **NARROW)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) <= 24
    assert max(len(line.rstrip()) for line in lines) <= 80
    assert "…" not in done.stdout
    assert more is None or more in done.stdout
    if more is not None:
        everything = foltr(*command.split(), "--db", db, *more.split()[-2:], **NARROW)
        assert len(everything.stdout.splitlines()) > 22
        assert "not shown" not in everything.stdout


@pytest.mark.parametrize("command", ["rounds show 30", "rounds show latest", "device show device-7", "device show b"])
def test_what_is_shown_of_one_is_not_cut(db, command):
    """Its tables fit; the command that shows all of them is said, and does."""
    done = foltr(*command.split(), "--db", db, COLUMNS="80", LINES="20")
    assert done.returncode == 0, done.stderr
    assert max(len(line.rstrip()) for line in done.stdout.splitlines()) <= 80
    assert "…" not in done.stdout
    if command in ("rounds show 30", "device show device-7"):
        assert f"to see them: foltr {command} --all" in done.stdout.replace("\n", " ")
        assert "not shown" not in foltr(*command.split(), "--all", "--db", db).stdout


def test_the_latest_round_needs_no_number(db):
    """It is the one with the highest; what is neither is said."""
    assert json.loads(foltr("rounds", "show", "latest", "--db", db, "--json").stdout)["round"]["round"] == 62
    for wrong in ("newest", "0", "-1", "1.5"):
        refused = foltr("rounds", "show", "--db", db, "--", wrong)
        assert refused.returncode == 2
        assert "neither a number from 1 on nor 'latest'" in refused.stderr


def test_a_revoked_client_is_listed_as_revoked(db):
    """It has not left."""
    listed = foltr("device", "list", "--db", db).stdout.splitlines()
    stands = {line.split()[0]: line.split()[1] for line in listed[2:]}
    assert (stands["a"], stands["c"], stands["device-1"]) == ("revoked", "left", "joined")


def test_programs_get_a_line_a_round(db):
    """The same fields as --json has."""
    lines = foltr("rounds", "list", "--db", db, "--jsonl", "--limit", "3").stdout.splitlines()
    assert [json.loads(line) for line in lines] == json.loads(
        foltr("rounds", "list", "--db", db, "--json", "--limit", "3").stdout
    )


async def _history_with_an_open_round(url: str, n_more: int) -> None:
    """Rounds that have ended, and the one after them."""
    async with await long_history(url, n_more) as database:
        epoch, number = await claim_federation(database, "mail", 1.0), n_more + 3
        await open_round(database, "mail", epoch, RoundOpening(number, 1, 2, 10, 0.0, 60.0, OPENED, OPENED))


async def _end(url: str, number: int) -> None:
    async with await Database.connect(url) as database:
        epoch = await claim_federation(database, "mail", 2.0)
        await abandon_round(database, "mail", epoch, number, "no_updates", OPENED, None)


def test_a_stream_goes_on_with_each_round_that_ends(tmp_path):
    """Those that have ended, and then each that does, once."""
    url = f"sqlite:///{tmp_path / 'foltr.sqlite'}"
    asyncio.run(_history_with_an_open_round(url, 3))
    watching = start("rounds", "list", "--db", url, "--watch", "--jsonl")
    try:
        assert [json.loads(watching.stdout.readline())["round"] for _ in range(5)] == [1, 2, 3, 4, 5]
        asyncio.run(_end(url, 6))
        row = json.loads(watching.stdout.readline())
        assert (row["round"], row["reason"]) == (6, "no_updates")
    finally:
        watching.kill()
        watching.stdout.close()


def test_a_limit_is_of_the_first_look_only(tmp_path):
    """Of a stream: no round that ends later is left out, and people get a sentence for each."""
    url = f"sqlite:///{tmp_path / 'foltr.sqlite'}"
    asyncio.run(_history_with_an_open_round(url, 3))
    watching = start("rounds", "list", "--db", url, "--watch", "--limit", "1")
    try:
        assert "round 5 abandoned (too_few_clients)" in watching.stdout.readline()
        asyncio.run(_end(url, 6))
        assert "round 6 abandoned (no_updates)" in watching.stdout.readline()
    finally:
        watching.kill()
        watching.stdout.close()


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (("device", "list"), "client_id"),
        (("models", "list"), "version"),
        (("erasure", "log"), "seq"),
        (("erasure", "list"), "pseudonym"),
    ],
)
def test_each_list_is_a_stream_for_programs(tmp_path, words, key):
    """The same records as --json, a line each; watched by people it says what is for them."""
    url = f"sqlite:///{tmp_path / 'foltr.sqlite'}"
    asyncio.run(_history_with_an_open_round(url, 3))
    listed = json.loads(foltr(*words, "--db", url, "--json").stdout)
    streamed = [json.loads(line) for line in foltr(*words, "--db", url, "--jsonl").stdout.splitlines()]
    assert streamed == listed
    assert len({record[key] for record in streamed}) == len(streamed)
    refused = foltr(*words, "--db", url, "--watch")
    assert refused.returncode == 2
    assert "foltr status --watch" in refused.stderr


def test_a_watched_list_goes_on_with_what_is_new_or_changes(tmp_path):
    """A client that is put into quarantine is told once more, and nobody else."""
    url = f"sqlite:///{tmp_path / 'foltr.sqlite'}"
    asyncio.run(_history_with_an_open_round(url, 3))
    names = [row["client_id"] for row in json.loads(foltr("device", "list", "--db", url, "--json").stdout)]
    watching = start("device", "list", "--db", url, "--watch", "--jsonl")
    try:
        assert [json.loads(watching.stdout.readline())["client_id"] for _ in names] == names
        with sqlite3.connect(tmp_path / "foltr.sqlite") as database:
            database.execute("UPDATE clients SET online = NOT online WHERE client_id = ?", [names[0]])
        assert json.loads(watching.stdout.readline())["client_id"] == names[0]
    finally:
        watching.kill()
        watching.stdout.close()


def test_who_watches_a_long_list_looks_less_often():
    """A tenth of the time at most, and once a second at most."""
    assert [pause_after(look_s) for look_s in (0.0, 0.05, 2.0)] == [1.0, 1.0, 18.0]


def test_a_stream_goes_on_with_a_database_that_was_restored(tmp_path):
    """Rounds that end once more are told once more, and not left out until their numbers are passed."""
    url, copy = f"sqlite:///{tmp_path / 'foltr.sqlite'}", tmp_path / "copy.sqlite"
    asyncio.run(_history_with_an_open_round(url, 3))
    asyncio.run(_history_with_an_open_round(f"sqlite:///{copy}", 1))
    watching = start("rounds", "list", "--db", url, "--watch", "--jsonl")
    try:
        assert [json.loads(watching.stdout.readline())["round"] for _ in range(5)] == [1, 2, 3, 4, 5]
        for path in tmp_path.glob("foltr.sqlite*"):
            path.unlink()
        copy.rename(tmp_path / "foltr.sqlite")
        time.sleep(2.5)
        asyncio.run(_end(url, 4))
        assert json.loads(watching.stdout.readline())["round"] == 4
    finally:
        watching.kill()
        watching.stdout.close()
