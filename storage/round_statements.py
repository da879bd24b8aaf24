"""The statements by which a round ends, made once: to build one takes longer than to run it."""

from typing import Any

from sqlalchemy import BindParameter, Integer, bindparam, case, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from foltr.protocol.states import RoundState
from storage.bodies import in_round, select_updates
from storage.body_parts import part_for
from storage.body_tables import update_bodies
from storage.clients import is_left
from storage.constants import constant
from storage.erasure.tables import stored_rounds
from storage.model_tables import models
from storage.schema import UtcDateTime
from storage.tables import clients, rounds, updates


def of_round(name: str, number: int) -> dict[str, Any]:
    """Make the parameters that say which round a statement below is about."""
    return {"of_federation": name, "of_round": number}


_NAME: BindParameter[str] = bindparam("of_federation")
_NUMBER = bindparam("of_round", type_=Integer)
_IS_ROUND = (rounds.c.federation == _NAME) & (rounds.c.number == _NUMBER)
_IS_ITS_UPDATE = (updates.c.federation == _NAME) & (updates.c.round == _NUMBER)
THE_ROUND = constant(select(rounds).where(_IS_ROUND))
STOP_COLLECTING = constant(
    update(rounds)
    .where(_IS_ROUND, rounds.c.state == RoundState.COLLECTING)
    .values(state=case((rounds.c.policy_hash.is_(None), RoundState.AGGREGATING), else_=RoundState.CHECKING))
)
# The keys first, and each page in order by who reads it: the database would carry the bodies along to put names in
# order. Of who is being erased rows may be left.
NEXT_UPDATES = constant(
    select_updates(_NAME, _NUMBER).where(
        updates.c.client.in_(
            select(updates.c.client)
            .join_from(updates, clients, clients.c.id == updates.c.client)
            .where(_IS_ITS_UPDATE, clients.c.client_id > bindparam("after"), is_left())
            .order_by(clients.c.client_id)
            .limit(bindparam("most", type_=Integer))
            .scalar_subquery()
        ),
    )
)
_base = models.alias()
_BASE_TAINTED_AT = (
    select(_base.c.tainted_at)
    .where(_base.c.federation == _NAME, _base.c.version == bindparam("of_base", type_=Integer))
    .scalar_subquery()
)
INSERT_MODEL = constant(
    insert(models).values(
        federation=_NAME,
        round=_NUMBER,
        # What an erased client sent is in every model made from one that it is in, until the unlearned one.
        tainted_at=case((_BASE_TAINTED_AT.is_not(None), bindparam("created_at", type_=UtcDateTime()))),
        **{
            name: bindparam(name, type_=models.c[name].type)
            for name in (
                *("version", "base_version", "n_values", "weights", "created_at", "weights_hash"),
                *("optimizer_state", "defence_state"),
            )
        },
    )
)
NOTE_STORED_ROUND = constant(
    insert(stored_rounds).from_select(
        ["federation", "round"],
        select(update_bodies.c.federation, update_bodies.c.round).where(*in_round(_NAME, _NUMBER)).limit(1),
    )
)
# The conflict names the key only: a second open round still violates uq_rounds_one_open.
OPEN = {
    dialect.dialect.name: constant(
        dialect.insert(rounds)
        .values(part=part_for(_NAME, _NUMBER))
        .on_conflict_do_nothing(index_elements=["federation", "number"])
    )
    for dialect in (sqlite, postgresql)
}
# Counted from the rows themselves, so the closed round says what was summed, not what was believed.
CLOSE = constant(
    update(rounds)
    .where(_IS_ROUND)
    .values(
        state=bindparam("after_state"),
        model_version=bindparam("with_model"),
        reason=bindparam("with_reason"),
        closed_at=bindparam("at"),
        n_updates=select(func.count()).where(_IS_ITS_UPDATE).scalar_subquery(),
        n_interactions=select(func.coalesce(func.sum(updates.c.n_interactions), 0))
        .where(_IS_ITS_UPDATE)
        .scalar_subquery(),
    )
)
