"""What rounds report: the reward of their lists, their credits, and how long only suspects have contributed."""

from collections.abc import Collection

from sqlalchemy import func, select

from foltr.core.aggregation.reference_clients import LEAST_TIME_ALONE
from foltr.core.learning.credits import Credits, CreditSum
from foltr.core.protocol.states import AbandonReason, Membership, RoundState
from foltr.storage.activity_records import EvaluatedRound
from foltr.storage.database import Database
from foltr.storage.sum_tables import round_evaluations
from foltr.storage.tables import clients, rounds, updates
from foltr.storage.views import round_history

_LOOKED_THROUGH = 46
"""Rounds to read at most, so that a federation without evaluations does not slow it down."""

_CREDITED_UPDATES = 10_000
"""Updates with credits to read at most, the newest: summing them takes about 10 ms."""


async def list_credits(db: Database, name: str, since: int, without: Collection[str] = ()) -> list[Credits]:
    """List the credits of each member in the newest completed rounds, but of none in quarantine.

    Args:
        since: the oldest base model of an update that counts.
        without: clients whose credits do not count.
    """
    newest = (
        select(*(updates.c[column] for column in ("round", "client", "credit_total", "credit_squares", "base_version")))
        .where(updates.c.federation == name, updates.c.credit_squares.is_not(None))
        .order_by(updates.c.round.desc(), updates.c.client.desc())  # as the index has them
        .limit(_CREDITED_UPDATES)
        .subquery()
    )
    of_clients = (
        select(clients.c.client_id, func.sum(newest.c.credit_total), func.sum(newest.c.credit_squares))
        .join_from(newest, rounds, (rounds.c.federation == name) & (rounds.c.number == newest.c.round))
        .join(clients, clients.c.id == newest.c.client)
        .where(newest.c.base_version >= since, rounds.c.state == RoundState.COMPLETED)
        .where(clients.c.membership == Membership.JOINED, clients.c.quarantined_at.is_(None))
        .group_by(clients.c.client_id)
    )
    async with db.reading() as connection:
        rows = await connection.execute(of_clients)
        # Half of all clients may be left out, and a statement of asyncpg takes 32,767 parameters.
        return [Credits(*sums) for client_id, *sums in rows if client_id not in without]


async def list_credit_sums(db: Database, name: str, since: int) -> list[CreditSum]:
    """List the credits in the secure sums of completed rounds, in order of the rounds.

    Args:
        since: the oldest base model of a round that counts.
    """
    of_rounds = (
        select(round_evaluations.c.n_updates, round_evaluations.c.credit_total, round_evaluations.c.credit_deviation)
        .join(rounds, (rounds.c.federation == name) & (rounds.c.number == round_evaluations.c.round))
        .where(round_evaluations.c.federation == name, round_evaluations.c.credit_total.is_not(None))
        .where(rounds.c.base_version >= since, rounds.c.state == RoundState.COMPLETED)
        .order_by(round_evaluations.c.round)
    )
    return await db.fetch_all(CreditSum, of_rounds)


async def newest_evaluated(db: Database, name: str, limit: int) -> list[EvaluatedRound]:
    """List the newest completed rounds with an evaluation, newest first, among the newest so many rounds."""
    newest = select(func.max(rounds.c.number)).where(rounds.c.federation == name).scalar_subquery()
    evaluated = (
        select(*(round_history.c[field] for field in EvaluatedRound.__slots__))
        .where(round_history.c.federation == name, round_history.c.state == RoundState.COMPLETED)
        .where(round_history.c.round > newest - _LOOKED_THROUGH, round_history.c.clicked.is_not(None))
        .order_by(round_history.c.round.desc())
        .limit(limit)
    )
    return await db.fetch_all(EvaluatedRound, evaluated)


async def count_suspects_alone(db: Database, name: str, number: int) -> int:
    """Count the rounds with suspects only between round ``number`` and the one before it that made a model.

    Full rounds are not counted, since others may have been kept out. Returns 0 unless round ``number`` opened
    `LEAST_TIME_ALONE` after that model: rounds may be short, and a device may be off for a night or a holiday.
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
