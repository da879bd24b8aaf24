"""History page by page for the HTTP API: no answer has more rows than requested. Read-only.

Pages continue from keys, so a page is the same at any table size, even if rows are added meanwhile.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, func, select

from foltr.core.erasure.audit import AuditEntry
from foltr.core.erasure.pseudonyms import pseudonym
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.states import JobState, Membership, RoundState, Strategy
from foltr.storage.activity import REFUSALS, refusals_by_sender
from foltr.storage.clients import LISTED_COLUMNS, is_client, is_not_forgotten, key_of
from foltr.storage.database import Database
from foltr.storage.erasure.audit_log import read_entry
from foltr.storage.erasure.erasures import find_erasure
from foltr.storage.erasure_records import ErasureRow
from foltr.storage.erasure_tables import audit_log, unlearning_jobs
from foltr.storage.federations import get_federation
from foltr.storage.model_tables import models
from foltr.storage.queries import list_proposals
from foltr.storage.records import ClientRow, EventRow
from foltr.storage.tables import clients, events, rounds, updates

COUNTED_ROUNDS = 100
"""The contributions of each client on a page are counted in so many of the newest rounds."""
# So many of the newest events are looked through for a page of them, and for refusals.
_MOST_EVENTS = 5000


class ClientState(StrEnum):
    """Which clients a page is about."""

    ONLINE = "online"
    OFFLINE = "offline"
    QUARANTINED = "quarantined"
    PROPOSED = "proposed"  # for quarantine
    LEFT = "left"
    REVOKED = "revoked"
    REFUSED = "refused"  # with refusals lately; senders that never joined, too


@dataclass(frozen=True, slots=True)
class ClientLine:
    """A client on a page of clients.

    Attributes:
        n_contributions: rounds with an update of it, of the newest `COUNTED_ROUNDS`.
        refusals: its refused messages by reason code since the moment that was asked for, the most frequent first.
    """

    client: ClientRow
    n_contributions: int
    refusals: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events a page has; each field that is not None restricts it.

    Attributes:
        refused: only refusals of messages.
    """

    kind: str | None = None
    code: str | None = None
    client_id: str | None = None
    round: int | None = None
    refused: bool = False


@dataclass(frozen=True, slots=True)
class EventPage:
    """Events, newest first.

    Attributes:
        before: the next page has those below this id; None: there are no older ones.
    """

    events: Sequence[EventRow]
    before: int | None


@dataclass(frozen=True, slots=True)
class ModelLine:
    """A stored model without its weights; see `foltr.storage.records.ModelRow`."""

    version: int
    base_version: int | None
    round: int | None
    n_values: int
    weights_hash: bytes
    created_at: datetime
    published_at: datetime | None
    tainted_at: datetime | None
    withdrawn_at: datetime | None
    unlearning_job: int | None
    restored_version: int | None


@dataclass(frozen=True, slots=True)
class JobLine:
    """An unlearning job without its weights; see `foltr.storage.erasure_records.UnlearningJobRow`."""

    number: int
    state: JobState
    strategy: Strategy
    created_at: datetime
    start_version: int
    start_round: int
    step: int
    n_steps: int
    last_round: int | None
    reason: str | None
    closed_at: datetime | None
    model_version: int | None
    figures: str


@dataclass(frozen=True, slots=True)
class RoundTotals:
    """How many rounds ended how, and the updates that completed ones closed with, up to a round's number."""

    through: int = 0
    n_completed: int = 0
    n_abandoned: int = 0
    n_updates: int = 0


_MODEL_LINE = [models.c[name] for name in ModelLine.__slots__]
_JOB_LINE = [unlearning_jobs.c[name] for name in JobLine.__slots__]


async def page_models(db: Database, name: str, *, before: int | None, limit: int) -> list[ModelLine]:
    """List the newest models below a version, newest first."""
    found = select(*_MODEL_LINE).where(models.c.federation == name)
    if before is not None:
        found = found.where(models.c.version < before)
    return await db.fetch_all(ModelLine, found.order_by(models.c.version.desc()).limit(limit))


async def page_clients(
    db: Database,
    name: str,
    *,
    since: datetime,
    state: ClientState | None = None,
    search: str = "",
    after: str = "",
    limit: int,
) -> list[ClientLine]:
    """List clients after a name, by name, with what each contributed and what was refused lately.

    Its cost grows with the clients, not with history: contributions are looked up by their keys.

    Args:
        since: refusals are counted from this moment, among the newest 5,000 events.
        search: only names that contain this, in any case.
    """
    refusals = await refusals_by_sender(db, name, since, _MOST_EVENTS)
    sought = [clients.c.federation == name, clients.c.client_id > after]
    if state is ClientState.REFUSED:
        sought += [is_not_forgotten(), clients.c.client_id.in_(refusals)]
    else:
        sought.append(is_client())
    if state is ClientState.PROPOSED:
        proposed = [each.client_id for each in await list_proposals(db, name)]
        sought += [clients.c.client_id.in_(proposed), clients.c.quarantined_at.is_(None)]
    elif state is not None and state is not ClientState.REFUSED:
        sought.append(_STATES[state])
    if search:
        sought.append(func.lower(clients.c.client_id).contains(search.lower(), autoescape=True))
    newest = select(rounds.c.number).where(rounds.c.federation == name)
    newest = newest.order_by(rounds.c.number.desc()).limit(COUNTED_ROUNDS)
    numbers = newest.subquery()
    of_round = and_(updates.c.federation == name, updates.c.round == numbers.c.number, updates.c.client == clients.c.id)
    contributed = select(func.count()).select_from(numbers.join(updates, of_round)).correlate(clients)
    page = select(*LISTED_COLUMNS, contributed.scalar_subquery().label("n_contributions")).where(*sought)
    rows: list[dict[str, Any]] = await db.fetch_all(dict, page.order_by(clients.c.client_id).limit(limit))
    return [
        ClientLine(
            client=ClientRow(**{field.name: row[field.name] for field in fields(ClientRow)}),
            n_contributions=row["n_contributions"],
            refusals=refusals.get(row["client_id"], {}),
        )
        for row in rows
    ]


async def refusals_of(db: Database, name: str, client_id: str, since: datetime) -> Mapping[str, int]:
    """Count a client's refused messages by reason since a moment, among the newest 5,000 events."""
    return (await refusals_by_sender(db, name, since, _MOST_EVENTS)).get(client_id, {})


_JOINED = clients.c.membership == Membership.JOINED
# As `foltr.storage.activity.count_members` counts them.
_STATES: dict[ClientState, ColumnElement[bool]] = {
    ClientState.ONLINE: and_(_JOINED, clients.c.online.is_(True)),
    ClientState.OFFLINE: and_(_JOINED, clients.c.online.is_(False)),
    ClientState.QUARANTINED: and_(_JOINED, clients.c.quarantined_at.is_not(None)),
    ClientState.LEFT: and_(clients.c.membership == Membership.LEFT, clients.c.revoked_at.is_(None)),
    ClientState.REVOKED: clients.c.revoked_at.is_not(None),
}


async def page_events(
    db: Database, name: str, sought: EventFilter, *, before: int | None = None, limit: int
) -> EventPage:
    """List the newest events below an id that match a filter, newest first.

    Looks through at most 5,000 events, of the client or the round if one is sought. A page may therefore have fewer
    than ``limit``, or none, and still continue.
    """
    looked_through = _of_client_or_round(name, sought)
    if before is not None:
        looked_through = looked_through.where(events.c.id < before)
    window = looked_through.order_by(events.c.id.desc()).limit(_MOST_EVENTS).subquery()
    columns = [column for column in window.c if column.name != "client"]
    found = select(clients.c.client_id, *columns).join_from(
        window, clients, clients.c.id == window.c.client, isouter=True
    )
    found = found.where(window.c.federation == name)
    for column, value in ((window.c.kind, sought.kind), (window.c.code, sought.code), (window.c.round, sought.round)):
        if value is not None:
            found = found.where(column == value)
    if sought.refused:
        is_repeated = func.coalesce(window.c.code, "") == ReceiptCode.DUPLICATE
        found = found.where(window.c.kind.in_(REFUSALS), ~is_repeated)
    rows = await db.fetch_all(EventRow, found.order_by(window.c.id.desc()).limit(limit))
    if len(rows) == limit:
        return EventPage(rows, rows[-1].id)
    async with db.reading() as connection:
        n_read, oldest = (await connection.execute(select(func.count(), func.min(window.c.id)))).one()
    return EventPage(rows, oldest if n_read == _MOST_EVENTS else None)


def _of_client_or_round(name: str, sought: EventFilter) -> Select[Any]:
    """Select the events that an index leads to, in their order; without one, those of all federations."""
    if sought.client_id is not None:
        # The key is one of this federation. With that condition, too, SQLite would use an index in another order.
        return select(events).where(events.c.client == key_of(name, sought.client_id))
    if sought.round is not None:
        return select(events).where(events.c.federation == name, events.c.round == sought.round)
    return select(events)


async def latest_ended_round(db: Database, name: str) -> int | None:
    """Find the number of the newest round that ended; None before the first."""
    ended = select(rounds.c.number).where(rounds.c.federation == name, rounds.c.closed_at.is_not(None))
    async with db.reading() as connection:
        number: int | None = await connection.scalar(ended.order_by(rounds.c.number.desc()).limit(1))
        return number


async def page_audit(db: Database, name: str, *, after: int, limit: int) -> list[AuditEntry]:
    """List the audit entries after a number, oldest first."""
    found = select(audit_log).where(audit_log.c.federation == name, audit_log.c.seq > after)
    async with db.reading() as connection:
        answer = await connection.execute(found.order_by(audit_log.c.seq).limit(limit))
        return [read_entry(row) for row in answer]


async def page_jobs(db: Database, name: str, *, before: int | None, limit: int) -> list[JobLine]:
    """List the newest unlearning jobs below a number, newest first."""
    found = select(*_JOB_LINE).where(unlearning_jobs.c.federation == name)
    if before is not None:
        found = found.where(unlearning_jobs.c.number < before)
    return await db.fetch_all(JobLine, found.order_by(unlearning_jobs.c.number.desc()).limit(limit))


async def add_rounds(db: Database, name: str, known: RoundTotals) -> RoundTotals:
    """Add the rounds that ended since the totals were counted; the cost does not grow with history.

    If the last counted round is open again, an older copy of the database was restored: everything is counted again.
    """
    has_ended = rounds.c.federation == name, rounds.c.closed_at.is_not(None)
    last = select(rounds.c.number).where(*has_ended, rounds.c.number == known.through)
    by_state = select(rounds.c.state, func.count(), func.max(rounds.c.number), func.sum(rounds.c.n_updates))
    async with db.reading() as connection:
        if known.through and await connection.scalar(last) is None:
            known = RoundTotals()
        since = *has_ended, rounds.c.number > known.through
        answer = await connection.execute(by_state.where(*since).group_by(rounds.c.state))
        found = {state: (int(n), int(last), int(n_updates)) for state, n, last, n_updates in answer}
    none = (0, 0, 0)
    completed, abandoned = found.get(RoundState.COMPLETED, none), found.get(RoundState.ABANDONED, none)
    return RoundTotals(
        max(known.through, completed[1], abandoned[1]),
        known.n_completed + completed[0],
        known.n_abandoned + abandoned[0],
        known.n_updates + completed[2],
    )


async def erasure_of(db: Database, name: str, client_id: str) -> ErasureRow | None:
    """Find the erasure of a client by its name; None if no client of that name was forgotten."""
    row = await get_federation(db, name)
    if row is None or row.pseudonym_key is None:  # no federator that could forget a client has run
        return None
    return await find_erasure(db, name, pseudonym(row.pseudonym_key, client_id))
