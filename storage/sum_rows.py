"""What is deleted of a secure sum when its round closes, or when a client in it is erased.

Parts of the transactions that close rounds (`foltr.storage.rounds`) and erase clients
(`foltr.storage.erasure.erasures`).
"""

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import ColumnElement, Table, and_, delete, exists, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from foltr.core.aggregation.vote_result import RoundEvaluation, RoundTally
from foltr.storage.bodies import in_round
from foltr.storage.body_tables import update_bodies
from foltr.storage.records import NewFate
from foltr.storage.sum_tables import helper_answers, round_evaluations, round_sums, round_tallies
from foltr.storage.tables import updates


async def delete_masked_bodies(connection: AsyncConnection, name: str, number: int) -> None:
    """Delete clients' masked vectors of a round with a secure sum: a holder of the masks could open them."""
    masked = *in_round(name, number), update_bodies.c.ticket.is_not(None)
    await connection.execute(delete(update_bodies).where(*masked))


async def delete_sums(connection: AsyncConnection, name: str, number: int) -> None:
    """Delete the sets, the answers and the sums of a round that ends without a model: none of it is released."""
    for table in (helper_answers, round_sums):
        await connection.execute(delete(table).where(table.c.federation == name, table.c.round == number))


async def store_sum_fates(connection: AsyncConnection, name: str, number: int, fates: Sequence[NewFate]) -> None:
    """Store what a rule did with each sum of a round; the fates come in order of cohort."""
    of_round = round_sums.c.federation == name, round_sums.c.round == number
    cohorts = await connection.scalars(select(round_sums.c.cohort).where(*of_round).order_by(round_sums.c.cohort))
    for cohort, fate in zip(cohorts.all(), fates, strict=False):  # none where all were kept
        share = None if fate.share is None else min(1.0, max(0.0, fate.share))
        values = {"fate": fate.fate, "share": share}
        await connection.execute(update(round_sums).where(*of_round, round_sums.c.cohort == cohort).values(values))


async def store_tally(connection: AsyncConnection, name: str, number: int, tally: RoundTally) -> None:
    """Store the result of the votes in a round's sums."""
    await connection.execute(insert(round_tallies).values(federation=name, round=number, **asdict(tally)))


async def store_evaluation(connection: AsyncConnection, name: str, number: int, evaluation: RoundEvaluation) -> None:
    """Store the result of the evaluations in a round's sums."""
    await connection.execute(insert(round_evaluations).values(federation=name, round=number, **asdict(evaluation)))


async def delete_sums_with(connection: AsyncConnection, name: str, client: int, numbers: Sequence[int]) -> None:
    """Delete the sums of these rounds that contain a client, and their results of votes and evaluations.

    The sets stay; they name nobody. Credits begin again after the newest of these rounds: without single rounds, chosen
    by who leaves, those before it would no longer be a fair bet on the model (`foltr.core.learning.credits.summed`).
    """
    answers_with, sums_with = (
        and_(table.c.federation == name, table.c.round.in_(numbers), _holds(client, table))
        for table in (helper_answers, round_sums)
    )
    for table in (round_tallies, round_evaluations):
        is_in = exists(
            select(updates.c.client).where(
                updates.c.client == client,
                updates.c.fault.is_(None),
                updates.c.federation == table.c.federation,
                updates.c.round == table.c.round,
            )
        )
        deleted = delete(table).where(table.c.federation == name, table.c.round.in_(numbers), is_in)
        rounds_with = (await connection.scalars(deleted.returning(table.c.round))).all()
        if table is round_evaluations and rounds_with:
            before = table.c.federation == name, table.c.round < max(rounds_with)
            await connection.execute(update(table).where(*before).values(credit_total=None, credit_deviation=None))
    await connection.execute(delete(helper_answers).where(answers_with))
    await connection.execute(update(round_sums).where(sums_with).values(masked_sum=None))


def is_in_sum() -> ColumnElement[bool]:
    """Make the condition that an update is in its round's sum; always true for a round without sums."""
    summed = select(round_sums.c.cohort).where(
        round_sums.c.federation == updates.c.federation,
        round_sums.c.round == updates.c.round,
        round_sums.c.cohort == updates.c.cohort,
    )
    return or_(updates.c.cohort.is_(None), and_(updates.c.fault.is_(None), exists(summed)))


def _holds(client: int, table: Table) -> ColumnElement[bool]:
    return exists(
        select(updates.c.client).where(
            updates.c.client == client,
            updates.c.fault.is_(None),
            updates.c.federation == table.c.federation,
            updates.c.round == table.c.round,
            updates.c.cohort == table.c.cohort,
        )
    )
