"""What a rule made of a round's updates, or of its sums: the rows that tell of it."""

import math

from sqlalchemy import bindparam, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from foltr.core.aggregation.fates import Fate
from foltr.storage.aggregation_tables import round_aggregations, update_fates
from foltr.storage.clients import key_of
from foltr.storage.events import clean
from foltr.storage.records import NewAggregation
from foltr.storage.schema import DETAIL_MAX
from foltr.storage.sum_rows import store_sum_fates
from foltr.storage.sum_tables import round_sums
from foltr.storage.tables import updates


async def store_aggregation(connection: AsyncConnection, name: str, number: int, made: NewAggregation) -> None:
    """Store which rule made a round's model, and what became of each update, within the transaction that ends it."""
    of_round = {"federation": name, "round": number}
    counted = round_sums if made.of_sums else updates
    n_updates = select(func.count()).where(counted.c.federation == name, counted.c.round == number)
    n_clipped, n_dropped = (sum(fate.fate == what for fate in made.fates) for what in (Fate.CLIPPED, Fate.DROPPED))
    await connection.execute(
        insert(round_aggregations).values(
            **of_round,
            rule=made.rule,
            parameters=made.parameters,
            fallback_reason=clean(made.fallback_reason, DETAIL_MAX),
            n_kept=n_updates.scalar_subquery() - n_clipped - n_dropped,
            n_clipped=n_clipped,
            n_dropped=n_dropped,
        )
    )
    if made.of_sums:
        await store_sum_fates(connection, name, number, made.fates)
    elif made.fates:
        # One statement for any number of clients.
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
        client = key_of(bindparam("of_federation"), bindparam("of_client"))
        fated = insert(update_fates).values(federation=bindparam("of_federation"), client=client)
        await connection.execute(fated, values)


def _finite(number: float | None) -> float | None:
    """Give the number, if there is one that a table and JSON can hold."""
    return None if number is None or not math.isfinite(number) else number
