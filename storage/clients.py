"""Clients' names and keys: only a client's row in ``clients`` has its name; all other rows have its key.

Code outside this package uses names.
"""

from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, ScalarSelect, Select, Table, case, select
from sqlalchemy.ext.asyncio import AsyncConnection

from foltr.core.protocol.states import Membership
from foltr.storage.database import insert_into
from foltr.storage.tables import clients, updates

# Only rows use the key, no other code.
CLIENT_COLUMNS = tuple(column for column in clients.columns if column is not clients.c.id)
# How many names are looked up at once; a statement has at most 32,766 parameters.
_PAGE = 10_000


def key_of(name: Any, client_id: Any, *conditions: ColumnElement[bool]) -> ScalarSelect[int]:
    """Make the expression for the key of a name; null if no client has it, or a condition does not hold.

    Args:
        name: the federation's name, or a parameter of the statement; ``client_id`` likewise.
    """
    named = clients.c.federation == name, clients.c.client_id == client_id
    return select(clients.c.id).where(*named, *conditions).scalar_subquery()


def select_named(table: Table, *more: Any) -> Select[Any]:
    """Select the rows of a table with the name ``client_id`` in place of the key ``client``."""
    columns = (clients.c.client_id if column.name == "client" else column for column in table.columns)
    is_outer = bool(table.c.client.nullable)
    return select(*columns, *more).join_from(table, clients, clients.c.id == table.c.client, isouter=is_outer)


def is_client() -> ColumnElement[bool]:
    """Make the condition that a row belongs to a client that once joined and was not forgotten."""
    return clients.c.joined_at.is_not(None)


def is_not_forgotten() -> ColumnElement[bool]:
    """Make the condition that a row does not belong to a forgotten client, whose rows may not all be deleted yet."""
    return clients.c.membership != Membership.FORGOTTEN


def select_clients(name: str) -> Select[Any]:
    """Select all clients that ever joined and were not forgotten, as `foltr.storage.records.ClientRow`."""
    return select(*CLIENT_COLUMNS).where(clients.c.federation == name, is_client())


def select_listed(name: str) -> Select[Any]:
    """Select as `select_clients`, with `last_seen`."""
    return select(*LISTED_COLUMNS).where(clients.c.federation == name, is_client())


def last_seen() -> ColumnElement[datetime]:
    """Make the column of when a client was last heard from: also by its newest update that counts.

    Only lists have it: it costs a look at one row for each client.
    """
    newest = select(updates.c.received_at).where(updates.c.client == clients.c.id, updates.c.covers_after.is_not(None))
    sent_at = newest.order_by(updates.c.covers_after.desc()).limit(1).correlate(clients).scalar_subquery()
    return case((sent_at > clients.c.last_seen_at, sent_at), else_=clients.c.last_seen_at).label("last_seen_at")


# As CLIENT_COLUMNS, for people.
LISTED_COLUMNS = tuple(last_seen() if column is clients.c.last_seen_at else column for column in CLIENT_COLUMNS)


async def find_keys(
    connection: AsyncConnection, name: str, client_ids: Collection[str], *conditions: ColumnElement[bool]
) -> dict[str, int]:
    """Find the keys, by name, of the clients for whose rows the conditions hold."""
    sought = list(set(client_ids))
    found: dict[str, int] = {}
    for start in range(0, len(sought), _PAGE):
        named = clients.c.federation == name, clients.c.client_id.in_(sought[start : start + _PAGE])
        answer = await connection.execute(select(clients.c.client_id, clients.c.id).where(*named, *conditions))
        found |= {row.client_id: row.id for row in answer}
    return found


async def keys_for(connection: AsyncConnection, name: str, client_ids: Collection[str], at: datetime) -> dict[str, int]:
    """Find the keys of all these names, within a transaction; a name without a row is added as a stranger."""
    known = await find_keys(connection, name, client_ids)
    strangers = [client_id for client_id in dict.fromkeys(client_ids) if client_id not in known]
    if not strangers:
        return known
    rows = [
        {
            "federation": name,
            "client_id": client_id,
            "membership": Membership.STRANGER,
            "online": False,
            "last_seen_at": at,
        }
        for client_id in strangers
    ]
    await connection.execute(insert_into(connection, clients), rows)
    return known | await find_keys(connection, name, strangers)
