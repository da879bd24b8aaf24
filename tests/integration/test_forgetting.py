"""Devices are forgotten while others go on: over Mosquitto, on both databases, and through kills at every step."""

import asyncio
import json
from collections.abc import AsyncIterator
from itertools import product

import numpy as np
import pytest
from cli.commands import foltr_process
from integration.deployment import DIM, FEDERATION, Deployment, client_name, on, swept
from integration.users import in_each_round, in_use
from support.prepared_processes import with_defaults
from support.waiting import PATIENCE_S, until

from foltr.core.erasure.receipt import ErasureReceipt, verify_receipt
from foltr.core.failpoints import Failpoint
from foltr.core.operator.credentials import write_secret
from foltr.core.operator.erasure_request_file import request_file
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.options import Experiment, Privacy
from foltr.edge_client.training.unlearning_limits import UnlearningLimits
from foltr.storage.erasure.erasures import list_erasures
from foltr.storage.models import list_models
from foltr.storage.queries import list_clients, list_contributions, list_events

N_CLIENTS = 4
NAME = client_name(0)
# Rounds last a moment here, and steps as long: a job that goes through all that came meanwhile may have hundreds.
WILLING = UnlearningLimits(steps_a_day=100_000, steps_a_click=100_000)
# Three of four are a round, so that it goes on without one.
OPTIONS = ("--min-clients", "2", "--max-clients", "3", "--min-time", "0.05")
# Jobs begin as soon as somebody asks; and no step is passed over because the machine was slow.
VARIABLES = {
    "FOLTR_UNLEARNING_STRATEGY": "fed_eraser",
    "FOLTR_UNLEARN_EVERY_S": "0.2",
    **with_defaults(
        {
            "foltr.federator.job.UnlearningPolicy": {"swap_every_s": 0.0, "step_s": 2.0},
            "foltr.federator.job.MOST_MISSES": 50,
        }
    ),
}
STEPS = [
    Failpoint.IN_ERASURE_TRANSACTION,
    Failpoint.ERASED,
    Failpoint.KEY_DESTROYED,
    Failpoint.STEP_COMMITTED,
    Failpoint.IN_SWAP_TRANSACTION,
]

USUAL = {
    ("sqlite", None),
    ("postgresql", Failpoint.IN_ERASURE_TRANSACTION),
    ("sqlite", Failpoint.KEY_DESTROYED),
    ("postgresql", Failpoint.IN_SWAP_TRANSACTION),
}


async def click(client: EdgeClient, seed: int) -> None:
    """A user who clicks the first result, once a round."""
    rng = np.random.default_rng(seed)
    await in_each_round(client, lambda: client.record_clicks(client.rank(rng.random((6, DIM), dtype=np.float32)), [0]))


def device(deployment: Deployment, tmp_path, i: int) -> EdgeClient:
    one = deployment.devices[i]
    return EdgeClient(
        one,
        store=tmp_path / f"{one.name}.sqlite",
        experiment=Experiment(seed=i),
        privacy=Privacy(unlearning_limits=WILLING),
    )


def devices_of(deployment: Deployment, tmp_path) -> AsyncIterator[list[EdgeClient]]:
    """All of its devices, clicking."""
    return in_use([device(deployment, tmp_path, i) for i in range(deployment.n_clients)], click)


def start(deployment: Deployment, failpoints: str = "") -> None:
    deployment.start_federator(10_000, *OPTIONS, failpoints=failpoints, **VARIABLES)


async def completed(deployment: Deployment, at_least: int) -> None:
    async def enough() -> bool:
        return await deployment.n_completed() >= at_least

    await until(enough, f"there are no {at_least} completed rounds")


async def joined(deployment: Deployment, at_least: int) -> None:
    """Wait for so many clients: rounds take three of four, so that some may be complete before the fourth has come."""

    async def enough() -> bool:
        return len(await list_clients(deployment.database, FEDERATION)) >= at_least

    await until(enough, f"there are no {at_least} clients")


async def taught(deployment: Deployment, name: str) -> None:
    """Wait for six rounds with a model, and for two that have an update of this client: rounds take three of four."""
    await completed(deployment, 6)

    async def is_in_two() -> bool:
        rows = await list_contributions(deployment.database, FEDERATION)
        return sum((row.client_id, row.round_state) == (name, "completed") for row in rows) >= 2

    await until(is_in_two, f"no two rounds have an update of {name}")


def checked(deployment: Deployment, receipt: str | None) -> ErasureReceipt:
    assert receipt is not None
    return verify_receipt(receipt, deployment.devices[0].federator_public_key)


async def check_forgotten(deployment: Deployment, *names: str) -> None:
    """No row has one of these names, and no model in service was made with them."""
    assert not {row.client_id for row in await list_clients(deployment.database, FEDERATION)} & set(names)
    assert not {row.client_id for row in await list_contributions(deployment.database, FEDERATION)} & set(names)
    models = await list_models(deployment.database, FEDERATION, limit=10_000)
    assert not [row.version for row in models if row.tainted_at is not None and row.weights]


async def erased(deployment: Deployment) -> None:
    async def is_done() -> bool:
        return [row.state for row in await list_erasures(deployment.database, FEDERATION)] == ["done"]

    await until(is_done, "the erasure is not done")


@pytest.mark.parametrize(
    ("migrated_url", "failpoint"),
    swept(product(("sqlite", "postgresql"), [None, *STEPS]), USUAL),
    indirect=["migrated_url"],
)
async def test_a_device_is_forgotten_once_whatever_step_its_federator_dies_at(deployment, tmp_path, failpoint):
    """The next federator finishes what it finds; learning goes on without the device, whose own store is empty."""
    start(deployment, f"{failpoint}=kill@1" if failpoint else "")
    async with devices_of(deployment, tmp_path) as clients:
        await taught(deployment, NAME)
        asking = asyncio.create_task(clients[0].forget_me(timeout_s=PATIENCE_S))
        if failpoint:
            assert await deployment.exit_code() == -9
            start(deployment)
        result = await asking
        assert result.state == "forgotten"
        receipt = checked(deployment, result.receipt)
        assert (receipt.strategy, receipt.requested_by) == ("fed_eraser", "device")
        # One that died in between has destroyed it, and the next one finds none.
        assert receipt.key_destroyed is (failpoint is not Failpoint.KEY_DESTROYED)
        assert receipt.n_updates >= 1
        assert receipt.rounds_replayed >= 2
        await check_forgotten(deployment, NAME)
        assert len(await list_erasures(deployment.database, FEDERATION)) == 1
        await completed(deployment, await deployment.n_completed() + 3)
        assert not any(client.forgotten for client in clients[1:])
    assert NAME.encode() not in (tmp_path / f"{NAME}.sqlite").read_bytes()


@on("sqlite")
async def test_a_wish_from_the_command_line_is_kept_beside_the_credentials(deployment, mosquitto_server, tmp_path):
    """It fails as long as there is no receipt, and says what to type; a device that is started with them asks, too."""
    own = tmp_path / f"{NAME}.json"
    write_secret(own, deployment.devices[0].model_dump_json())
    start(deployment)
    async with devices_of(deployment, tmp_path):
        await taught(deployment, NAME)
    await deployment.kill_federator()
    words = ("erasure", "request", "--credentials", str(own))
    asking = await asyncio.to_thread(foltr_process, *words, "--timeout", "5", "--json")
    assert asking.returncode != 0
    assert json.loads(asking.stdout) == {"client": NAME, "state": "sent", "receipt": None}
    assert f"run again: foltr erasure request --credentials {own} --wait" in asking.stderr
    assert str(request_file(own)) in asking.stderr
    rows = await list_contributions(deployment.database, FEDERATION)
    n_updates = sum(row.client_id == NAME for row in rows)
    mosquitto_server.kill()  # with what it had retained
    mosquitto_server.start()
    start(deployment)
    asks = EdgeClient(own, store=tmp_path / f"{NAME}.sqlite", privacy=Privacy(unlearning_limits=WILLING))
    async with in_use([asks, *(device(deployment, tmp_path, i) for i in range(1, N_CLIENTS))], click):
        assert asks.forget_state == "asked"
        await erased(deployment)
        again = await asyncio.to_thread(foltr_process, *words, "--json")
    assert again.returncode == 0, again.stderr
    assert checked(deployment, json.loads(again.stdout)["receipt"]).n_updates == n_updates > 0
    assert not request_file(own).exists()


@on("sqlite")
@pytest.mark.parametrize("n_clients", [3])
async def test_no_reset_without_an_operators_order(deployment, migrated_url, tmp_path):
    """The list says that an erasure waits for the order, and the order what is lost; then it is done."""
    options = (*OPTIONS, "--method", "fpdgd-paper")
    deployment.start_federator(10_000, *options, FOLTR_UNLEARNING_STRATEGY="rollback", FOLTR_UNLEARN_EVERY_S="0")
    async with devices_of(deployment, tmp_path) as clients:
        await taught(deployment, NAME)
        await clients[0].forget_me(timeout_s=1.0)  # clock: runs out

        async def is_held() -> bool:
            return bool(await list_events(deployment.database, FEDERATION, kind="unlearning_approval_required"))

        await until(is_held, "no job is held")
        where = ("--db", migrated_url, "--federation", FEDERATION)
        listed = await asyncio.to_thread(foltr_process, "erasure", "list", *where)
        assert "foltr erasure allow-reset 1" in listed.stdout
        folder = ("--operator", tmp_path / "operator")
        ordered = await asyncio.to_thread(foltr_process, "erasure", "allow-reset", "1", *folder)
        assert ordered.returncode == 0, ordered.stderr
        assert "job 1 puts the first model in service, and what " in ordered.stdout
        await erased(deployment)
    (made,) = [row for row in await list_models(deployment.database, FEDERATION, limit=10_000) if row.unlearning_job]
    assert made.base_version == 0
