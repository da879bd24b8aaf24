"""The rounds that made no model as only suspected clients came, in SQL (`foltr.aggregation.crowd`)."""

from sqlalchemy import func, select

from foltr.aggregation.crowd import LEAST_TIME_ALONE
from foltr.protocol.states import AbandonReason, RoundState
from storage.database import Database
from storage.tables import rounds


async def count_suspects_alone(db: Database, name: str, number: int) -> int:
    """Count the rounds of suspects only between round ``number`` and the one before it that made a model.

    Of those that were full others may have been kept out: they are not counted. And there are none unless round
    ``number`` opened `LEAST_TIME_ALONE` after that model: rounds may be short, and whoever is off for a night or a
    holiday has not gone.
    """
    of_federation = rounds.c.federation == name
    made = of_federation, rounds.c.number < number, rounds.c.state == RoundState.COMPLETED
    last = select(rounds.c.number, rounds.c.closed_at).where(*made).order_by(rounds.c.number.desc()).limit(1)
    async with db.reading() as connection:
        newest = (await connection.execute(last)).one_or_none()
        opened_at = await connection.scalar(select(rounds.c.opened_at).where(of_federation, rounds.c.number == number))
        if newest is None or opened_at is None or opened_at - newest.closed_at < LEAST_TIME_ALONE:
            return 0
        alone = select(func.count()).where(
            of_federation,
            rounds.c.number > newest.number,
            rounds.c.number < number,
            rounds.c.reason == AbandonReason.ONLY_SUSPECTS,
            rounds.c.n_updates < rounds.c.max_clients,
        )
        return int(await connection.scalar(alone) or 0)
