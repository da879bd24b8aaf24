"""A wish to be forgotten arrives although federator, broker and device were lost; "erased" is said late enough."""

import asyncio
import json
from datetime import UTC, datetime

import pytest
from cli.commands import foltr_process
from integration.deployment import FEDERATION, SQLITE, Deployment, client_name, on
from integration.test_forgetting import WILLING, checked, click, devices_of, joined, start, taught
from integration.users import in_use
from support.api_server import asked
from support.waiting import PATIENCE_S, until

from foltr.api.access import COOKIE
from foltr.api.tokens import Role
from foltr.core.failpoints import Failpoint
from foltr.core.operator.credentials import read_credentials, write_secret
from foltr.core.operator.erasure_request_file import request_file
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.options import Experiment, Privacy
from foltr.storage.erasure.erasures import list_erasures
from foltr.storage.events import store_events
from foltr.storage.queries import list_contributions
from foltr.storage.records import NewEvent

N_CLIENTS = 4
NAME = client_name(0)
N_REFUSALS = 3000


@pytest.fixture
async def deployment(mosquitto_server, migrated_url, tmp_path):
    async with Deployment(tmp_path, mosquitto_server.url, migrated_url, N_CLIENTS) as opened:
        start(opened)
        yield opened


def device(deployment: Deployment, tmp_path, i: int = 0) -> EdgeClient:
    one = deployment.devices[i]
    return EdgeClient(
        one,
        store=tmp_path / f"{one.name}.sqlite",
        experiment=Experiment(seed=i),
        privacy=Privacy(unlearning_limits=WILLING),
    )


async def n_updates_of(deployment: Deployment, name: str) -> int:
    rows = await list_contributions(deployment.database, FEDERATION)
    return sum(row.client_id == name for row in rows)


async def state(deployment: Deployment) -> list[str]:
    return [row.state for row in await list_erasures(deployment.database, FEDERATION)]


async def end_federator(deployment: Deployment) -> None:
    deployment.federator.kill()
    await deployment.exit_code()


async def done(deployment: Deployment) -> None:
    async def is_done() -> bool:
        return await state(deployment) == ["done"]

    await until(is_done, "the wish was lost")


@on("postgresql")
async def test_a_wish_outlives_federator_broker_and_device(deployment, mosquitto_server, tmp_path):
    """The broker is killed before it has saved anything; the next start asks again, and nothing is stored meanwhile."""
    async with devices_of(deployment, tmp_path):
        await joined(deployment, N_CLIENTS)
        await taught(deployment, NAME)
    async with in_use([device(deployment, tmp_path)], click) as (leaving,):
        await leaving.wait_connected(PATIENCE_S)
        await end_federator(deployment)
        assert (await leaving.forget_me(timeout_s=0.5)).state == "sent"  # clock: runs out
    before = await n_updates_of(deployment, NAME)
    mosquitto_server.kill()
    mosquitto_server.start()
    start(deployment)
    async with in_use([device(deployment, tmp_path, i) for i in range(N_CLIENTS)], click) as (again, *_):
        assert again.forget_state == "asked"
        await done(deployment)
        result = await again.forget_me(timeout_s=PATIENCE_S)
    assert result.state == "forgotten"
    assert checked(deployment, result.receipt).n_updates == before > 0


@on("sqlite")
async def test_a_wish_from_the_command_line_is_kept_beside_the_credentials(deployment, mosquitto_server, tmp_path):
    """It fails as long as there is no receipt, and says what to type; a device that is started with them asks, too."""
    own = tmp_path / f"{NAME}.json"
    write_secret(own, deployment.devices[0].model_dump_json())
    async with devices_of(deployment, tmp_path):
        await joined(deployment, N_CLIENTS)
        await taught(deployment, NAME)
    await end_federator(deployment)
    words = ("erasure", "request", "--credentials", str(own))
    asking = await asyncio.to_thread(foltr_process, *words, "--timeout", "5", "--json")
    assert asking.returncode != 0
    assert json.loads(asking.stdout) == {"client": NAME, "state": "sent", "receipt": None}
    assert f"run again: foltr erasure request --credentials {own} --wait" in asking.stderr
    assert str(request_file(own)) in asking.stderr
    before = await n_updates_of(deployment, NAME)
    mosquitto_server.kill()
    mosquitto_server.start()
    start(deployment)
    started = EdgeClient(own, store=tmp_path / f"{NAME}.sqlite", privacy=Privacy(unlearning_limits=WILLING))
    others = [device(deployment, tmp_path, i) for i in range(1, N_CLIENTS)]
    async with in_use([started, *others], click):
        assert started.forget_state == "asked"
        await done(deployment)
        again = await asyncio.to_thread(foltr_process, *words, "--json")
    assert again.returncode == 0, again.stderr
    assert checked(deployment, json.loads(again.stdout)["receipt"]).n_updates == before > 0
    assert not request_file(own).exists()


@SQLITE
async def test_nobody_says_erased_while_rows_are_left(deployment, tmp_path):
    """The federator dies in mid-erasure: SDK, HTTP API and command line say `erasing` until the next one is through."""
    async with devices_of(deployment, tmp_path):
        await joined(deployment, N_CLIENTS)
        await taught(deployment, NAME)
    refused = [NewEvent(datetime.now(UTC), "update_rejected", "", "late", NAME, n) for n in range(N_REFUSALS)]
    async with deployment.database.transaction() as connection:
        await store_events(connection, FEDERATION, refused)
    await end_federator(deployment)
    start(deployment, f"{Failpoint.ERASED}=kill@4")
    credentials = read_credentials(deployment.operator_file, "operator")
    async with (
        asked(deployment.database_url, tmp_path, FEDERATION, credentials=credentials) as server,
        in_use([device(deployment, tmp_path)], click) as (leaving,),
    ):
        asking = asyncio.create_task(leaving.forget_me(timeout_s=PATIENCE_S))
        assert await deployment.exit_code() == -9
        assert await state(deployment) == ["erasing"]
        await until(lambda: leaving.forget_state == "erasing", "the device was not told")
        mine = server.token(Role.PARTICIPANT, NAME)

        async def said() -> tuple[str, object]:
            erasure = (await server.get("/api/v1/me", mine)).json()["erasure"]
            return erasure["forget_state"], erasure["erased_at"]

        assert await said() == ("erasing", None)
        assert "being erased" in (await server.get("/", headers={"Cookie": f"{COOKIE}={mine}"})).text
        words = ("--db", deployment.database_url, "--federation", FEDERATION, "--json")
        listed = await asyncio.to_thread(foltr_process, "erasure", "list", *words)
        (row,) = json.loads(listed.stdout)
        assert (row["state"], row["forget_state"], row["erased_at"]) == ("erasing", "erasing", None)
        start(deployment)
        async with in_use([device(deployment, tmp_path, i) for i in range(1, N_CLIENTS)], click):
            assert (await asking).state == "forgotten"
        forget_state, erased_at = await said()
        assert (forget_state, erased_at is not None) == ("forgotten", True)
