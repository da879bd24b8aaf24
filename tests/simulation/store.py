"""The database, in dicts: the functions of `storage` that the actor calls, and the constraints SQL has.

A function is one transaction: it happens as a whole or not at all, after a while, and now and then its answer
is lost on the way, or the database is away.
"""

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol

from foltr.erasure.audit import AuditEntry
from foltr.errors import ProtocolViolationError
from foltr.failpoints import Failpoint
from foltr.protocol.states import OPEN_ROUND, RoundState
from storage.erasure.records import ErasureRow, UnlearningJobRow
from storage.errors import WriterFencedError
from storage.records import (
    Batch,
    ClientRow,
    DeadlineChange,
    FederationRow,
    MembershipChange,
    ModelRow,
    NewEvent,
    NewModel,
    NewUpdate,
    QuarantineChange,
    RoundOpening,
    RoundRow,
    UpdateRow,
)


@dataclass
class Tables:
    """What is stored. Rows are frozen, so a copy of the dicts is a snapshot."""

    federation: FederationRow | None = None
    clients: dict[str, ClientRow] = field(default_factory=dict)
    models: dict[int, ModelRow] = field(default_factory=dict)
    rounds: dict[int, RoundRow] = field(default_factory=dict)
    updates: dict[tuple[int, str], UpdateRow] = field(default_factory=dict)
    identities: dict[tuple[str, str], int] = field(default_factory=dict)  # (client_id, update_id) to its round
    events: tuple[NewEvent, ...] = ()
    erasures: dict[str, ErasureRow] = field(default_factory=dict)  # by pseudonym
    jobs: dict[int, UnlearningJobRow] = field(default_factory=dict)
    audit: tuple[AuditEntry, ...] = ()

    def copy(self) -> "Tables":
        return Tables(
            self.federation,
            dict(self.clients),
            dict(self.models),
            dict(self.rounds),
            dict(self.updates),
            dict(self.identities),
            self.events,
            dict(self.erasures),
            dict(self.jobs),
            self.audit,
        )

    @property
    def n_deletions(self) -> int:
        return 0 if self.federation is None else self.federation.n_deletions

    def open_rounds(self) -> list[RoundRow]:
        return [row for row in self.rounds.values() if row.state in OPEN_ROUND]

    def of_round(self, number: int) -> list[UpdateRow]:
        """The updates of a round in byte order of client_id."""
        rows = [row for (round_, _), row in self.updates.items() if round_ == number]
        return sorted(rows, key=lambda row: row.client_id.encode())


class Session(Protocol):
    """One process's connection to the database."""

    store: "SimulatedStore"

    async def before(self) -> None:
        """Time passes before the transaction; OSError: the database is away."""

    async def after(self) -> None:
        """Time passes after it; OSError: it is committed, and its answer was lost."""

    def pass_failpoint(self, name: Failpoint) -> None:
        """The process may end here, before what it does is committed."""


class SimulatedStore:
    """The tables, and who looks at every commit.

    Attributes:
        keys: clients that have a data key, which lies beside the database.
        unpurged: bytes of what was deleted may be left in the file.
    """

    def __init__(self, on_commit: Callable[[Tables, Tables], None]) -> None:
        self.tables = Tables()
        self.keys: set[str] = set()
        self.unpurged = False
        self._on_commit = on_commit

    def transact(self, change: Callable[[Tables], Any], epoch: int | None) -> Any:
        after = self.tables.copy()
        if epoch is not None and (after.federation is None or after.federation.writer_epoch != epoch):
            raise WriterFencedError(f"epoch {epoch} is over")
        result = change(after)
        before, self.tables = self.tables, after
        if before.n_deletions != after.n_deletions:
            self.unpurged = True
        self._on_commit(before, after)
        return result


async def write(db: Session, change: Callable[[Tables], Any], epoch: int | None = None) -> Any:
    await db.before()
    result = db.store.transact(change, epoch)
    await db.after()
    return result


async def read(db: Session) -> Tables:
    await db.before()
    return db.store.tables


def require(condition: bool, constraint: str) -> None:
    if not condition:
        raise ProtocolViolationError(f"constraint {constraint}")


def federation_of(tables: Tables) -> FederationRow:
    if tables.federation is None:
        raise ProtocolViolationError("no such federation")
    return tables.federation


# --- storage.federations, storage.models ----------------------------------------------------------------------


async def create_federation(
    db: Session,
    name: str,
    n_features: int,
    ranker: str,
    initial_weights: bytes,
    now: datetime,
    selection_seed: bytes | None = None,
    *,
    aggregation_seed: bytes | None = None,
    pseudonym_key: bytes | None = None,
    method: str = "fpdgd",
    hidden: int | None = None,
) -> None:
    def change(tables: Tables) -> None:
        if tables.federation is None:
            tables.federation = FederationRow(
                name=name,
                writer_epoch=0,
                last_batch_id=None,
                ranker=ranker,
                n_features=n_features,
                created_at=now,
                selection_seed=selection_seed,
                roster_version=0,
                roster=None,
                operator_nonce=0,
                method=method,
                hidden=hidden,
                aggregation_seed=aggregation_seed,
                pseudonym_key=pseudonym_key,
                n_deletions=0,
                n_purged=0,
            )
            tables.models[0] = ModelRow(
                federation=name,
                version=0,
                base_version=None,
                round=None,
                n_values=len(initial_weights) // 4,
                weights=initial_weights,
                created_at=now,
                published_at=None,
            )

    await write(db, change)


async def claim_federation(db: Session, _name: str) -> int:
    def change(tables: Tables) -> int:
        tables.federation = replace(federation_of(tables), writer_epoch=federation_of(tables).writer_epoch + 1)
        return tables.federation.writer_epoch

    epoch: int = await write(db, change)
    return epoch


async def get_federation(db: Session, _name: str) -> FederationRow | None:
    return (await read(db)).federation


async def latest_model(db: Session, _name: str) -> ModelRow | None:
    models = (await read(db)).models
    return models[max(models)] if models else None


# --- storage.arrivals -------------------------------------------------------------------------------------------


async def commit_batch(db: Session, _name: str, epoch: int, batch: Batch) -> None:
    db.store.keys.update(update.client_id for update in batch.updates)
    await write(db, lambda tables: store_batch(tables, batch), epoch)


async def find_updates(db: Session, _name: str, identities: Collection[tuple[str, str]]) -> dict[tuple[str, str], int]:
    known = (await read(db)).identities
    return {identity: known[identity] for identity in identities if identity in known}


async def load_clients(db: Session, _name: str) -> list[ClientRow]:
    return list((await read(db)).clients.values())


def store_batch(tables: Tables, batch: Batch) -> None:
    federation = federation_of(tables)
    if federation.last_batch_id == batch.batch_id:
        return
    nonce = federation.operator_nonce if batch.operator_nonce is None else batch.operator_nonce
    tables.federation = replace(federation, last_batch_id=batch.batch_id, operator_nonce=nonce)
    for change in batch.membership:
        _store_membership(tables, change)
    for quarantine in batch.quarantines:
        _store_quarantine(tables, quarantine)
    for number, client_id in batch.withdrawn:
        _require_collecting(tables, number)
        withdrawn = tables.updates.pop((number, client_id), None)
        if withdrawn is not None:
            del tables.identities[client_id, withdrawn.update_id]
    for update in batch.updates:
        _store_update(tables, update)
    tables.events += tuple(batch.events)
    if batch.deadline is not None:
        _change_deadline(tables, batch.deadline)
    if batch.stop_collecting is not None:
        _stop_collecting(tables, batch.stop_collecting)
    if batch.published is not None:
        version, at = batch.published
        if tables.models[version].published_at is None:
            tables.models[version] = replace(tables.models[version], published_at=at)
    if batch.roster is not None and batch.roster[0] > federation_of(tables).roster_version:
        tables.federation = replace(federation_of(tables), roster_version=batch.roster[0], roster=batch.roster[1])


def _store_update(tables: Tables, new: NewUpdate) -> None:
    _require_collecting(tables, new.round)
    if (new.client_id, new.update_id) in tables.identities:
        return
    require((new.round, new.client_id) not in tables.updates, "pk_updates")
    require(new.client_id in tables.clients, "fk_updates_clients")
    require(new.n_interactions > 0, "ck_updates_n_interactions")
    tables.identities[new.client_id, new.update_id] = new.round
    tables.updates[new.round, new.client_id] = UpdateRow(
        federation="sim",
        round=new.round,
        client_id=new.client_id,
        update_id=new.update_id,
        base_version=new.base_version,
        n_interactions=new.n_interactions,
        encoding=new.encoding,
        n_bytes=len(new.body),
        received_at=new.received_at,
        body=new.body,
    )


def _store_quarantine(tables: Tables, change: QuarantineChange) -> None:
    since = None if change.reason is None else change.at
    known = tables.clients[change.client_id]
    tables.clients[change.client_id] = replace(known, quarantined_at=since, quarantine_reason=change.reason)


def _store_membership(tables: Tables, change: MembershipChange) -> None:
    known = tables.clients.get(change.client_id)
    if change.kind == "joined":
        tables.clients[change.client_id] = ClientRow(
            federation="sim",
            client_id=change.client_id,
            membership="joined",
            online=change.online,
            joined_at=change.at if known is None or known.membership == "left" else known.joined_at,
            left_at=None,
            last_seen_at=change.at,
            n_features=change.n_features,
            sdk_version=change.sdk_version,
            public_key=change.public_key,
            enrolment_serial=change.enrolment_serial,
            revoked_at=None,
            membership_nonce=change.nonce,
            status_nonce=change.status_nonce,
            quarantined_at=None if known is None else known.quarantined_at,
            quarantine_reason=None if known is None else known.quarantine_reason,
        )
        return
    if known is None:
        return
    known = replace(known, last_seen_at=change.at)
    if change.kind in ("online", "offline"):
        known = replace(known, online=change.kind == "online", status_nonce=change.nonce)
    else:
        left_at = known.left_at if known.membership == "left" else change.at
        known = replace(known, membership="left", online=False, left_at=left_at)
        if change.kind == "left":
            known = replace(known, membership_nonce=change.nonce)
        else:
            known = replace(known, revoked_at=change.at)
    tables.clients[change.client_id] = known


# --- storage.rounds -------------------------------------------------------------------------------------------


async def open_round(db: Session, _name: str, epoch: int, opening: RoundOpening) -> None:
    await write(db, lambda tables: open_next(tables, opening), epoch)


async def load_open_round(db: Session, _name: str) -> tuple[RoundRow, list[tuple[str, str]]] | None:
    tables = await read(db)
    found = tables.open_rounds()
    if not found:
        return None
    return found[0], [(row.client_id, row.update_id) for row in tables.of_round(found[0].number)]


async def latest_round(db: Session, _name: str) -> RoundRow | None:
    rounds = (await read(db)).rounds
    return rounds[max(rounds)] if rounds else None


async def begin_aggregation(db: Session, _name: str, epoch: int, number: int) -> None:
    await write(db, lambda tables: _stop_collecting(tables, number), epoch)


async def stream_updates(
    db: Session, _name: str, number: int, _batch: int = 256, *, readable_only: bool = False
) -> AsyncIterator[UpdateRow]:
    del readable_only  # all are: whose key is destroyed has none stored
    for row in (await read(db)).of_round(number):
        yield row


async def complete_round(
    db: Session,
    name: str,
    epoch: int,
    number: int,
    model: NewModel,
    closed_at: datetime,
    next_opening: RoundOpening | None = None,
) -> None:
    def change(tables: Tables) -> None:
        row, version, weights = tables.rounds[number], model.version, model.weights
        if row.state is RoundState.COMPLETED and row.model_version == version:
            return
        require(row.state is RoundState.AGGREGATING, f"round {number} is {row.state}, not aggregating")
        require(version not in tables.models, "pk_models")
        require(row.base_version < version, "ck_models_base_version_before_version")
        tables.models[version] = ModelRow(
            federation=name,
            version=version,
            base_version=row.base_version,
            round=number,
            n_values=len(weights) // 4,
            weights=weights,
            created_at=closed_at,
            published_at=None,
            optimizer_state=model.optimizer_state,
            defence_state=model.defence_state,
            tainted_at=None if tables.models[row.base_version].tainted_at is None else closed_at,
        )
        tables.events += tuple(model.events)
        if version - 1 in tables.models:
            tables.models[version - 1] = replace(tables.models[version - 1], defence_state=None)
        _close(tables, number, state=RoundState.COMPLETED, closed_at=closed_at, model_version=version)
        if next_opening is not None:
            open_next(tables, next_opening)

    await write(db, change, epoch)


async def abandon_round(
    db: Session,
    _name: str,
    epoch: int,
    number: int,
    reason: str,
    closed_at: datetime,
    next_opening: RoundOpening | None = None,
    noted: Sequence[NewEvent] = (),
) -> None:
    def change(tables: Tables) -> None:
        if not close_without_model(tables, number, reason, closed_at):
            return
        tables.events += tuple(noted)
        if next_opening is not None:
            open_next(tables, next_opening)

    await write(db, change, epoch)


def close_without_model(tables: Tables, number: int, reason: str, closed_at: datetime) -> bool:
    """Abandon an open round; False if it is abandoned already."""
    row = tables.rounds[number]
    if row.state is RoundState.ABANDONED:
        return False
    require(row.state is not RoundState.COMPLETED, f"round {number} is completed")
    _close(tables, number, state=RoundState.ABANDONED, closed_at=closed_at, reason=reason)
    return True


def open_next(tables: Tables, opening: RoundOpening) -> None:
    fields = asdict(opening)
    known = tables.rounds.get(opening.number)
    if known is not None:
        same = all(getattr(known, key) == value for key, value in fields.items())
        require(same, f"round {opening.number} was opened before, differently")
        return
    require(not tables.open_rounds(), "uq_rounds_one_open")
    require(opening.number >= 1 and opening.base_version in tables.models, "fk_rounds_models")
    require(opening.closes_at >= opening.opened_at, "ck_rounds_closes_after_opened")
    require(0 <= opening.min_time_s <= opening.max_time_s, "ck_rounds_time_range")
    nothing: dict[str, Any] = dict.fromkeys(("closed_at", "reason", "n_updates", "n_interactions", "model_version"))
    tables.rounds[opening.number] = RoundRow(federation="sim", state=RoundState.COLLECTING, **nothing, **fields)


def _require_collecting(tables: Tables, number: int) -> None:
    row = tables.rounds.get(number)
    require(row is not None and row.state is RoundState.COLLECTING, f"round {number} is not collecting")


def _stop_collecting(tables: Tables, number: int) -> None:
    row = tables.rounds[number]
    require(row.state in OPEN_ROUND, f"round {number} is {row.state}, not collecting")
    tables.rounds[number] = replace(row, state=RoundState.AGGREGATING)


def _change_deadline(tables: Tables, change: DeadlineChange) -> None:
    _require_collecting(tables, change.round)
    row = tables.rounds[change.round]
    require(change.closes_at >= change.opened_at, "ck_rounds_closes_after_opened")
    tables.rounds[change.round] = replace(
        row,
        opened_at=change.opened_at,
        closes_at=change.closes_at,
        max_time_s=change.max_time_s,
        min_time_s=min(row.min_time_s, change.max_time_s),
    )


def _close(tables: Tables, number: int, **outcome: Any) -> None:
    rows = tables.of_round(number)
    tables.rounds[number] = replace(
        tables.rounds[number], n_updates=len(rows), n_interactions=sum(row.n_interactions for row in rows), **outcome
    )


# What takes the place of the functions of the same names in the actor.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        create_federation,
        claim_federation,
        get_federation,
        latest_model,
        commit_batch,
        find_updates,
        load_clients,
        open_round,
        load_open_round,
        latest_round,
        begin_aggregation,
        stream_updates,
        complete_round,
        abandon_round,
    )
}
