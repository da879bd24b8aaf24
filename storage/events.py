"""The table ``events``: makes rows of events and of text from elsewhere."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from foltr.storage.clients import keys_for
from foltr.storage.database import insert_into
from foltr.storage.records import NewEvent
from foltr.storage.schema import CLIENT_ID_MAX, DETAIL_MAX, INTEGER_MAX
from foltr.storage.tables import events


async def store_events(connection: AsyncConnection, name: str, new: Sequence[NewEvent]) -> None:
    """Store events, within a transaction. A refusal equal to another of its minute is added to that row."""
    if not new:
        return
    rows = [event_values(name, event) for event in new]
    named = [row["client_id"] for row in rows if row["client_id"]]
    keys = await keys_for(connection, name, named, new[-1].at) if named else {}
    store = insert_into(connection, events)
    again = store.on_conflict_do_update(
        index_elements=["federation", "client", "kind", "code", "round", "minute"],
        set_={"n": events.c.n + store.excluded.n, "detail": store.excluded.detail},
    )
    await connection.execute(again, [row | {"client": keys.get(row.pop("client_id"))} for row in rows])


def event_values(name: str, event: NewEvent) -> dict[str, Any]:
    """Make a row of the table ``events``, with its client's key in place of the name."""
    named_a_round = event.round is not None and 0 <= event.round <= INTEGER_MAX
    return {
        "federation": name,
        "at": event.at,
        "kind": event.kind,
        "code": event.code,
        "client_id": clean(event.client_id, CLIENT_ID_MAX),
        "round": event.round if named_a_round else None,
        "detail": clean(event.detail, DETAIL_MAX),
        "n": event.n,
        "minute": None if event.code is None else int(event.at.timestamp()) // 60,
    }


def clean(raw: str | None, length: int) -> str | None:
    """Clean text so that a database accepts it: a bad message is an event to record, not a failed transaction.

    PostgreSQL refuses NUL, and neither database takes half of a surrogate pair.
    """
    if raw is None:
        return None
    return raw.encode(errors="replace").decode().replace("\0", "?")[:length]
