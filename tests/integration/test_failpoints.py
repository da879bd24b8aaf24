"""kill -9 of the federator at every failpoint: it resumes, nothing acknowledged is lost, nothing is counted twice."""

import asyncio
from itertools import product

import pytest
from integration.deployment import Deployment, died_by_sigkill, swept
from integration.oracle import contribute

from foltr.core.failpoints import Failpoint
from foltr.storage.queries import list_events, list_rounds

N_CLIENTS, N_ROUNDS = 4, 4
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


# Before a commit, within it, after it, and after what it announces.
USUAL = {
    ("postgresql", Failpoint.FEDERATION_CLAIMED),
    ("sqlite", Failpoint.BATCH_DECIDED),
    ("postgresql", Failpoint.IN_BATCH_TRANSACTION),
    ("sqlite", Failpoint.IN_ROUND_TRANSACTION),
    ("postgresql", Failpoint.ROUND_COMPLETED),
    ("sqlite", Failpoint.ROUND_ABANDONED),
    ("postgresql", Failpoint.ROUND_ANNOUNCED),
}
USUALLY_TWICE = {("sqlite", Failpoint.IN_BATCH_TRANSACTION), ("sqlite", Failpoint.ROUND_COMPLETED)}
USUALLY_FAILS = {("sqlite", Failpoint.IN_BATCH_TRANSACTION), ("postgresql", Failpoint.IN_ROUND_TRANSACTION)}


def at(failpoints, usual, databases=("sqlite", "postgresql")):
    cases = swept(product(databases, failpoints), usual)
    return pytest.mark.parametrize(("migrated_url", "failpoint"), cases, indirect=["migrated_url"])


async def run_and_kill(deployment: Deployment, failpoint: Failpoint, deaths: list[int]) -> None:
    """Kill it at each of these passes, one life each, and let the next life end the run."""
    quorum_missed = failpoint is Failpoint.ROUND_ABANDONED
    async with asyncio.TaskGroup() as group:
        told = []
        for at_pass in deaths:
            deployment.start_federator(
                N_ROUNDS, failpoints=f"{failpoint}=kill@{at_pass}", max_time_s=0.5 if quorum_missed else 3600.0
            )
            await deployment.serves()
            if not told:
                devices = deployment.devices[:-1] if quorum_missed else deployment.devices
                told = [group.create_task(contribute(credentials)) for credentials in devices]
            assert died_by_sigkill(await deployment.exit_code()), deployment.said()
        if quorum_missed:
            told.append(group.create_task(contribute(deployment.devices[-1])))
        deployment.start_federator(N_ROUNDS)
        assert await deployment.exit_code() == 0, deployment.said()
    await deployment.check_told(told)
    rounds = await list_rounds(deployment.database, "oracle")
    assert [row.round for row in rounds] == list(range(1, N_ROUNDS + 1))
    states = ["abandoned" if quorum_missed and i < len(deaths) else "completed" for i in range(N_ROUNDS)]
    assert [row.state for row in rounds] == states


# Those of erasures are in test_forgetting.
@at(DIES_AT, USUAL)
async def test_kill_9_loses_nothing_and_counts_nothing_twice(deployment, failpoint):
    """Killed there by the kernel, started again: the open round is completed, and every sum is exact."""
    await run_and_kill(deployment, failpoint, [DIES_AT[failpoint]])


TWICE = (
    Failpoint.FEDERATION_CLAIMED,
    Failpoint.IN_BATCH_TRANSACTION,
    Failpoint.BATCH_COMMITTED,
    Failpoint.COLLECTING_STOPPED,
    Failpoint.IN_ROUND_TRANSACTION,
    Failpoint.ROUND_COMPLETED,
    Failpoint.MODEL_ANNOUNCED,
)


@at(TWICE, USUALLY_TWICE, ["sqlite"])
async def test_kill_9_twice_at_one_place(deployment, failpoint):
    """The second life dies where the first one did, before it got any further; the third one ends the run."""
    await run_and_kill(deployment, failpoint, [DIES_AT[failpoint], 1])


@at((Failpoint.FEDERATION_CLAIMED, Failpoint.IN_BATCH_TRANSACTION, Failpoint.IN_ROUND_TRANSACTION), USUALLY_FAILS)
async def test_a_transaction_that_fails_is_tried_again(deployment, failpoint):
    """An OSError inside a transaction: the same process goes on, nothing is lost, nothing doubled."""
    async with asyncio.TaskGroup() as group:
        deployment.start_federator(N_ROUNDS, failpoints=f"{failpoint}=error@{DIES_AT[failpoint]}")
        await deployment.serves()
        told = [group.create_task(contribute(credentials)) for credentials in deployment.devices]
        assert await deployment.exit_code() == 0, deployment.said()
    assert f"failpoint {failpoint}" in deployment.said()
    await deployment.check_told(told)
    assert {task.result() for task in told} == {N_ROUNDS}
    started = [
        event for event in await list_events(deployment.database, "oracle", limit=1000) if "started" in event.kind
    ]
    assert len(started) == 1
