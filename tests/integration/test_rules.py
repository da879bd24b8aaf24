"""A federation with a rule that draws, each part a process: kill -9 around the close of a round."""

import asyncio
from itertools import product

import pytest
from integration.deployment import FEDERATION, died_by_sigkill, swept
from integration.oracle import contribute

from foltr.core.failpoints import Failpoint
from foltr.federator.closing.collected_updates import load_recipes
from foltr.federator.closing.replay import replay_round
from foltr.storage.queries import get_aggregation, list_contributions, list_rounds

N_CLIENTS, N_ROUNDS = 5, 3
# A rule that draws, so that a restart has something to draw again; m = 1 of 3 buckets is within its bounds.
RULE = {"FOLTR_AGGREGATION": "bucketing+median", "FOLTR_BYZANTINE": "1"}
DIES_AT = (
    Failpoint.COLLECTING_STOPPED,
    Failpoint.AGGREGATED,
    Failpoint.IN_ROUND_TRANSACTION,
    Failpoint.ROUND_COMPLETED,
)
USUAL = {("postgresql", Failpoint.AGGREGATED), ("sqlite", Failpoint.IN_ROUND_TRANSACTION)}


@pytest.mark.parametrize(
    ("migrated_url", "failpoint"), swept(product(("sqlite", "postgresql"), DIES_AT), USUAL), indirect=["migrated_url"]
)
async def test_kill_9_around_the_close_repeats_the_round_bit_for_bit(deployment, failpoint):
    """Models, draws, fates and aggregations are those of a federator that never died; each round has them once."""
    async with asyncio.TaskGroup() as group:
        deployment.start_federator(N_ROUNDS, failpoints=f"{failpoint}=kill@2", **RULE)
        await deployment.serves()
        told = [group.create_task(contribute(credentials)) for credentials in deployment.devices]
        assert died_by_sigkill(await deployment.exit_code()), deployment.said()
        deployment.start_federator(N_ROUNDS, **RULE)
        assert await deployment.exit_code() == 0, deployment.said()
    assert [task.result() for task in told] == [N_ROUNDS] * N_CLIENTS
    history = await list_rounds(deployment.database, FEDERATION)
    assert [(row.round, row.state, row.rule) for row in history] == [
        (number, "completed", "bucketing+median") for number in range(1, N_ROUNDS + 1)
    ]
    recipes = await load_recipes(deployment.database, FEDERATION)
    for row in history:
        assert (await replay_round(deployment.database, recipes, row.round)).differs == ()
        lines = await list_contributions(deployment.database, FEDERATION, round_number=row.round)
        made = await get_aggregation(deployment.database, FEDERATION, row.round)
        assert made.n_kept + made.n_clipped + made.n_dropped == len(lines) == N_CLIENTS
