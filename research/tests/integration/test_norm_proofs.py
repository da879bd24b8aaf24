"""Real processes check norm proofs together: a hostile device costs only itself, whoever is killed meanwhile."""

import json

import pytest
from cli.commands import foltr
from integration.whole import N_DEVICES, click, closed, joined, learned, running
from sqlalchemy import select
from support.secure_cohorts import FEDERATION
from support.waiting import until

from foltr.core.failpoints import Failpoint
from foltr.core.protocol.states import RoundState
from foltr.storage.database import Database
from foltr.storage.queries import list_events
from foltr.storage.tables import updates
from foltr_research.cli.demos.hostile_devices import lying


@pytest.fixture
async def whole(mosquitto_server, tmp_path):
    async with running(tmp_path, mosquitto_server.url, proofs=True) as made:
        yield made


@pytest.fixture
async def devices(whole):
    """The first is hostile."""
    async with joined(whole, lying) as made:
        yield made


def click_all(devices) -> None:
    """Have all devices learn 1 in the second coordinate, of which the first sends the opposite, far too much of it."""
    for client in devices:
        click(client, 1)


async def check_verdicts(database: Database) -> None:
    """The round was completed without the liar, and with all others."""
    assert await closed(database, 1) is RoundState.COMPLETED
    assert await learned(database) == pytest.approx([0, 1, 0, 0], abs=0.05)
    async with database.reading() as connection:
        faults = await connection.scalars(select(updates.c.fault).where(updates.c.round == 1))
        assert sorted(map(str, faults)) == ["None"] * (N_DEVICES - 1) + ["norm_proof_failed"]
    told = await list_events(database, FEDERATION, kind="ticket_refused")
    assert [(event.client_id, event.detail) for event in told] == [("device-0", "norm_proof_failed")]


@pytest.mark.slow
async def test_a_hostile_device_of_several_costs_only_itself(whole, devices, database, migrated_url) -> None:
    """Its update is accepted, it is in no sum, and its participation is spent; ``foltr rounds show`` counts it."""
    for name in ("north", "south"):
        whole.start_helper(name)
    async with whole.federator(database, 1):
        click_all(devices)
        await check_verdicts(database)
        await until(lambda: devices[0].n_updates_counted == 1, "the liar was not answered")
    where = ("--db", migrated_url, "--federation", FEDERATION)
    shown = json.loads(foltr("rounds", "show", "1", *where, "--json").stdout)["sums"]
    assert [(each["n_clients"], each["n_out"], each["n_norm_proofs_failed"]) for each in shown] == [
        (N_DEVICES - 1, 1, 1)
    ]
    assert "1 failed" in foltr("rounds", "show", "1", *where).stdout
    replayed = foltr("rounds", "replay", "1", *where, cwd=whole.folder)
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "point",
    [
        Failpoint.COLLECTING_STOPPED,
        Failpoint.PROOFS_CHECKED,
        Failpoint.SETS_DECIDED,
        Failpoint.IN_SETS_TRANSACTION,
        Failpoint.SETS_STORED,
    ],
)
async def test_kill_9_of_the_federator_changes_no_verdict(whole, devices, database, migrated_url, point) -> None:
    """While proofs are checked, and when their verdicts are about to be stored: the next one finds the same."""
    for name in ("north", "south"):
        whole.start_helper(name)
    click_all(devices)
    first = whole.start_federator(migrated_url, f"{point}=kill")
    await until(lambda: first.poll() is not None, "the federator lives on")
    assert first.returncode == -9, (whole.folder / "federator.out").read_text()
    second = whole.start_federator(migrated_url)
    await until(lambda: second.poll() is not None, "the federator goes on")
    assert second.returncode == 0, (whole.folder / "federator.out").read_text()
    await check_verdicts(database)


@pytest.mark.slow
@pytest.mark.parametrize(
    "point", [Failpoint.IN_CHECK_TRANSACTION, Failpoint.TICKETS_CHECKED, Failpoint.HELPER_ANSWERED]
)
async def test_kill_9_of_a_helper_changes_no_verdict(whole, devices, database, point) -> None:
    """Before it has answered, or after: started again it says the same of the same tickets."""
    whole.start_helper("north")
    dying = whole.start_helper("south", f"{point}=kill")
    async with whole.federator(database, 1):
        click_all(devices)
        await until(lambda: dying.poll() is not None, "south lives on")
        whole.start_helper("south")
        await check_verdicts(database)
