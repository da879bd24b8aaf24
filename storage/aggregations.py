"""Stores what a rule did with a round's updates or sums."""

import math

from sqlalchemy import Integer, bindparam, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from foltr.core.aggregation.fates import Fate
from foltr.storage.aggregation_tables import round_aggregations, update_fates
from foltr.storage.clients import key_of
from foltr.storage.events import clean
from foltr.storage.prepared import Prepared
from foltr.storage.records import NewAggregation
from foltr.storage.schema import DETAIL_MAX, OF_FEDERATION, OF_ROUND
from foltr.storage.sum_rows import store_sum_fates
from foltr.storage.sum_tables import round_sums
from foltr.storage.tables import updates

# Made once: building a statement takes longer than executing it.
_INSERT = {
    counted: Prepared(
        insert(round_aggregations).values(
            federation=OF_FEDERATION,
            round=OF_ROUND,
            n_kept=select(func.count())
            .where(counted.c.federation == OF_FEDERATION, counted.c.round == OF_ROUND)
            .scalar_subquery()
            - bindparam("n_changed", type_=Integer),
        )
    )
    for counted in (updates, round_sums)
}
_INSERT_FATES = Prepared(
    insert(update_fates).inline().values(federation=OF_FEDERATION, client=key_of(OF_FEDERATION, bindparam("of_client")))
)


async def store_aggregation(connection: AsyncConnection, name: str, number: int, made: NewAggregation) -> None:
    """Store which rule made a round's model, and each update's outcome, within the transaction that ends it."""
    n_clipped, n_dropped = (sum(fate.fate == what for fate in made.fates) for what in (Fate.CLIPPED, Fate.DROPPED))
    row = {
        "of_federation": name,
        "of_round": number,
        "rule": made.rule,
        "parameters": made.parameters,
        "fallback_reason": clean(made.fallback_reason, DETAIL_MAX),
        "n_changed": n_clipped + n_dropped,
        "n_clipped": n_clipped,
        "n_dropped": n_dropped,
    }
    await _INSERT[round_sums if made.of_sums else updates].execute(connection, row)
    if made.of_sums:
        await store_sum_fates(connection, name, number, made.fates)
    elif made.fates:
        values = [
            {
                "of_federation": name,
                "of_client": fate.client_id,
                "round": number,
                "fate": fate.fate,
                "share": None if fate.share is None else min(1.0, max(0.0, fate.share)),  # a sum may round past 1
                "score": _finite(fate.score),
                "reason": clean(fate.reason, DETAIL_MAX),
            }
            for fate in made.fates
        ]
        await _INSERT_FATES.execute_many(connection, values)


def _finite(number: float | None) -> float | None:
    """Return the number if a table and JSON can hold it, else None."""
    return None if number is None or not math.isfinite(number) else number
