"""What an unlearning job waits for before it begins: more requests, and time since the last swap."""

from sqlalchemy import func, select

from foltr.erasure.states import ErasureState
from foltr.protocol.states import JobState
from storage.database import Database
from storage.erasure.records import Gathered
from storage.erasure.tables import erasures, unlearning_jobs


async def gathered(db: Database, name: str) -> Gathered:
    """Count those who wait for an unlearning job, and find since when, and when the last one's model was swapped in."""
    waiting = select(func.count(), func.min(erasures.c.requested_at)).where(
        erasures.c.federation == name, erasures.c.state == ErasureState.WAITING
    )
    swapped = select(func.max(unlearning_jobs.c.closed_at)).where(
        unlearning_jobs.c.federation == name, unlearning_jobs.c.state == JobState.DONE
    )
    async with db.reading() as connection:
        n_waiting, oldest_at = (await connection.execute(waiting)).one()
        return Gathered(n_waiting, oldest_at, await connection.scalar(swapped))
