"""Whoever has much stored is forgotten once, though the leader is killed in the middle and a standby goes on."""

import asyncio
import signal
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cli.commands import foltr_process
from integration.deployment import FEDERATION, Deployment, client_name, died_by_sigkill, swept
from integration.test_failover import pause
from integration.test_forgetting import OPTIONS, VARIABLES, WILLING, check_forgotten, checked, click, completed, taught
from integration.users import in_use
from support.waiting import PATIENCE_S, until

from foltr.core.failpoints import Failpoint
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.options import Experiment, Privacy
from foltr.storage.erasure.client_rows import rows_of
from foltr.storage.erasure.erasures import list_erasures
from foltr.storage.events import store_events
from foltr.storage.leases import list_standbys
from foltr.storage.records import NewEvent

N_CLIENTS = 4
# Two hundred of its rows go in a transaction.
N_REFUSALS = 900
NAME = client_name(0)
# Where the leader dies, and the erasure's state then.
PLACES = [
    ("postgresql", Failpoint.IN_ERASURE_TRANSACTION, 3, "erasing"),
    ("sqlite", Failpoint.ERASED, 3, "erasing"),
    ("postgresql", Failpoint.STEP_COMMITTED, 1, "unlearning"),
]


async def refuse_much(deployment: Deployment) -> None:
    """Have it stored that much of what the client sent was refused."""
    now = datetime.now(UTC)
    refused = [NewEvent(now, "update_rejected", "", "late", NAME, number) for number in range(N_REFUSALS)]
    async with deployment.database.transaction() as connection:
        await store_events(connection, FEDERATION, refused)


async def has_state(deployment: Deployment, state: str) -> bool:
    return [row.state for row in await list_erasures(deployment.database, FEDERATION)] == [state]


@pytest.mark.parametrize(
    ("migrated_url", "place", "at_pass", "state"), swept(PLACES, PLACES[2:]), indirect=["migrated_url"]
)
async def test_a_standby_finishes_what_a_killed_leader_began(deployment, tmp_path: Path, place, at_pass, state):
    """Asked for by the device and, meanwhile, by the operator; its name does not come in again while rows are left."""

    def device(i: int, store: str) -> EdgeClient:
        access = deployment.devices[i]
        return EdgeClient(
            access, store=tmp_path / store, experiment=Experiment(seed=i), privacy=Privacy(unlearning_limits=WILLING)
        )

    lasting = VARIABLES
    leader = deployment.start_federator(10_000, *OPTIONS, failpoints=f"{place}=kill@{at_pass}", **lasting)
    await deployment.serves()
    standby = deployment.start_federator(10_000, *OPTIONS, "--standby", **lasting)

    async def stands_by() -> bool:
        return len(await list_standbys(deployment.database, FEDERATION)) == 1

    await until(stands_by, "nobody stands by")
    # It would go on before anybody could see what the leader has left.
    await pause(deployment, standby)
    others = (device(i, f"{i}.sqlite") for i in range(1, N_CLIENTS))
    async with in_use(others, click):
        async with in_use([device(0, "0.sqlite")], click) as (leaving,):
            await taught(deployment, NAME)
            await refuse_much(deployment)
            await leaving.forget_me(timeout_s=1.0)  # clock: runs out
        assert died_by_sigkill(await deployment.exit_code(leader)), deployment.said()
        assert await has_state(deployment, state)
        if state == "erasing":
            assert 0 < (await rows_of(deployment.database, FEDERATION, NAME))["events"] < N_REFUSALS
        standby.send_signal(signal.SIGCONT)
        receipt = tmp_path / "receipt.jws"
        operator = ("--operator", tmp_path / "operator", "--wait", "--timeout", int(PATIENCE_S), "--receipt", receipt)
        asking = asyncio.create_task(asyncio.to_thread(foltr_process, "erasure", "request", NAME, *operator))
        async with device(0, "again.sqlite") as again:
            await until(lambda: again.forgotten, "its name is not refused")
        asked = await asking
        assert asked.returncode == 0, asked.stderr + deployment.said()
        assert await has_state(deployment, "done")
        said = checked(deployment, receipt.read_text().strip())
        assert (said.version, said.key_destroyed) == (1, True)
        assert said.n_events >= N_REFUSALS
        await check_forgotten(deployment, NAME)
        await completed(deployment, await deployment.n_completed() + 3)
    key = ("--key", tmp_path / "operator/operator.json")
    verified = foltr_process("erasure", "verify-log", *key, "--db", deployment.database_url, "--federation", FEDERATION)
    assert verified.returncode == 0, verified.stderr
