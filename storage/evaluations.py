"""What rounds say of their models and their crowd: what lists earned, and how long only suspects have come."""

from sqlalchemy import func, or_, select

from foltr.core.aggregation.crowd import LEAST_TIME_ALONE
from foltr.core.aggregation.effectiveness import (
    JUDGED_WINDOW,
    LEAST_EVALUATIONS,
    RoundEvaluation,
    RoundReward,
    reward_of_sums,
    reward_of_updates,
)
from foltr.core.protocol.states import AbandonReason, RoundState
from foltr.storage.activity_records import EvaluatedRound
from foltr.storage.database import Database
from foltr.storage.sum_tables import round_evaluations
from foltr.storage.tables import clients, rounds, updates
from foltr.storage.views import round_history

# Some have few evaluations; however long a federation is without any, a round's end takes no longer.
_LOOKED_THROUGH = 2 * JUDGED_WINDOW


async def list_rewards(db: Database, name: str, since_version: int, number: int) -> list[RoundReward]:
    """List what rounds on this model and newer ones earned, the oldest first: those completed, and this one.

    Clients in quarantine are left out, where it can be seen who said what.

    Args:
        number: the round that is about to end; completed or not it counts, but for sums, which are stored as it ends.
    """
    recent = (
        select(rounds.c.number, rounds.c.base_version)
        .where(rounds.c.federation == name, rounds.c.number <= number, rounds.c.base_version >= since_version)
        .where(or_(rounds.c.state == RoundState.COMPLETED, rounds.c.number == number))
        .order_by(rounds.c.number.desc())
        .limit(_LOOKED_THROUGH)
        .subquery()
    )
    seen = (
        select(
            recent.c.number,
            recent.c.base_version,
            func.count(),
            func.sum(updates.c.reward),
            func.sum(updates.c.reward * updates.c.reward),
        )
        .join_from(recent, updates, (updates.c.federation == name) & (updates.c.round == recent.c.number))
        .join(clients, clients.c.id == updates.c.client)
        .where(updates.c.clicked.is_not(None), clients.c.quarantined_at.is_(None))
        .group_by(recent.c.number, recent.c.base_version)
        .having(func.count() >= LEAST_EVALUATIONS)
    )
    of_round = (round_evaluations.c.federation == name) & (round_evaluations.c.round == recent.c.number)
    summed = (
        select(recent.c.number, recent.c.base_version, *_SUMS)
        .join_from(recent, round_evaluations, of_round)
        .where(round_evaluations.c.n_updates >= LEAST_EVALUATIONS)
    )
    async with db.reading() as connection:
        found = {row[0]: reward_of_updates(*row[1:]) for row in await connection.execute(seen)}
        for round_, base_version, *sums in await connection.execute(summed):
            found[round_] = reward_of_sums(base_version, RoundEvaluation(*sums))
    return [found[each] for each in sorted(found)][-JUDGED_WINDOW:]


async def newest_evaluated(db: Database, name: str, limit: int) -> list[EvaluatedRound]:
    """List the newest completed rounds that say how the ranker does, the newest first, of the newest so many rounds."""
    newest = select(func.max(rounds.c.number)).where(rounds.c.federation == name).scalar_subquery()
    evaluated = (
        select(*(round_history.c[field] for field in EvaluatedRound.__slots__))
        .where(round_history.c.federation == name, round_history.c.state == RoundState.COMPLETED)
        .where(round_history.c.round > newest - _LOOKED_THROUGH, round_history.c.clicked.is_not(None))
        .order_by(round_history.c.round.desc())
        .limit(limit)
    )
    return await db.fetch_all(EvaluatedRound, evaluated)


_SUMS = [round_evaluations.c[name] for name in RoundEvaluation.__slots__]


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
