"""Searches for remains of a client byte by byte: in files, in rows, and in the broker's retained messages.

The search does not know what was erased or how. It takes bytes that were the client's and reads everything.
"""

import asyncio
import base64
import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from foltr.core.protocol.topics import Topics

if TYPE_CHECKING:
    from foltr.broker.address import BrokerAddress
    from foltr.broker.link import InboundMessage
    from foltr.storage.database import Database

_PIECE_BYTES = 256
# A large update is searched for by this many pieces, spread over it.
_MOST_PIECES = 8
# Zeros or one repeated number occur in every file.
_LEAST_DISTINCT = 8
_CONNECT_S = 10.0
# The broker does not mark the last retained message.
_QUIET_S = 0.7


def traces_of(name: str, public_key: bytes, secrets: Iterable[bytes], updates: Iterable[bytes]) -> tuple[bytes, ...]:
    """Return the byte strings to search for: each occurrence is a remainder of the client.

    Args:
        public_key: 32 bytes; searched for raw and in its text forms.
        secrets: keys that were the client's.
        updates: bodies, as sent or as stored. Pieces of them are used, since SQLite splits what exceeds a page.
    """
    keys = (public_key, base64.b64encode(public_key), public_key.hex().encode())
    pieces = (piece for body in updates for piece in _pieces(body))
    return tuple(dict.fromkeys((name.encode(), *keys, *secrets, *pieces)))


def n_bytes(text: bytes, traces: Iterable[bytes]) -> int:
    """Return how many bytes of ``text`` are traces. Nested traces count separately."""
    return sum(len(trace) * text.count(trace) for trace in traces)


def in_files(paths: Iterable[Path], traces: tuple[bytes, ...]) -> int:
    """Search these files, with folders all files below them: contents and names."""
    found = 0
    for path in paths:
        for file in path.rglob("*") if path.is_dir() else (path,):
            if file.is_file():
                found += n_bytes(file.name.encode() + b"\n" + file.read_bytes(), traces)
    return found


def sqlite_files(path: Path) -> tuple[Path, ...]:
    """Return a SQLite database and the files that may lie beside it."""
    return tuple(path.with_name(path.name + ending) for ending in ("", "-wal", "-shm", "-journal"))


async def in_database(db: "Database", traces: tuple[bytes, ...]) -> int:
    """Search SQLite's files; on a server, every row of every table."""
    if db.dialect == "sqlite":
        return await asyncio.to_thread(in_files, sqlite_files(Path(db.engine.url.database or "")), traces)
    from sqlalchemy import select

    from foltr.storage.tables import updates

    found = 0
    async with db.reading() as connection:
        for table in updates.metadata.sorted_tables:
            rows = await connection.stream(select(table))
            async for row in rows:
                found += sum(
                    n_bytes(value if isinstance(value, bytes) else str(value).encode(), traces) for value in row
                )
    return found


async def stored_updates(db: "Database", federation: str, client_id: str) -> list[bytes]:
    """Return a client's updates as stored: sealed if the database has data keys."""
    from sqlalchemy import select

    from foltr.storage.bodies import pages_of, places_of
    from foltr.storage.body_tables import update_bodies
    from foltr.storage.clients import key_of

    async with db.reading() as connection:
        client = await connection.scalar(select(key_of(federation, client_id)))
        places = [] if client is None else await places_of(connection, client)
        bodies: list[bytes] = []
        for page in pages_of(places):
            bodies += await connection.scalars(select(update_bodies.c.body).where(*page))
        return bodies


async def at_broker(address: "BrokerAddress", federation: str, traces: tuple[bytes, ...]) -> int:
    """Search every retained message in the federation's topics, and the topics themselves.

    Raises:
        UnavailableError: no broker, or it refuses the subscription.
    """
    from foltr.broker.short_connections import short_connection

    found, heard = 0, asyncio.Event()

    def hear(message: "InboundMessage") -> None:
        nonlocal found
        found += n_bytes(message.topic.encode() + b"\n" + message.payload, traces)
        heard.set()

    everything = [f"{Topics(federation).root}/#"]
    async with short_connection(address, f"foltr-remains:{federation}", everything, hear, _CONNECT_S):
        with contextlib.suppress(TimeoutError):
            while True:
                heard.clear()
                async with asyncio.timeout(_QUIET_S):
                    await heard.wait()
    return found


def _pieces(body: bytes) -> list[bytes]:
    step = max(_PIECE_BYTES, len(body) // _MOST_PIECES)
    pieces = (body[start : start + _PIECE_BYTES] for start in range(0, len(body), step))
    return [piece for piece in pieces if len(set(piece)) >= _LEAST_DISTINCT]
