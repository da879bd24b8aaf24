"""kill -9 of a federator that makes or drops a part of old updates: the next one does it, and no body is left."""

import asyncio

import pytest
from integration.deployment import FEDERATION, POSTGRESQL, died_by_sigkill
from integration.oracle import contribute
from sqlalchemy import select, text

from foltr.core.failpoints import Failpoint
from foltr.storage.bodies import count_orphans
from foltr.storage.body_tables import body_parts
from foltr.storage.queries import list_contributions

pytestmark = [pytest.mark.nightly]

N_CLIENTS, N_ROUNDS, INTERVAL, HORIZON = 2, 140, 10, 10
# A part is of 50 rounds. The first life dies as it makes the first one; the second one, which makes three, as it drops
# the first; and so does the third. With another interval the fourth one has to move a round before it drops that.
LIVES = ((1, INTERVAL), (4, INTERVAL), (1, INTERVAL), (1, 2 * INTERVAL - 5))
_TABLES = text("SELECT relname FROM pg_class WHERE relname ~ '^update_bodies_[0-9]+$'")


@POSTGRESQL
@pytest.mark.parametrize("role", ["all", "leader"])
async def test_parts_are_made_and_dropped_through_kills(deployment, role):
    """Also beside workers, who go on storing: a part's table is there until it is dropped, and every sum is exact."""

    def start(interval: int, failpoints: str = "") -> None:
        old = {"FOLTR_HISTORY_ROUNDS": str(HORIZON), "FOLTR_UNLEARNING_INTERVAL": str(interval)}
        deployment.start_federator(N_ROUNDS, "--role", role, failpoints=failpoints, **old)

    async with asyncio.TaskGroup() as group:
        told: list[asyncio.Task[int]] = []
        for at_pass, interval in LIVES:
            start(interval, f"{Failpoint.IN_PART_TRANSACTION}=kill@{at_pass}")
            await deployment.serves()
            if not told:
                told = [group.create_task(contribute(credentials)) for credentials in deployment.devices]
                workers = [deployment.start_worker() for _ in range(2 if role == "leader" else 0)]
            assert died_by_sigkill(await deployment.exit_code()), deployment.said()
        start(INTERVAL)
        assert await deployment.exit_code() == 0, deployment.said()
    assert all(worker.poll() is None for worker in workers), deployment.said()
    await deployment.check_told(told)
    async with deployment.database.reading() as connection:
        there = select(body_parts.c.part).where(body_parts.c.dropped_at.is_(None))
        parts = set(await connection.scalars(there))
        assert set(await connection.scalars(_TABLES)) == {f"update_bodies_{part}" for part in {0, *parts}}
        dropped = await connection.scalars(select(body_parts.c.last_round).where(body_parts.c.part.not_in(parts)))
        last = max(dropped)
    assert await count_orphans(deployment.database, 5.0) == 0
    lines = await list_contributions(deployment.database, FEDERATION)
    gone = {line.round for line in lines if line.body == "deleted"}
    assert gone == {number for number in range(1, last + 1) if (number - 1) % INTERVAL}
