"""Metrics: by Prometheus' conventions, true, and there while the database is away."""

import asyncio
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from functools import partial

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import update
from support.api_server import FEDERATION, asked
from support.backups import back_up, restore
from support.evaluation_database import made_evaluations
from support.waiting import PATIENCE_S

from foltr.api.access import COOKIE
from foltr.api.tokens import Role
from foltr.storage.database import Database
from foltr.storage.federations import claim_federation
from foltr.storage.records import RoundOpening
from foltr.storage.rounds import abandon_round, latest_round
from foltr.storage.tables import rounds


def samples(text):
    """Every sample by name and labels, without the federation's."""
    return {
        (sample.name, *sorted(value for label, value in sample.labels.items() if label != "federation")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_they_say_what_the_database_does(server):
    """One completed round with three updates; an open one, overdue; one of three clients in quarantine."""
    found = samples((await server.get("/metrics", server.token(Role.VIEWER))).text)
    assert found["foltr_database_up",] == 1
    assert found["foltr_rounds_total", "completed"] == 1
    assert found["foltr_rounds_total", "abandoned"] == 0
    assert found["foltr_updates_total",] == 3
    assert (found["foltr_round_number",], found["foltr_round_updates",], found["foltr_round_quorum",]) == (2, 0, 2)
    assert found["foltr_round_overdue_seconds",] > 0
    assert [found["foltr_clients", of] for of in ("member", "online", "quarantined", "suspect")] == [3, 3, 1, 1]
    assert (found["foltr_model_version",], found["foltr_model_tainted",]) == (1, 0)
    assert found["foltr_erasures", "waiting"] == 0


async def test_where_devices_come_by_none_is_said_to_be_online(server, migrated_url):
    """An alarm compares that number with a round's quorum; the page says that each visits for a moment."""
    async with await Database.connect(migrated_url) as database, database.transaction() as connection:
        await connection.execute(update(rounds).values(period_s=3600.0))
    found = samples((await server.get("/metrics", server.token(Role.VIEWER))).text)
    assert found["foltr_clients", "member"] == 3
    assert ("foltr_clients", "online") not in found
    page = await server.get("/", headers={"Cookie": f"{COOKIE}={server.token(Role.VIEWER)}"})
    assert "each visits for a moment" in page.text


async def test_they_say_how_well_the_ranker_does(sqlite_url, tmp_path):
    """Of the newest round that says so, as shown and in the base order; nothing where none does."""
    await made_evaluations(sqlite_url)
    async with asked(sqlite_url, tmp_path) as server:
        found = samples((await server.get("/metrics", server.token(Role.VIEWER))).text)
        told = (await server.get("/api/v1/status", server.token(Role.VIEWER))).json()["effectiveness"]
    assert (found["foltr_round_reward", "shown"], found["foltr_round_reward", "base"]) == (0.25, 0.375)
    assert found["foltr_round_clicked_ratio",] == 0.75
    assert (told["newest"]["reward"], told["mean_before"]) == (0.25, pytest.approx(0.6))


async def test_totals_begin_anew_where_an_older_copy_of_the_database_was_put_back(server, monkeypatch):
    """As counters do: rounds that are ended once more are not left out, and none is counted twice, scraped or not."""
    monkeypatch.setattr("foltr.api.metrics._READ_EVERY_S", 0.0)
    viewer, db = server.token(Role.VIEWER), server.served.db
    copy = await back_up(db)
    epoch = await claim_federation(db, FEDERATION, 0.0)
    at, following = datetime.now(UTC), (await latest_round(db, FEDERATION)).number + 1
    opening = RoundOpening(following, 1, 2, 10, 0.0, 60.0, at, at + timedelta(seconds=60))
    await abandon_round(db, FEDERATION, epoch, 2, "too_few_clients", at, opening)

    async def counted():
        found = samples((await server.get("/metrics", viewer)).text)
        return [found["foltr_rounds_total", state] for state in ("completed", "abandoned")]

    for _ in range(2):
        assert await counted() == [1, 1]
    await restore(db, copy)
    assert await counted() == [1, 0]
    epoch = await claim_federation(db, FEDERATION, 0.0)
    await abandon_round(db, FEDERATION, epoch, 2, "too_few_clients", at, opening)
    assert await counted() == [1, 1]


async def test_requests_are_counted_by_route_and_not_by_path(server):
    """A path may hold a client's name; a method that somebody makes up is no label."""
    viewer = server.token(Role.VIEWER)
    await server.get("/api/v1/clients/anna-phone", viewer)
    await server.get("/anna-phone", viewer)
    async with httpx2.AsyncClient(base_url=server.url, timeout=PATIENCE_S) as client:
        await client.request("ANNA", "/health")
    text = (await server.get("/metrics", viewer)).text
    assert "anna" not in text.lower()
    found = samples(text)
    assert found["foltr_http_requests_total", "/api/v1/clients/{client_id}", "404", "GET"] == 1
    assert found["foltr_http_requests_total", "404", "GET", "none"] == 1
    assert found["foltr_http_requests_total", "/health", "405", "other"] == 1


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool")
async def test_promtool_finds_nothing_to_complain_of(on_sqlite):
    """Names, units and help texts are as Prometheus' own checker wants them."""
    text = (await on_sqlite.get("/metrics", on_sqlite.token(Role.VIEWER))).text
    check = partial(subprocess.run, input=text, capture_output=True, text=True, check=False)
    done = await asyncio.to_thread(check, ["promtool", "check", "metrics"])
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
