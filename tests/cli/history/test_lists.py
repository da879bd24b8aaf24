"""Lists fit a screen of 80x24, say what is not shown, and cut nothing."""

import asyncio
import json
from datetime import timedelta

import pytest
from cli.commands import foltr
from support.history_database import OPENED
from support.long_histories import long_history

from foltr.storage.arrivals import commit_batch
from foltr.storage.database import Database
from foltr.storage.federations import claim_federation
from foltr.storage.models import latest_model
from foltr.storage.records import Batch, MembershipChange, RoundOpening
from foltr.storage.rounds import open_round

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


def test_a_list_fits_the_screen(db):
    """With a line that says how many more there are, and which option shows them."""
    for command, more in (
        ("rounds list", "Earlier rounds not shown: 44; to see them: --limit 62"),
        ("device list", "Clients not shown: 5; to see them: --limit 23"),
        ("models list", None),
        ("erasure list", None),
    ):
        done = foltr(*command.split(), "--db", db, **NARROW, code=0)
        lines = done.stdout.splitlines()
        assert len(lines) <= 24, command
        assert max(len(line.rstrip()) for line in lines) <= 80, command
        assert "…" not in done.stdout, command
        assert more is None or more in done.stdout, command
        if more is not None:
            everything = foltr(*command.split(), "--db", db, *more.split()[-2:], **NARROW)
            assert len(everything.stdout.splitlines()) > 22, command
            assert "not shown" not in everything.stdout, command


def test_what_is_shown_of_one_is_not_cut(db):
    """Its tables fit; the command that shows all of them is said, and does."""
    for command in ("rounds show 30", "rounds show latest", "device show device-7", "device show b"):
        done = foltr(*command.split(), "--db", db, COLUMNS="80", LINES="20", code=0)
        assert max(len(line.rstrip()) for line in done.stdout.splitlines()) <= 80, command
        assert "…" not in done.stdout, command
        if command in ("rounds show 30", "device show device-7"):
            assert f"to see them: foltr {command} --all" in done.stdout.replace("\n", " "), command
            assert "not shown" not in foltr(*command.split(), "--all", "--db", db).stdout, command


def test_a_revoked_client_is_listed_as_revoked(db):
    """It has not left."""
    listed = foltr("device", "list", "--db", db).stdout.splitlines()
    stands = {line.split()[0]: line.split()[1] for line in listed[2:]}
    assert (stands["a"], stands["c"], stands["device-1"]) == ("revoked", "left", "joined")


def test_the_latest_round_is_the_newest_that_ended(db):
    """As in the API: an open round has little to show; what is neither that nor a number is said."""

    async def open_another() -> None:
        async with await Database.connect(db) as database:
            epoch = await claim_federation(database, "mail", 1.0)
            base = (await latest_model(database, "mail")).version
            ends = OPENED + timedelta(seconds=60)
            await open_round(database, "mail", epoch, RoundOpening(63, base, 1, 10, 0.0, 60.0, OPENED, ends))

    asyncio.run(open_another())
    assert json.loads(foltr("rounds", "show", "latest", "--db", db, "--json").stdout)["round"]["round"] == 62
    for wrong in ("newest", "0", "-1", "1.5"):
        refused = foltr("rounds", "show", "--db", db, "--", wrong, code=2)
        assert "neither a number from 1 on nor 'latest'" in refused.stderr
