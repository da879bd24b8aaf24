"""The rounds that made no model as only suspected clients came, in SQL (`foltr.aggregation.crowd`)."""

from sqlalchemy import func, select

from foltr.protocol.states import AbandonReason, RoundState
from storage.database import Database
from storage.tables import rounds


async def count_suspects_alone(db: Database, name: str, number: int) -> int:
    """Count the rounds of suspects only between round ``number`` and the one before it that made a model.

    Of those that were full others may have been kept out: they are not counted.
    """
    before = rounds.c.federation == name, rounds.c.number < number
    completed = select(rounds.c.number).where(*before, rounds.c.state == RoundState.COMPLETED)
    last = completed.order_by(rounds.c.number.desc()).limit(1).scalar_subquery()
    alone = select(func.count()).where(
        *before,
        rounds.c.number > func.coalesce(last, 0),
        rounds.c.reason == AbandonReason.ONLY_SUSPECTS,
        rounds.c.n_updates < rounds.c.max_clients,
    )
    async with db.reading() as connection:
        return int(await connection.scalar(alone) or 0)
