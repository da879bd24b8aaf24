"""The settings of its method that a federation's rounds are computed with, by the first round of each."""

from sqlalchemy import delete, insert, select

from storage.aggregation_tables import trainings
from storage.database import Database
from storage.federations import fenced_transaction


async def note_training(db: Database, name: str, epoch: int, from_round: int, training: str) -> None:
    """Note what a federator computes rounds with, from its first one on; what is noted already is not noted twice.

    None of these rounds has ended: what another federator has noted for them was never used.

    Args:
        training: JSON.
    """
    of_federation = trainings.c.federation == name
    async with fenced_transaction(db, name, epoch) as connection:
        await connection.execute(delete(trainings).where(of_federation, trainings.c.from_round >= from_round))
        newest_first = select(trainings.c.training).where(of_federation).order_by(trainings.c.from_round.desc())
        if await connection.scalar(newest_first.limit(1)) != training:
            row = {"federation": name, "from_round": from_round, "training": training}
            await connection.execute(insert(trainings), row)


async def load_trainings(db: Database, name: str) -> dict[int, str]:
    """Find what rounds were computed with, as JSON, by the first round of each."""
    async with db.reading() as connection:
        rows = await connection.execute(
            select(trainings.c.from_round, trainings.c.training).where(trainings.c.federation == name)
        )
        return {row.from_round: row.training for row in rows}
