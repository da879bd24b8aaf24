"""kill -9 of the federator at every failpoint: it resumes, nothing acknowledged is lost, nothing is counted twice."""

import asyncio
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator

import pytest
from integration.deployment import Deployment, client_name, died_by_sigkill
from integration.oracle import check_history, contribute

from foltr.core.failpoints import Failpoint
from foltr.storage.queries import list_events, list_rounds

pytestmark = pytest.mark.slow

N_CLIENTS, N_ROUNDS = 4, 4
RESUME_LIMIT_S = 5.0
# The pass at which the process dies: in mid-run, and surely reached (a batch may hold one message or many).
DIES_AT = {
    Failpoint.FEDERATION_CLAIMED: 1,
    Failpoint.BATCH_DECIDED: 6,
    Failpoint.IN_BATCH_TRANSACTION: 6,
    Failpoint.BATCH_COMMITTED: 6,
    # Four say that a client joined, four are of the first round.
    Failpoint.RECEIPT_SENT: 10,
    Failpoint.COLLECTING_STOPPED: 2,
    Failpoint.AGGREGATED: 2,
    Failpoint.IN_ROUND_TRANSACTION: 2,
    Failpoint.ROUND_COMPLETED: 2,
    Failpoint.ROUND_ABANDONED: 1,
    Failpoint.MODEL_ANNOUNCED: 2,
    Failpoint.ROUND_ANNOUNCED: 2,
}


@pytest.fixture(scope="module")
def seconds() -> Iterator[dict[str, list[float]]]:
    """Restart to first completed round, by database; told at the end."""
    measured: dict[str, list[float]] = defaultdict(list)
    yield measured
    for dialect, values in measured.items():
        spread = f"min {min(values):.2f}, median {statistics.median(values):.2f}, max {max(values):.2f}"
        print(f"\n{dialect}: restart to completed round, {len(values)} kills: {spread} s")  # noqa: T201


@pytest.fixture
async def deployment(mosquitto_server, migrated_url, tmp_path):
    async with Deployment(tmp_path, mosquitto_server.url, migrated_url, N_CLIENTS) as opened:
        yield opened


async def run_and_kill(deployment: Deployment, failpoint: Failpoint, deaths: list[int]) -> float:
    """Kill it at each of these passes, one life each, and let the next life end the run; seconds to resume."""
    quorum_missed = failpoint is Failpoint.ROUND_ABANDONED
    async with asyncio.TaskGroup() as group:
        told = []
        for at_pass in deaths:
            deployment.start_federator(
                N_ROUNDS, failpoints=f"{failpoint}=kill@{at_pass}", max_time_s=0.5 if quorum_missed else 30.0
            )
            await deployment.serves()
            if not told:
                devices = deployment.devices[:-1] if quorum_missed else deployment.devices
                told = [group.create_task(contribute(credentials)) for credentials in devices]
            assert died_by_sigkill(await deployment.exit_code()), deployment.said()
        if quorum_missed:
            told.append(group.create_task(contribute(deployment.devices[-1])))
        n_completed = await deployment.n_completed()
        restarted = time.monotonic()
        deployment.start_federator(N_ROUNDS)
        await deployment.rounds_reach(n_completed + 1)
        resumed_s = time.monotonic() - restarted
        assert await deployment.exit_code() == 0, deployment.said()
    # What the devices were told, what is stored, and what the models are made of: all the same.
    counted = await check_history(deployment.database_url, "oracle")
    assert counted == {client_name(i): task.result() for i, task in enumerate(told)}
    rounds = await list_rounds(deployment.database, "oracle")
    assert [row.round for row in rounds] == list(range(1, N_ROUNDS + 1))
    states = ["abandoned" if quorum_missed and i < len(deaths) else "completed" for i in range(N_ROUNDS)]
    assert [row.state for row in rounds] == states
    return resumed_s


# Those of erasures are in test_forgetting.
@pytest.mark.parametrize("failpoint", DIES_AT)
async def test_kill_9_loses_nothing_and_counts_nothing_twice(deployment, failpoint, seconds):
    """Killed there by the kernel, started again: within 5 s the open round is completed, and every sum is exact."""
    resumed_s = await run_and_kill(deployment, failpoint, [DIES_AT[failpoint]])
    print(f"\n{failpoint}, {deployment.database.dialect}: completed {resumed_s:.2f} s after the restart")  # noqa: T201
    seconds[deployment.database.dialect].append(resumed_s)
    assert resumed_s < RESUME_LIMIT_S


@pytest.mark.parametrize("migrated_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "failpoint",
    [
        Failpoint.FEDERATION_CLAIMED,
        Failpoint.IN_BATCH_TRANSACTION,
        Failpoint.BATCH_COMMITTED,
        Failpoint.COLLECTING_STOPPED,
        Failpoint.IN_ROUND_TRANSACTION,
        Failpoint.ROUND_COMPLETED,
        Failpoint.MODEL_ANNOUNCED,
    ],
)
async def test_kill_9_twice_at_one_place(deployment, failpoint, seconds):
    """The second life dies where the first one did, before it got any further; the third one ends the run."""
    resumed_s = await run_and_kill(deployment, failpoint, [DIES_AT[failpoint], 1])
    seconds[f"{deployment.database.dialect}, killed twice"].append(resumed_s)
    assert resumed_s < RESUME_LIMIT_S


@pytest.mark.parametrize(
    "failpoint", [Failpoint.FEDERATION_CLAIMED, Failpoint.IN_BATCH_TRANSACTION, Failpoint.IN_ROUND_TRANSACTION]
)
async def test_a_transaction_that_fails_is_tried_again(deployment, failpoint):
    """An OSError inside a transaction: the same process goes on, nothing is lost, nothing doubled."""
    async with asyncio.TaskGroup() as group:
        deployment.start_federator(N_ROUNDS, failpoints=f"{failpoint}=error@{DIES_AT[failpoint]}")
        await deployment.serves()
        told = [group.create_task(contribute(credentials)) for credentials in deployment.devices]
        assert await deployment.exit_code() == 0, deployment.said()
    assert f"failpoint {failpoint}" in deployment.said()
    counted = await check_history(deployment.database_url, "oracle")
    assert counted == {client_name(i): task.result() for i, task in enumerate(told)}
    assert set(counted.values()) == {N_ROUNDS}
    started = [
        event for event in await list_events(deployment.database, "oracle", limit=1000) if "started" in event.kind
    ]
    assert len(started) == 1
