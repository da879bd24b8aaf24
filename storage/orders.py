"""The table ``orders``: the operator's orders, each stored with its outcome in one transaction with its effect."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, fields
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from foltr.core.errors import ProtocolViolationError
from foltr.core.protocol.orders import RevokeClient, RotateEnrolmentKey, RotateKey
from foltr.storage.clients import keys_for, select_named
from foltr.storage.database import Database, fetch_all, insert_into
from foltr.storage.events import clean
from foltr.storage.history_records import OrderRow
from foltr.storage.order_tables import orders
from foltr.storage.records import NewOrder
from foltr.storage.schema import DETAIL_MAX
from foltr.storage.tables import clients, federations

_FIELDS = [clients.c.client_id if field.name == "client_id" else orders.c[field.name] for field in fields(NewOrder)]
_STORED = select(*_FIELDS).join_from(orders, clients, clients.c.id == orders.c.client, isouter=True)


async def store_orders(connection: AsyncConnection, name: str, new: Sequence[NewOrder]) -> None:
    """Store orders that follow the newest one, within a transaction; stored ones do not change.

    Raises:
        ProtocolViolationError: a number is not the next one.
    """
    if not new:
        return
    last: int = (
        await connection.execute(select(federations.c.last_order).where(federations.c.name == name))
    ).scalar_one()
    following = [order for order in new if order.number > last]
    if not following:
        return
    if [order.number for order in following] != list(range(last + 1, last + 1 + len(following))):
        raise ProtocolViolationError(f"order {following[0].number} of {name!r} does not follow order {last}")
    named = [order.client_id for order in following if order.client_id is not None]
    keys = await keys_for(connection, name, named, following[-1].at) if named else {}
    await connection.execute(
        insert_into(connection, orders), [_values(name, order, keys.get(order.client_id or "")) for order in following]
    )
    await connection.execute(
        update(federations).where(federations.c.name == name).values(last_order=following[-1].number)
    )


def _values(name: str, order: NewOrder, client: int | None) -> dict[str, Any]:
    values = asdict(order) | {"federation": name, "client": client, "detail": clean(order.detail, DETAIL_MAX)}
    del values["client_id"]
    return values


async def find_orders(db: Database, name: str, numbers: Collection[int]) -> dict[int, NewOrder]:
    """Find which of these orders are stored."""
    query = _STORED.where(orders.c.federation == name, orders.c.number.in_(sorted(numbers)))
    async with db.reading() as connection:
        return {order.number: order for order in await fetch_all(connection, NewOrder, query)}


async def standing_orders(db: Database, name: str, after: int) -> list[NewOrder]:
    """List the orders that a federator needs at its start, in order.

    These are the newest one, replacements of keys, and revocations numbered above ``after``, which its roster lacks.
    """
    newest = select(federations.c.last_order).where(federations.c.name == name).scalar_subquery()
    revocations = (orders.c.kind == RevokeClient.kind_name) & (orders.c.number > after)
    rotations = orders.c.kind.in_([RotateKey.kind_name, RotateEnrolmentKey.kind_name])
    stands = rotations | (orders.c.number == newest) | revocations
    query = _STORED.where(orders.c.federation == name, stands)
    return await db.fetch_all(NewOrder, query.order_by(orders.c.number))


async def list_orders(db: Database, name: str, limit: int = 1000, *, before: int | None = None) -> list[OrderRow]:
    """List the newest orders, or the newest below the number ``before``, newest last."""
    query = select_named(orders).where(orders.c.federation == name)
    if before is not None:
        query = query.where(orders.c.number < before)
    async with db.reading() as connection:
        return (await fetch_all(connection, OrderRow, query.order_by(orders.c.number.desc()).limit(limit)))[::-1]
