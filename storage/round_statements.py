"""The statements by which every round is collected and closed, each prepared once."""

from typing import Any

from sqlalchemy import Integer, bindparam, case, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from foltr.core.protocol.states import RoundState
from foltr.storage.bodies import in_round, select_updates
from foltr.storage.body_parts import part_for
from foltr.storage.body_tables import update_bodies
from foltr.storage.clients import is_not_forgotten
from foltr.storage.erasure_tables import stored_rounds
from foltr.storage.model_tables import models
from foltr.storage.prepared import Prepared
from foltr.storage.schema import OF_FEDERATION, OF_ROUND, UtcDateTime
from foltr.storage.tables import clients, rounds, updates


def of_round(name: str, number: int) -> dict[str, Any]:
    """Make the parameters that identify a statement's round."""
    return {"of_federation": name, "of_round": number}


_IS_ROUND = (rounds.c.federation == OF_FEDERATION) & (rounds.c.number == OF_ROUND)
_IS_ITS_UPDATE = (updates.c.federation == OF_FEDERATION) & (updates.c.round == OF_ROUND)
THE_ROUND = Prepared(select(rounds).where(_IS_ROUND))
STOP_COLLECTING = Prepared(
    update(rounds)
    .where(_IS_ROUND, rounds.c.state == RoundState.COLLECTING)
    .values(state=case((rounds.c.policy_hash.is_(None), RoundState.AGGREGATING), else_=RoundState.CHECKING))
)
# Keys only, and the reader sorts each page: the database would carry the bodies along while sorting names. A client
# that is being erased may have rows left.
NEXT_UPDATES = Prepared(
    select_updates(OF_FEDERATION, OF_ROUND).where(
        updates.c.client.in_(
            select(updates.c.client)
            .join_from(updates, clients, clients.c.id == updates.c.client)
            .where(_IS_ITS_UPDATE, clients.c.client_id > bindparam("after"), is_not_forgotten())
            .order_by(clients.c.client_id)
            .limit(bindparam("most", type_=Integer))
            .scalar_subquery()
        )
    )
)
_base = models.alias()
_BASE_TAINTED_AT = select(_base.c.tainted_at).where(
    _base.c.federation == OF_FEDERATION, _base.c.version == bindparam("of_base", type_=Integer)
)
# An erased client's updates are in every model made from one that contains them, until the unlearned one.
INSERT_MODEL = Prepared(
    insert(models).values(
        federation=OF_FEDERATION,
        round=OF_ROUND,
        tainted_at=case((_BASE_TAINTED_AT.scalar_subquery().is_not(None), bindparam("at", type_=UtcDateTime()))),
    )
)
NOTE_BODIES = Prepared(
    insert(stored_rounds).from_select(
        ["federation", "round"],
        select(update_bodies.c.federation, update_bodies.c.round).where(*in_round(OF_FEDERATION, OF_ROUND)).limit(1),
    )
)
# The conflict names the key only: a second open round still violates uq_rounds_one_open.
OPEN = {
    dialect.dialect.name: Prepared(
        dialect.insert(rounds)
        .values(part=part_for(OF_FEDERATION, OF_ROUND))
        .on_conflict_do_nothing(index_elements=["federation", "number"])
    )
    for dialect in (sqlite, postgresql)
}
# Counted from the rows themselves, so the closed round records what was summed.
CLOSE = Prepared(
    update(rounds)
    .where(_IS_ROUND)
    .values(
        n_updates=select(func.count()).where(_IS_ITS_UPDATE).scalar_subquery(),
        n_interactions=select(func.coalesce(func.sum(updates.c.n_interactions), 0))
        .where(_IS_ITS_UPDATE)
        .scalar_subquery(),
    )
)
