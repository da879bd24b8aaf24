"""Devices are forgotten while others go on: over Mosquitto, on both databases, and through kills at every step."""

import asyncio
from collections.abc import AsyncIterator
from itertools import product

import numpy as np
import pytest
from integration.deployment import DIM, FEDERATION, Deployment, client_name, on, swept
from integration.users import in_each_round, in_use
from support.prepared_processes import with_defaults
from support.waiting import PATIENCE_S, until

from foltr.core.erasure.receipt import ErasureReceipt, verify_receipt
from foltr.core.failpoints import Failpoint
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.options import Experiment, Privacy
from foltr.edge_client.training.unlearning_limits import UnlearningLimits
from foltr.storage.erasure.erasures import list_erasures
from foltr.storage.erasure.unlearning_jobs import list_jobs
from foltr.storage.models import list_models
from foltr.storage.queries import list_clients, list_contributions

N_CLIENTS = 4
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
    ("postgresql", Failpoint.IN_ERASURE_TRANSACTION),
    ("sqlite", Failpoint.KEY_DESTROYED),
    ("postgresql", Failpoint.IN_SWAP_TRANSACTION),
}


async def click(client: EdgeClient, seed: int) -> None:
    """A user who clicks the first result, once a round."""
    rng = np.random.default_rng(seed)
    await in_each_round(client, lambda: client.record_clicks(client.rank(rng.random((6, DIM), dtype=np.float32)), [0]))


def devices_of(deployment: Deployment, tmp_path) -> AsyncIterator[list[EdgeClient]]:
    """All of its devices, clicking."""
    devices = (
        EdgeClient(
            one,
            store=tmp_path / f"{one.name}.sqlite",
            experiment=Experiment(seed=i),
            privacy=Privacy(unlearning_limits=WILLING),
        )
        for i, one in enumerate(deployment.devices)
    )
    return in_use(devices, click)


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


@on("postgresql")
async def test_a_device_asks_and_is_forgotten(deployment, tmp_path):
    """Its wish goes over MQTT; the model is made anew by the others; learning goes on; its own store is empty."""
    start(deployment)
    async with devices_of(deployment, tmp_path) as clients:
        await taught(deployment, client_name(0))
        result = await clients[0].forget_me(timeout_s=PATIENCE_S)
        assert result.state == "forgotten"
        receipt = checked(deployment, result.receipt)
        assert (receipt.strategy, receipt.requested_by, receipt.key_destroyed) == ("fed_eraser", "device", True)
        assert receipt.n_updates >= 1
        assert receipt.rounds_replayed >= 2
        await check_forgotten(deployment, client_name(0))
        await completed(deployment, await deployment.n_completed() + 3)
        assert not any(client.forgotten for client in clients[1:])
    assert client_name(0).encode() not in (tmp_path / f"{client_name(0)}.sqlite").read_bytes()


@pytest.mark.parametrize(
    ("migrated_url", "failpoint"), swept(product(("sqlite", "postgresql"), STEPS), USUAL), indirect=["migrated_url"]
)
async def test_a_federator_killed_at_any_step_goes_on(deployment, tmp_path, failpoint):
    """The next one finishes what it finds: the device is forgotten once, and has its receipt."""
    start(deployment, f"{failpoint}=kill@1")
    async with devices_of(deployment, tmp_path) as clients:
        await taught(deployment, client_name(0))
        asking = asyncio.create_task(clients[0].forget_me(timeout_s=PATIENCE_S))
        assert await deployment.exit_code() == -9
        start(deployment)
        result = await asking
        assert result.state == "forgotten"
        checked(deployment, result.receipt)
        await check_forgotten(deployment, client_name(0))
        assert len(await list_erasures(deployment.database, FEDERATION)) == 1


@pytest.mark.nightly
async def test_fifty_ask_while_two_hundred_train(mosquitto_server, tmp_path):
    """Every one is forgotten with a receipt, no round is stuck, and none of them is in any later round."""
    n_clients, n_leaving = 200, 50
    url = f"sqlite:///{tmp_path}/foltr.sqlite"
    async with Deployment(tmp_path, mosquitto_server.url, url, n_clients) as deployment:
        options = ("--min-clients", "20", "--max-clients", "100", "--min-time", "1")
        steps = with_defaults({"foltr.federator.job.UnlearningPolicy": {"swap_every_s": 0.0, "step_s": 5.0}})
        variables = {"FOLTR_UNLEARN_EVERY_S": "1", "FOLTR_UNLEARNING_INTERVAL": "10", **steps}
        deployment.start_federator(10_000, *options, max_time_s=20.0, **variables)
        async with devices_of(deployment, tmp_path) as clients:
            await joined(deployment, n_clients)
            await completed(deployment, 6)
            asking = []
            for client in clients[:n_leaving]:
                asking.append(asyncio.create_task(client.forget_me(timeout_s=2 * PATIENCE_S)))
                await asyncio.sleep(0.05)  # while others are being erased and unlearned
            results = await asyncio.gather(*asking)
            assert {result.state for result in results} == {"forgotten"}
            receipts = [checked(deployment, result.receipt) for result in results]
            assert len({receipt.pseudonym for receipt in receipts}) == n_leaving
            await check_forgotten(deployment, *(client.client_id for client in clients[:n_leaving]))
            await completed(deployment, await deployment.n_completed() + 3)
            jobs = await list_jobs(deployment.database, FEDERATION)
            assert {job.state for job in jobs} == {"done"}
            assert len(jobs) < n_leaving
