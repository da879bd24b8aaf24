"""What a federator stores of rounds in the simulated database, and the constraints SQL has.

A method of the stores is one transaction: it happens after a while, and now and then its answer is lost on the way, or
the database is away.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

from simulation.database import NAME, Session, Tables, federation_of, require

from foltr.core.errors import DataError, ProtocolViolationError
from foltr.core.failpoints import Failpoint
from foltr.core.protocol.fields import model_hash
from foltr.core.protocol.states import OPEN_ROUND, Membership, OrderOutcome, Privacy, RoundState
from foltr.core.protocol.trainings import Activation
from foltr.federator.store import Transactions
from foltr.storage.body_parts import DropStep
from foltr.storage.errors import WriterFencedError
from foltr.storage.records import (
    Batch,
    ClientRow,
    CountingUpdate,
    DeadlineChange,
    FederationRow,
    MembershipChange,
    ModelRow,
    NewEvent,
    NewModel,
    NewOrder,
    NewUpdate,
    QuarantineChange,
    RoundOpening,
    RoundRow,
    StoredUpdate,
    UpdateRow,
)
from foltr.storage.retention import RetentionStep
from foltr.storage.schema import INTEGER_MAX


def store_batch(tables: Tables, batch: Batch) -> None:
    federation = federation_of(tables)
    if federation.last_batch_id == batch.batch_id:
        return
    tables.federation = replace(federation, last_batch_id=batch.batch_id)
    store_orders(tables, batch.orders)
    for change in batch.membership:
        _store_membership(tables, change)
    for quarantine in batch.quarantines:
        _store_quarantine(tables, quarantine)
    for number, client_id in batch.withdrawn:
        _require_collecting(tables, number)
        _set_back(tables, number, client_id)
        withdrawn = tables.updates.pop((number, client_id))
        del tables.identities[client_id, withdrawn.update_id]
    for update in batch.updates:
        _store_update(tables, update)
    note_events(tables, batch.events)
    if batch.deadline is not None:
        _change_deadline(tables, batch.deadline)
    if (allowed := batch.allowed_reset) is not None:
        tables.resets[allowed.job] = replace(tables.resets[allowed.job], ordered_at=allowed.at)
    if batch.stop_collecting is not None:
        stop_collecting(tables, batch.stop_collecting)
    if batch.published is not None:
        version, at = batch.published
        if tables.models[version].published_at is None:
            tables.models[version] = replace(tables.models[version], published_at=at)
    if batch.roster is not None and batch.roster[0] > federation_of(tables).roster_version:
        tables.federation = replace(federation_of(tables), roster_version=batch.roster[0], roster=batch.roster[1])


def note_events(tables: Tables, new: Sequence[NewEvent]) -> None:
    """Store events; a refusal of somebody, like another of its minute, is added to that one."""
    if not new:
        return
    stored = {_sameness(event): i for i, event in enumerate(tables.events)}
    for event in new:
        i = stored.get(_sameness(event)) if event.code and event.client_id and event.round is not None else None
        if i is None:
            stored[_sameness(event)] = len(tables.events)
            tables.events += (event,)
        else:
            before = tables.events[i]
            merged = replace(before, n=before.n + event.n, detail=event.detail)
            tables.events = (*tables.events[:i], merged, *tables.events[i + 1 :])


def _sameness(event: NewEvent) -> tuple[object, ...]:
    return event.kind, event.code, event.client_id, event.round, int(event.at.timestamp()) // 60


def store_orders(tables: Tables, new: Sequence[NewOrder]) -> None:
    """Store orders that follow the newest one; those that are stored already stay."""
    for order in new:
        last = federation_of(tables).last_order
        if order.number <= last:
            continue
        require(order.number == last + 1, f"order {order.number} does not follow order {last}")
        require((order.code is None) == (order.outcome is OrderOutcome.OBEYED), "ck_orders_code_iff_refused")
        tables.orders[order.number] = order
        tables.federation = replace(federation_of(tables), last_order=order.number)


def _store_update(tables: Tables, new: NewUpdate) -> None:
    _require_collecting(tables, new.round)
    require((new.client_id, new.update_id) not in tables.identities, "uq_updates_update_id")
    require((new.round, new.client_id) not in tables.updates, "pk_updates")
    require(new.client_id in tables.clients, "fk_updates_clients")
    require(0 < new.n_interactions <= new.covers_through - new.covers_after, "ck_updates_covers_interactions")
    move_watermark(tables, new.client_id, new.covers_after, new.covers_through)
    tables.identities[new.client_id, new.update_id] = new.round
    tables.updates[new.round, new.client_id] = UpdateRow(
        federation=NAME,
        round=new.round,
        client_id=new.client_id,
        update_id=new.update_id,
        base_version=new.base_version,
        n_interactions=new.n_interactions,
        encoding=new.encoding,
        n_bytes=len(new.body),
        received_at=new.received_at,
        covers_after=new.covers_after,
        covers_through=new.covers_through,
        cohort=new.cohort,
        position=new.position,
        fault=None,
        vote=None,
        clicked=None,
        reward=None,
        base_reward=None,
        cipher="",
        key_fingerprint=None,
        ticket=new.ticket,
        body=new.body,
    )


def move_watermark(tables: Tables, client_id: str, before: int, after: int) -> None:
    client = tables.clients[client_id]
    require(client.counted_through == before, f"the watermark of {client_id} is {client.counted_through}, not {before}")
    tables.clients[client_id] = replace(client, counted_through=after)


def _set_back(tables: Tables, number: int, client_id: str) -> None:
    row = tables.updates.get((number, client_id))
    if row is None or row.covers_after is None or row.covers_through is None:
        raise ProtocolViolationError(f"{client_id} has nothing in round {number} that counts")
    move_watermark(tables, client_id, row.covers_through, row.covers_after)


def _store_quarantine(tables: Tables, change: QuarantineChange) -> None:
    since = None if change.reason is None else change.at
    known = tables.clients[change.client_id]
    tables.clients[change.client_id] = replace(known, quarantined_at=since, quarantine_reason=change.reason)


def _store_membership(tables: Tables, change: MembershipChange) -> None:
    known = tables.clients.get(change.client_id)
    if change.kind == "joined":
        tables.clients[change.client_id] = ClientRow(
            federation=NAME,
            client_id=change.client_id,
            membership=Membership.JOINED,
            online=change.online,
            joined_at=change.at if known is None or known.membership is Membership.LEFT else known.joined_at,
            left_at=None,
            last_seen_at=change.at,
            sdk_version=change.sdk_version,
            public_key=change.public_key,
            enrolment_serial=change.enrolment_serial,
            enrolment=change.enrolment,
            revoked_at=None,
            membership_sequence=change.sequence,
            status_sequence=change.status_sequence,
            counted_through=0 if known is None else known.counted_through,
            quarantined_at=None if known is None else known.quarantined_at,
            quarantine_reason=None if known is None else known.quarantine_reason,
        )
        return
    if known is None:
        return
    if change.kind != "revoked":
        known = replace(known, last_seen_at=change.at)
    if change.kind in ("online", "offline"):
        known = replace(known, online=change.kind == "online", status_sequence=change.sequence)
    else:
        left_at = known.left_at if known.membership is Membership.LEFT else change.at
        known = replace(known, membership=Membership.LEFT, online=False, left_at=left_at)
        if change.kind == "left":
            known = replace(known, membership_sequence=change.sequence)
        else:
            known = replace(known, revoked_at=change.at)
    tables.clients[change.client_id] = known


def close_without_model(tables: Tables, number: int, reason: str, closed_at: datetime) -> bool:
    """Abandon an open round; False if it is abandoned already."""
    row = tables.rounds[number]
    if row.state is RoundState.ABANDONED:
        return False
    require(row.state is not RoundState.COMPLETED, f"round {number} is completed")
    take_back_round(tables, number)
    _close(tables, number, state=RoundState.ABANDONED, closed_at=closed_at, reason=reason)
    return True


def take_back_round(tables: Tables, number: int) -> None:
    """Let no update of a round count, and set its clients' watermarks back."""
    for update in tables.of_round(number):
        _set_back(tables, number, update.client_id)
        tables.updates[number, update.client_id] = replace(update, covers_after=None, covers_through=None)


def open_next(tables: Tables, opening: RoundOpening) -> None:
    opened = {field.name: getattr(opening, field.name) for field in fields(opening)}
    known = tables.rounds.get(opening.number)
    if known is not None:
        same = all(getattr(known, key) == value for key, value in opened.items())
        require(same, f"round {opening.number} was opened before, differently")
        return
    require(not tables.open_rounds(), "uq_rounds_one_open")
    require(opening.number >= 1 and opening.base_version in tables.models, "fk_rounds_models")
    require(opening.closes_at >= opening.opened_at, "ck_rounds_closes_after_opened")
    require(0 <= opening.min_time_s <= opening.max_time_s, "ck_rounds_time_range")
    nothing: dict[str, Any] = dict.fromkeys(("closed_at", "reason", "n_updates", "n_interactions", "model_version"))
    tables.rounds[opening.number] = RoundRow(federation=NAME, state=RoundState.COLLECTING, **nothing, **opened)


def _require_collecting(tables: Tables, number: int) -> None:
    row = tables.rounds.get(number)
    require(row is not None and row.state is RoundState.COLLECTING, f"round {number} is not collecting")


def stop_collecting(tables: Tables, number: int) -> None:
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


class RoundStore(Transactions):
    """Rounds and what arrives in them, as `foltr.federator.store.FederationStore` has them."""

    def __init__(self, session: Session) -> None:
        super().__init__("the simulated database")
        self.session = session

    async def write(self, change: Callable[[Tables], Any], epoch: int | None = None) -> Any:
        """Change the database in one transaction, again while it is away."""

        async def once() -> Any:
            await self.session.before()
            result = self.session.store.transact(change, epoch)
            await self.session.after()
            return result

        return await self.make(once)

    async def read(self) -> Tables:
        """Wait for the database, again while it is away, and look at what is stored."""

        async def once() -> Tables:
            await self.session.before()
            return self.session.store.tables

        return await self.make(once)

    async def create_federation(
        self,
        n_features: int,
        ranker: str,
        initial_weights: bytes,
        now: datetime,
        *,
        selection_seed: bytes,
        aggregation_seed: bytes,
        pseudonym_key: bytes,
        method: str,
        hidden: int | None,
        activation: Activation | None = None,
        privacy: Privacy,
        schema_hash: bytes | None = None,
        first_model_is_chosen: bool = False,  # noqa: ARG002 (nothing here starts with one)
    ) -> None:
        def change(tables: Tables) -> None:
            if tables.federation is None:
                tables.federation = FederationRow(
                    name=NAME,
                    writer_epoch=0,
                    last_batch_id=None,
                    ranker=ranker,
                    n_features=n_features,
                    created_at=now,
                    selection_seed=selection_seed,
                    roster_version=0,
                    roster=None,
                    last_order=0,
                    method=method,
                    hidden=hidden,
                    activation=activation,
                    aggregation_seed=aggregation_seed,
                    pseudonym_key=pseudonym_key,
                    n_deletions=0,
                    n_purged=0,
                    privacy=privacy,
                    schema_hash=schema_hash,
                )
                tables.models[0] = ModelRow(
                    federation=NAME,
                    version=0,
                    base_version=None,
                    round=None,
                    n_values=len(initial_weights) // 4,
                    weights=initial_weights,
                    weights_hash=model_hash(initial_weights),
                    created_at=now,
                    published_at=None,
                )

        await self.write(change)

    async def claim_federation(self, at: float) -> int:
        def change(tables: Tables) -> int:
            epoch = max(federation_of(tables).writer_epoch + 1, int(at))
            tables.federation = replace(federation_of(tables), writer_epoch=epoch)
            return tables.federation.writer_epoch

        self.epoch = await self.write(change)
        self.session.pass_failpoint(Failpoint.FEDERATION_CLAIMED)
        return self.epoch

    async def require_writer(self) -> None:
        newest = federation_of(await self.read()).writer_epoch
        if newest != self.epoch:
            raise WriterFencedError(f"writer epoch {newest}, this federator holds {self.epoch}")

    async def get_federation(self) -> FederationRow | None:
        return (await self.read()).federation

    async def model_hashes(self, since: int) -> dict[int, bytes]:
        models = (await self.read()).models
        return {version: row.weights_hash for version, row in models.items() if version >= since}

    async def latest_model(self) -> ModelRow | None:
        models = (await self.read()).models
        return models[max(models)] if models else None

    async def commit_batch(self, batch: Batch) -> None:
        def change(tables: Tables) -> None:
            self.session.store.keys.seal(tables, batch.updates)
            store_batch(tables, batch)

        await self.write(change, self.epoch)

    async def find_updates(self, identities: Collection[tuple[str, str]]) -> dict[tuple[str, str], StoredUpdate]:
        tables = await self.read()
        known = {identity: tables.identities[identity] for identity in identities if identity in tables.identities}
        rows = {identity: tables.updates[number, identity[0]] for identity, number in known.items()}
        return {identity: StoredUpdate(row.round, row.covers_after is not None) for identity, row in rows.items()}

    async def find_orders(self, numbers: Collection[int]) -> dict[int, NewOrder]:
        known = (await self.read()).orders
        return {number: known[number] for number in numbers if number in known}

    async def standing_orders(self, after: int) -> list[NewOrder]:
        stored = self.session.store.tables
        # Where there are none it takes no time, as what only looks at erasures.
        tables = await self.read() if stored.orders else stored
        newest = federation_of(tables).last_order
        return [
            order
            for number, order in sorted(tables.orders.items())
            if number == newest or order.kind == "rotate_key" or (order.kind == "revoke_client" and number > after)
        ]

    async def load_clients(self) -> list[ClientRow]:
        return list((await self.read()).clients.values())

    async def forget_presence(self) -> None:
        def change(tables: Tables) -> None:
            tables.clients.update({name: replace(row, online=False) for name, row in tables.clients.items()})

        await self.write(change, self.epoch)

    async def open_round(self, opening: RoundOpening) -> None:
        await self.write(lambda tables: open_next(tables, opening), self.epoch)

    async def load_open_round(self) -> tuple[RoundRow, list[CountingUpdate]] | None:
        tables = await self.read()
        found = tables.open_rounds()
        if not found:
            return None
        rows = tables.of_round(found[0].number)
        return found[0], [CountingUpdate(row.client_id, row.update_id, row.covers_after or 0) for row in rows]

    async def latest_round(self) -> RoundRow | None:
        rounds = (await self.read()).rounds
        return rounds[max(rounds)] if rounds else None

    async def note_training(self, from_round: int, training: str) -> None:
        def change(tables: Tables) -> None:
            before = {first: noted for first, noted in tables.trainings.items() if first < from_round}
            is_new = not before or before[max(before)] != training
            tables.trainings = before | ({from_round: training} if is_new else {})

        await self.write(change, self.epoch)

    async def begin_aggregation(self, number: int) -> None:
        await self.write(lambda tables: stop_collecting(tables, number), self.epoch)

    async def load_updates(
        self, number: int, after: str, limit: int, *, readable_only: bool = False
    ) -> list[UpdateRow]:
        rows = [row for row in (await self.read()).of_round(number) if row.client_id.encode() > after.encode()]
        readable = [row for row in rows if row.body is not None and self.session.store.keys.opens(row)]
        if len(readable) < len(rows) and not readable_only:
            raise DataError(f"an update of round {number} was deleted when its round was thinned, or its key is gone")
        return readable[:limit]

    async def prepare_part(self, open_round: int, n_rounds: int, interval: int) -> int:  # noqa: ARG002 (as SQL has it)
        return INTEGER_MAX

    async def drop_old_part(
        self,
        before_round: int,
        interval: int,  # noqa: ARG002
        at: datetime,  # noqa: ARG002
        most_moved: int,  # noqa: ARG002
    ) -> DropStep:
        return DropStep(rows_before=before_round)

    async def delete_old_bodies(
        self, before_round: int, interval: int, *, first_round: int = 1, limit: int = 500
    ) -> RetentionStep:
        def change(tables: Tables) -> RetentionStep:
            rows = [row for row in tables.old_updates(first_round, before_round, interval) if row.body is not None]
            for row in rows[:limit]:
                tables.updates[row.round, row.client_id] = replace(row, body=None, cipher=None, ticket=None)
            return RetentionStep(len(rows[:limit]), before_round if len(rows) <= limit else rows[limit - 1].round)

        step: RetentionStep = await self.write(change, self.epoch)
        return step

    async def complete_round(
        self,
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
                federation=NAME,
                version=version,
                base_version=row.base_version,
                round=number,
                n_values=len(weights) // 4,
                weights=weights,
                weights_hash=model_hash(weights),
                created_at=closed_at,
                published_at=None,
                optimizer_state=model.optimizer_state,
                defence_state=model.defence_state,
                tainted_at=None if tables.models[row.base_version].tainted_at is None else closed_at,
            )
            note_events(tables, model.events)
            if version - 1 in tables.models and tables.models[version - 1].unlearning_job is None:
                tables.models[version - 1] = replace(tables.models[version - 1], defence_state=None)
            _close(tables, number, state=RoundState.COMPLETED, closed_at=closed_at, model_version=version)
            if next_opening is not None:
                open_next(tables, next_opening)

        await self.write(change, self.epoch)

    async def abandon_round(
        self,
        number: int,
        reason: str,
        closed_at: datetime,
        next_opening: RoundOpening | None = None,
        noted: Sequence[NewEvent] = (),
    ) -> None:
        def change(tables: Tables) -> None:
            if not close_without_model(tables, number, reason, closed_at):
                return
            note_events(tables, noted)
            if next_opening is not None:
                open_next(tables, next_opening)

        await self.write(change, self.epoch)
