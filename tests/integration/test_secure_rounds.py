"""A whole federation with secure sums: a real broker and database, helpers in processes of their own, and devices."""

import asyncio
import json

import pytest
from cli.commands import foltr
from integration.deployment import on, swept
from integration.whole import ANY_POLICY, N_DEVICES, click, closed, joined, learned
from support.federator_by_hand import adding_learner
from support.secure_cohorts import FEDERATION
from support.waiting import PATIENCE_S, until

from foltr.core.failpoints import Failpoint
from foltr.core.protocol.states import RoundState
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.options import Experiment, Privacy
from foltr.storage.sums import load_answers, load_sums


@pytest.fixture
async def devices(whole):
    async with joined(whole) as made:
        yield made


@on("postgresql")
async def test_devices_learn_and_the_federator_has_sums_alone(whole, devices, database, migrated_url) -> None:
    """One helper dies in the second round, wherever its answer was; a device with another schema is in no sum."""
    other = EdgeClient(
        whole.credentials(N_DEVICES),
        store=":memory:",
        experiment=Experiment(seed=9, learner=adding_learner),
        privacy=Privacy(privacy_limits=ANY_POLICY),
    )
    whole.start_helper("north")
    whole.start_helper("south", f"{Failpoint.SUM_OPENED}=kill@2")
    async with whole.federator(database, 2), other:
        for i, client in enumerate((*devices, other)):
            click(client, i % 2)
        assert await closed(database, 1) is RoundState.COMPLETED
        assert await learned(database) == pytest.approx([0.6, 0.4, 0, 0], abs=0.05)
        assert (other.n_waiting, other.n_updates_counted, other.model_version) == (1, 0, None)
        for client in devices:
            click(client, 3)
        process = whole.processes["south"]
        await until(lambda: process.poll() is not None, "south lives on")
        whole.start_helper("south")
        assert await closed(database, 2) is RoundState.COMPLETED
    assert await learned(database) == pytest.approx([0.6, 0.4, 0, 1], abs=0.1)
    for number in (1, 2):
        (sums,) = await load_sums(database, FEDERATION, number)
        assert sums.n_clients == N_DEVICES
        assert {row.helper for row in await load_answers(database, FEDERATION, number)} == {"north", "south"}
    where = ("--db", migrated_url, "--federation", FEDERATION)
    shown = json.loads(foltr("rounds", "show", "2", *where, "--json").stdout)["sums"]
    assert [(each["n_clients"], each["n_out"], each["helpers"]) for each in shown] == [(N_DEVICES, 0, "north, south")]
    assert shown[0]["noise"] == "gaussian, variance 1"
    replayed = foltr("rounds", "replay", "2", *where, cwd=whole.folder)
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr


DIES_AT = (
    Failpoint.COLLECTING_STOPPED,
    Failpoint.SETS_DECIDED,
    Failpoint.IN_SETS_TRANSACTION,
    Failpoint.SETS_STORED,
    Failpoint.ANSWERS_STORED,
    Failpoint.IN_SUMS_TRANSACTION,
    Failpoint.SUMS_STORED,
    Failpoint.AGGREGATED,
    Failpoint.IN_ROUND_TRANSACTION,
)
USUAL = {
    ("sqlite", Failpoint.SETS_DECIDED),
    ("postgresql", Failpoint.IN_SETS_TRANSACTION),
    ("sqlite", Failpoint.SUMS_STORED),
}


@pytest.mark.parametrize(
    ("migrated_url", "point"),
    swept([(database, point) for database in ("sqlite", "postgresql") for point in DIES_AT], USUAL),
    indirect=["migrated_url"],
)
async def test_kill_9_of_the_federator_costs_no_round(whole, devices, database, migrated_url, point) -> None:
    """Wherever it dies, the next one asks for the same set, and the helpers, who answer once, answer it."""
    for name in ("north", "south"):
        whole.start_helper(name)
    for client in devices:
        click(client, 1)
    first = whole.start_federator(migrated_url, f"{point}=kill")
    assert await asyncio.to_thread(first.wait, PATIENCE_S) == -9, (whole.folder / "federator.out").read_text()
    second = whole.start_federator(migrated_url)
    assert await asyncio.to_thread(second.wait, PATIENCE_S) == 0, (whole.folder / "federator.out").read_text()
    assert await closed(database, 1) is RoundState.COMPLETED
    assert await learned(database) == pytest.approx([0, 1, 0, 0], abs=0.05)
