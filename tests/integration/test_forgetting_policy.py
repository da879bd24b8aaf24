"""When models are made without the forgotten: in batches, and back to the first one only by an operator's order."""

import asyncio

import pytest
from cli.commands import foltr_process
from integration.deployment import FEDERATION, Deployment, client_name, on
from integration.test_forgetting import OPTIONS, completed, devices_of
from support.prepared_processes import with_defaults
from support.waiting import PATIENCE_S, until

from foltr.storage.erasure.erasures import list_erasures
from foltr.storage.erasure.unlearning_jobs import list_jobs
from foltr.storage.models import list_models
from foltr.storage.queries import list_contributions, list_events

N_HONEST, N_SYBILS = 3, 10
N_CLIENTS = N_HONEST + N_SYBILS


async def taught(deployment: Deployment, n_clients: int) -> None:
    """Wait until so many clients are in rounds with a model."""

    async def are_in() -> bool:
        rows = await list_contributions(deployment.database, FEDERATION)
        return len({row.client_id for row in rows if row.round_state == "completed"}) >= n_clients

    await until(are_in, f"there are no {n_clients} clients in the models")


async def erased(deployment: Deployment, n_clients: int, *states: str) -> None:
    async def are() -> bool:
        rows = await list_erasures(deployment.database, FEDERATION)
        return len(rows) == n_clients and all(row.state in states for row in rows)

    await until(are, f"there are no {n_clients} erasures in {states}")


async def jobs(deployment: Deployment) -> list[str]:
    return [str(job.state) for job in await list_jobs(deployment.database, FEDERATION)]


@on("postgresql")
async def test_ten_sybils_cost_one_job(deployment, tmp_path):
    """Though the federator is killed while they are gathered; and the next to ask is told to wait for the hour."""
    options = ("--min-clients", "3", "--max-clients", str(N_CLIENTS), "--min-time", "0.5")
    steps = with_defaults(
        {"foltr.federator.job.UnlearningPolicy": {"step_s": 2.0}, "foltr.federator.job.MOST_MISSES": 50}
    )
    variables = {"FOLTR_UNLEARN_AFTER": str(N_SYBILS), **steps}

    deployment.start_federator(10_000, *options, **variables)
    async with devices_of(deployment, tmp_path) as clients:
        await taught(deployment, len(clients))
        first, second = clients[:5], clients[5:N_SYBILS]
        await asyncio.gather(*(client.forget_me(timeout_s=1.0) for client in first))  # clock: runs out
        await erased(deployment, 5, "waiting")
        deployment.federator.kill()
        await deployment.exit_code()
        deployment.start_federator(10_000, *options, **variables)
        await completed(deployment, await deployment.n_completed() + 2)
        assert await jobs(deployment) == []
        await asyncio.gather(*(client.forget_me(timeout_s=PATIENCE_S) for client in second))
        await erased(deployment, N_SYBILS, "done")
        assert await jobs(deployment) == ["done"]
        deployment.federator.kill()
        await deployment.exit_code()
        deployment.start_federator(10_000, *options, **variables | {"FOLTR_UNLEARN_AFTER": "1"})
        await clients[N_SYBILS].forget_me(timeout_s=1.0)  # clock: runs out
        await erased(deployment, N_SYBILS + 1, "done", "waiting")
        assert await jobs(deployment) == ["done"]


@on("sqlite")
@pytest.mark.parametrize("n_clients", [3])
async def test_no_reset_without_an_operators_order(deployment, migrated_url, tmp_path):
    """The federator is killed while it waits; the command says what is lost, and then it is done.

    The deadline passes meanwhile: that is told of once, and by the list's exit code until it is done.
    """
    options = (*OPTIONS, "--method", "fpdgd-paper")
    variables = {
        "FOLTR_UNLEARNING_STRATEGY": "rollback",
        "FOLTR_UNLEARN_EVERY_S": "0",
        "FOLTR_UNLEARNING_DEADLINE_S": "0.1",
    }

    async def command(*arguments):
        return await asyncio.to_thread(foltr_process, *arguments)

    deployment.start_federator(10_000, *options, **variables)
    async with devices_of(deployment, tmp_path) as clients:
        await taught(deployment, len(clients))
        await clients[0].forget_me(timeout_s=1.0)  # clock: runs out

        async def is_held() -> bool:
            return bool(await list_events(deployment.database, FEDERATION, kind="unlearning_approval_required"))

        await until(is_held, "no job is held")
        deployment.federator.kill()
        await deployment.exit_code()
        deployment.start_federator(10_000, *options, **variables)
        await completed(deployment, await deployment.n_completed() + 2)
        assert len(await list_events(deployment.database, FEDERATION, kind="unlearning_approval_required")) == 1
        assert await jobs(deployment) == []
        listed = await command("erasure", "list", "--db", migrated_url, "--federation", FEDERATION)
        assert "foltr erasure allow-reset 1" in listed.stdout
        assert (listed.returncode, "OVERDUE, waiting" in listed.stdout) == (1, True)
        ordered = await command("erasure", "allow-reset", "1", "--operator", tmp_path / "operator")
        assert ordered.returncode == 0, ordered.stderr
        assert "job 1 puts the first model in service, and what " in ordered.stdout
        await erased(deployment, 1, "done")
        assert await jobs(deployment) == ["done"]
        assert len(await list_events(deployment.database, FEDERATION, kind="erasure_overdue")) == 1
        models = await list_models(deployment.database, FEDERATION, limit=10_000)
        (made,) = [model for model in models if model.unlearning_job == 1]
        assert made.base_version == 0
        await completed(deployment, await deployment.n_completed() + 2)
    assert client_name(0).encode() not in (tmp_path / f"{client_name(0)}.sqlite").read_bytes()
