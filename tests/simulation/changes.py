"""What a transaction changes in the simulated tables, and the constraints SQL has."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from simulation.database import NAME, Tables, federation_of, is_made_of, require, row_of

from foltr.core.errors import ProtocolViolationError
from foltr.core.protocol.fields import model_hash
from foltr.core.protocol.states import OPEN_ROUND, Membership, OrderOutcome, RoundState
from foltr.storage.records import (
    Batch,
    ClientRow,
    DeadlineChange,
    MembershipChange,
    ModelRow,
    NewEvent,
    NewOrder,
    NewUpdate,
    QuarantineChange,
    RoundOpening,
    RoundRow,
    UpdateRow,
)


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
    tables.updates[new.round, new.client_id] = row_of(UpdateRow, new, federation=NAME, n_bytes=len(new.body), cipher="")


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
        has_joined_at = known is not None and known.membership is Membership.JOINED
        stays = ("counted_through", "quarantined_at", "quarantine_reason")
        tables.clients[change.client_id] = row_of(
            ClientRow,
            change,
            federation=NAME,
            membership=Membership.JOINED,
            joined_at=known.joined_at if has_joined_at else change.at,
            last_seen_at=change.at,
            membership_sequence=change.sequence,
            **({} if known is None else {name: getattr(known, name) for name in stays}),
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


def add_model(tables: Tables, version: int, weights: bytes, at: datetime, **more: Any) -> None:
    require(version not in tables.models, "pk_models")
    made = {"n_values": len(weights) // 4, "weights_hash": model_hash(weights), "created_at": at}
    tables.models[version] = row_of(ModelRow, federation=NAME, version=version, weights=weights, **made, **more)


def close_without_model(tables: Tables, number: int, reason: str, closed_at: datetime) -> bool:
    """Abandon an open round; False if it is abandoned already."""
    row = tables.rounds[number]
    if row.state is RoundState.ABANDONED:
        return False
    require(row.state is not RoundState.COMPLETED, f"round {number} is completed")
    take_back_round(tables, number)
    close(tables, number, state=RoundState.ABANDONED, closed_at=closed_at, reason=reason)
    return True


def take_back_round(tables: Tables, number: int) -> None:
    """Let no update of a round count, and set its clients' watermarks back."""
    for update in tables.of_round(number):
        _set_back(tables, number, update.client_id)
        tables.updates[number, update.client_id] = replace(update, covers_after=None, covers_through=None)


def open_next(tables: Tables, opening: RoundOpening) -> None:
    known = tables.rounds.get(opening.number)
    if known is not None:
        require(is_made_of(known, opening), f"round {opening.number} was opened before, differently")
        return
    require(not tables.open_rounds(), "uq_rounds_one_open")
    require(opening.number >= 1 and opening.base_version in tables.models, "fk_rounds_models")
    require(opening.closes_at >= opening.opened_at, "ck_rounds_closes_after_opened")
    require(0 <= opening.min_time_s <= opening.max_time_s, "ck_rounds_time_range")
    tables.rounds[opening.number] = row_of(RoundRow, opening, federation=NAME, state=RoundState.COLLECTING)


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


def close(tables: Tables, number: int, **outcome: Any) -> None:
    rows = tables.of_round(number)
    tables.rounds[number] = replace(
        tables.rounds[number], n_updates=len(rows), n_interactions=sum(row.n_interactions for row in rows), **outcome
    )
