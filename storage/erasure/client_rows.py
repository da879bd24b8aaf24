"""What of a client is where in the database: how it is taken out, and what is left of it.

Most functions are parts of the transaction that erases a client (`storage.erasure.erasures`).
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, Row, Table, delete, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from foltr.aggregation.client_records import without_client
from foltr.errors import ProtocolViolationError
from foltr.protocol.codec import open_envelope
from foltr.protocol.fields import MAX_CHUNKED_BYTES
from foltr.protocol.orders import Roster
from foltr.protocol.states import RoundState
from storage.database import Database
from storage.erasure.redaction import PLACES, in_the_federators_words, in_the_operators_words, is_unmistakable
from storage.erasure.tables import erasures, unlearning_jobs
from storage.schema import DETAIL_MAX
from storage.tables import clients, events, federations, models, rounds, update_fates, updates

# So many updates' bytes are in memory at once.
_PAGE = 64
# The one kind of event whose words are the operator's.
_OPERATOR_SAYS = "client_quarantined"


async def rounds_of(connection: AsyncConnection, name: str, client_id: str) -> Sequence[Row[*tuple[Any, ...]]]:
    """Find (round, state, model_version) of each round with an update of the client, by round.

    Raises:
        ProtocolViolationError: one of them is aggregating.
    """
    answer = await connection.execute(
        select(updates.c.round, rounds.c.state, rounds.c.model_version)
        .join(rounds, (rounds.c.federation == updates.c.federation) & (rounds.c.number == updates.c.round))
        .where(updates.c.federation == name, updates.c.client_id == client_id)
        .order_by(updates.c.round)
    )
    rows = answer.all()
    if busy := [row.round for row in rows if row.state is RoundState.AGGREGATING]:
        raise ProtocolViolationError(f"round {busy[0]} of {name!r} is aggregating with an update of a client to erase")
    return rows


async def digest_of(connection: AsyncConnection, name: str, client_id: str, numbers: Sequence[int]) -> str:
    """Compute SHA-256, in hex, over the client's updates as they are stored, in order of rounds.

    Those that retention deleted have no bytes.
    """
    digest = hashlib.sha256()
    for start in range(0, len(numbers), _PAGE):
        bodies = await connection.scalars(
            select(updates.c.body)
            .where(updates.c.federation == name, updates.c.client_id == client_id, updates.c.body.is_not(None))
            .where(updates.c.round.in_(numbers[start : start + _PAGE]))
            .order_by(updates.c.round)
        )
        for body in bodies:
            digest.update(body)
    return digest.hexdigest()


async def delete_rows_of(connection: AsyncConnection, table: Table, name: str, client_id: str) -> int:
    """Delete a client's rows of a table, and say how many."""
    deleted = await connection.execute(delete(table).where(table.c.federation == name, table.c.client_id == client_id))
    return int(deleted.rowcount)


async def take_out_name(connection: AsyncConnection, name: str, client_id: str, pseudonym: str) -> None:
    """Put the pseudonym in the place of the name where words about others hold it (`storage.erasure.redaction`)."""
    for redaction in await redactions_of(connection, name, client_id, pseudonym):
        for identity, rewritten in redaction.rows:
            await connection.execute(
                update(redaction.table)
                .where(redaction.table.c.federation == name, redaction.key == identity)
                .values({redaction.words: rewritten[:DETAIL_MAX]})
            )


async def names_stranger(connection: AsyncConnection, name: str, client_id: str) -> bool:
    """Tell whether an event, or words about others, name somebody who is no client: all else is a client's."""
    own = select(events.c.id).where(events.c.federation == name, events.c.client_id == client_id).limit(1)
    if (await connection.execute(own)).first() is not None:
        return True
    return any(redaction.rows for redaction in await redactions_of(connection, name, client_id, ""))


@dataclass(frozen=True)
class Redaction:
    """Rows whose words name a client: the key of each, and its words with something else in the place of the name."""

    table: Table
    key: Column[Any]
    words: Column[Any]
    rows: list[tuple[Any, str]]


async def redactions_of(connection: AsyncConnection, name: str, client_id: str, instead: str) -> list[Redaction]:
    """Find the rows of each table whose words name a client; those of its own are not looked for."""
    said, detail = events.c.kind == _OPERATOR_SAYS, events.c.detail
    by_operator = in_the_operators_words(client_id, instead)
    # The database looks for the very words that are taken out, so that few rows are read, whatever the name is.
    places = (("", ""),) if is_unmistakable(client_id) else PLACES
    by_federator = (detail.contains(f"{before}{client_id}{after}", autoescape=True) for before, after in places)
    reason = clients.c.quarantine_reason
    looked_for = (
        (events, events.c.id, detail, or_(*by_federator) & ~said, in_the_federators_words(client_id, instead)),
        (events, events.c.id, detail, detail.contains(client_id, autoescape=True) & said, by_operator),
        (clients, clients.c.client_id, reason, reason.contains(client_id, autoescape=True), by_operator),
    )
    redactions = []
    for table, key, words, likely, rewrite in looked_for:
        others = table.c.client_id.is_distinct_from(client_id)
        answer = await connection.execute(select(key, words).where(table.c.federation == name, others, likely))
        rows = [(identity, rewrite(text)) for identity, text in answer.all() if rewrite(text) != text]
        redactions.append(Redaction(table, key, words, rows))
    return redactions


async def take_out_record(connection: AsyncConnection, name: str, client_id: str) -> None:
    """Let the rule of aggregation forget what it remembers of the client."""
    for table, key in ((models, models.c.version), (unlearning_jobs, unlearning_jobs.c.number)):
        answer = await connection.execute(
            select(key, table.c.defence_state).where(table.c.federation == name, table.c.defence_state.is_not(None))
        )
        for identity, stored in answer.all():
            left = without_client(stored, client_id)
            if left != stored:
                await connection.execute(
                    update(table).where(table.c.federation == name, key == identity).values(defence_state=left)
                )


async def rows_that_name(db: Database, name: str, client_id: str) -> dict[str, int]:
    """Count the rows of each table that name a client: as theirs, or in words about others; tables without any are out.

    ``erasures`` has the name of a forgotten client until its device was told, and ``federations`` that of a client
    whose enrolment the operator's newest roster voids.

    Raises:
        MessageError: the stored roster cannot be read.
    """
    n_rows: dict[str, int] = {}
    async with db.reading() as connection:
        for table in (clients, updates, update_fates, events, erasures):
            of_client = table.c.federation == name, table.c.client_id == client_id
            n_rows[table.name] = (await connection.execute(select(func.count()).where(*of_client))).scalar_one()
        for redaction in await redactions_of(connection, name, client_id, ""):
            n_rows[redaction.table.name] += len(redaction.rows)
        roster = await connection.scalar(select(federations.c.roster).where(federations.c.name == name))
    if roster is not None:
        # The federator has checked whose it is before it stored it.
        voided = open_envelope(roster, MAX_CHUNKED_BYTES).read(Roster).revoked
        n_rows[federations.name] = sum(revocation.client_id == client_id for revocation in voided)
    return {table: n for table, n in n_rows.items() if n}
