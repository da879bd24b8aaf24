"""Erasures in the simulated database.

They are made as the rounds of `simulation.store`. While nobody was erased, those that only look take no time.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from simulation.changes import note_events, store_orders
from simulation.database import NAME, Tables, federation_of, require, row_of
from simulation.store import RoundStore, transaction

from foltr.core.erasure.audit import AuditEntry, next_entry
from foltr.core.erasure.digests import NOTHING_DIGESTED, digest_with
from foltr.core.erasure.states import ErasureState
from foltr.core.failpoints import Failpoint
from foltr.core.protocol.states import JobState, RoundState
from foltr.storage.erasure_records import ErasureOutcome, ErasureRequest, ErasureRow, Gathered, HeldReset, Sign
from foltr.storage.records import NewEvent


def _erase(tables: Tables, request: ErasureRequest) -> ErasureRow:
    client_id, pseudonym = request.client_id, request.pseudonym
    held = sorted((row for row in tables.updates.values() if row.client_id == client_id), key=lambda row: row.round)
    rounds = [tables.rounds[row.round] for row in held]
    require(
        all(row.state is not RoundState.AGGREGATING for row in rounds), f"{client_id} is in a round that is aggregating"
    )
    completed = [row for row in rounds if row.state is RoundState.COMPLETED]
    if completed:
        taint(tables, min(row.model_version for row in completed if row.model_version is not None), request.erased_at)
    digest = digest_with(NOTHING_DIGESTED, (row.body for row in reversed(held)))
    for row in held:
        del tables.updates[row.round, client_id], tables.identities[client_id, row.update_id]
    kept = tuple(event for event in tables.events if event.client_id != client_id)
    n_events = len(tables.events) - len(kept)
    tables.events = kept
    tables.clients.pop(client_id, None)
    counts = {"n_rounds": len(completed), "n_updates": len(held), "n_events": n_events, "erased_digest": digest}
    erased = row_of(
        ErasureRow,
        request,
        federation=NAME,
        state=ErasureState.ERASED,
        first_round=completed[0].number if completed else None,
        key_destroyed=False,
        told=False,
        **counts,
    )
    put_erasure(tables, erased)
    body = {
        "pseudonym": pseudonym,
        "requested_by": request.requested_by,
        "requested_at": request.requested_at.isoformat(),
        **counts,
    }
    append_audit(tables, request.erased_at, "client_erased", body)
    return erased


def taint(tables: Tables, first: int, at: datetime) -> None:
    """Watermark the models from this version on: an erased client is in them."""
    for version, model in tables.models.items():
        if version >= first and model.tainted_at is None:
            tables.models[version] = replace(model, tainted_at=at)


def finish_erasure(tables: Tables, row: ErasureRow, outcome: ErasureOutcome, sign: Sign) -> ErasureRow:
    body = {
        "pseudonym": row.pseudonym,
        "strategy": outcome.strategy,
        "rounds_replayed": outcome.rounds_replayed,
        "model_before": outcome.model_before,
        "model_after": outcome.model_after,
        "models_withdrawn": outcome.models_withdrawn,
        "key_destroyed": row.key_destroyed,
    }
    entry = append_audit(tables, outcome.completed_at, "erasure_completed", body)
    row = replace(
        row,
        state=ErasureState.DONE,
        completed_at=outcome.completed_at,
        audit_seq=entry.seq,
        client_id=None if row.told else row.client_id,
    )
    return put_erasure(tables, replace(row, receipt=sign(row, outcome, entry)))


def count_deletion(tables: Tables) -> None:
    federation = federation_of(tables)
    tables.federation = replace(federation, n_deletions=federation.n_deletions + 1)


def those(tables: Tables, are: Callable[[ErasureRow], bool]) -> list[ErasureRow]:
    rows = [row for row in tables.erasures.values() if are(row)]
    return sorted(rows, key=lambda row: (row.erased_at, row.pseudonym))


def _late(tables: Tables, requested_before: datetime) -> list[ErasureRow]:
    waiting = those(tables, lambda row: row.overdue_at is None and row.state is not ErasureState.DONE)
    return [row for row in waiting if row.requested_at < requested_before]


def append_audit(tables: Tables, at: datetime, kind: str, body: dict[str, Any]) -> AuditEntry:
    entry = next_entry(tables.audit[-1] if tables.audit else None, at, kind, body)
    tables.audit += (entry,)
    return entry


def put_erasure(tables: Tables, row: ErasureRow) -> ErasureRow:
    done = row.state is ErasureState.DONE
    require(len(row.pseudonym) == 32, "ck_erasures_pseudonym_length")
    require(row.n_updates >= row.n_rounds >= 0, "ck_erasures_counts")
    require((row.n_rounds == 0) == (row.first_round is None), "ck_erasures_first_round_iff_in_models")
    require(done == (row.completed_at is not None), "ck_erasures_completed_at_iff_done")
    require(done == (row.audit_seq is not None), "ck_erasures_audit_seq_iff_done")
    require(done or row.receipt is None, "ck_erasures_receipt_only_done")
    require(row.state is not ErasureState.UNLEARNING or row.job in tables.jobs, "ck_erasures_unlearning_in_a_job")
    known = tables.erasures.get(row.pseudonym)
    if known is not None and known.client_id is not None and row.client_id is None:
        count_deletion(tables)
    tables.erasures[row.pseudonym] = row
    return row


class ErasureStore(RoundStore):
    """Erasures, as `foltr.federator.store.FederationStore` has them."""

    async def look(self) -> Tables:
        """Look at what is stored; while nobody was erased it takes no time."""
        stored = self.session.store.tables
        return await self.read() if stored.erasures else stored

    @transaction
    def erase_client(self, tables: Tables, request: ErasureRequest) -> ErasureRow:
        store_orders(tables, [] if request.order is None else [request.order])
        known = tables.erasures.get(request.pseudonym)
        if known is not None:
            return known
        row = _erase(tables, request)
        tables.orders = {
            number: order.naming_nobody() if order.client_id == request.client_id else order
            for number, order in tables.orders.items()
        }
        count_deletion(tables)
        self.session.pass_failpoint(Failpoint.IN_ERASURE_TRANSACTION)
        return row

    async def erase_more(self, pseudonym: str, at: datetime) -> ErasureRow:
        """Its rows went all at once, with `erase_client`."""
        row = (await self.read()).erasures[pseudonym]
        require(row.state is not ErasureState.ERASING, f"{pseudonym} is being erased until {at}")
        return row

    async def find_erasure(self, pseudonym: str) -> ErasureRow | None:
        return (await self.look()).erasures.get(pseudonym)

    async def is_named(self, client_id: str) -> bool:
        tables = await self.read()
        rows = (*tables.events, *tables.orders.values())
        return client_id not in tables.clients and any(row.client_id == client_id for row in rows)

    async def waiting_erasures(self) -> list[ErasureRow]:
        return those(await self.look(), lambda row: row.state is ErasureState.WAITING)

    async def gathered(self) -> Gathered:
        tables = await self.look()
        requested = [row.requested_at for row in tables.erasures.values() if row.state is ErasureState.WAITING]
        swapped = [job.closed_at for job in tables.jobs.values() if job.closed_at and job.state is JobState.DONE]
        return Gathered(len(requested), min(requested, default=None), max(swapped, default=None))

    async def note_overdue(self, requested_before: datetime, at: datetime) -> int:
        is_any_late = _late(await self.look(), requested_before)
        return await self._note_overdue(requested_before, at) if is_any_late else 0

    @transaction
    def _note_overdue(self, tables: Tables, requested_before: datetime, at: datetime) -> int:
        late = _late(tables, requested_before)
        for row in late:
            put_erasure(tables, replace(row, overdue_at=at))
        detail = f"{len(late)} erasures that were asked for before {requested_before:%Y-%m-%d %H:%M} are not done"
        note_events(tables, [NewEvent(at, "erasure_overdue", detail)])
        return len(late)

    @transaction
    def hold_reset(self, tables: Tables, job: int, at: datetime) -> HeldReset | None:
        if job in tables.resets:
            return tables.resets[job]
        lost = [key for key in tables.updates if tables.rounds[key[0]].state is RoundState.COMPLETED]
        if not lost:
            return None
        numbers, clients = zip(*lost, strict=True)
        held = HeldReset(job, at, min(numbers), max(numbers), len(lost), len(set(clients)))
        tables.resets[job] = held
        note_events(tables, [NewEvent(at, "unlearning_approval_required", held.cost)])
        return held

    async def find_reset(self, job: int) -> HeldReset | None:
        return (await self.look()).resets.get(job)

    async def unfinished_erasures(self) -> list[ErasureRow]:
        return those(
            await self.look(),
            lambda row: row.state is ErasureState.ERASED or (not row.told and row.client_id is not None),
        )

    async def forgotten_pseudonyms(self) -> set[str]:
        return set((await self.look()).erasures)

    @transaction
    def note_key_destroyed(self, tables: Tables, pseudonym: str, *, destroyed: bool = True) -> ErasureRow:
        row = tables.erasures[pseudonym]
        row = replace(row, key_destroyed=row.key_destroyed or destroyed)
        if row.state is ErasureState.ERASED and row.first_round is not None:
            row = replace(row, state=ErasureState.WAITING, client_id=None if row.told else row.client_id)
        return put_erasure(tables, row)

    @transaction
    def note_told(self, tables: Tables, pseudonym: str) -> None:
        row = tables.erasures[pseudonym]
        put_erasure(
            tables, replace(row, told=True, client_id=row.client_id if row.state is ErasureState.ERASED else None)
        )

    async def drop_untold_names(self, erased_before: datetime) -> int:
        return await self._drop_untold_names(erased_before) if self.session.store.tables.erasures else 0

    @transaction
    def _drop_untold_names(self, tables: Tables, erased_before: datetime) -> int:
        named = those(tables, lambda row: row.client_id is not None and row.state is not ErasureState.ERASED)
        dropped = [row for row in named if row.erased_at < erased_before]
        for row in dropped:
            tables.erasures[row.pseudonym] = replace(row, client_id=None)
        if dropped:
            count_deletion(tables)
        return len(dropped)

    @transaction
    def complete_erasure(self, tables: Tables, pseudonym: str, completed_at: datetime, sign: Sign) -> ErasureRow:
        row = tables.erasures[pseudonym]
        if row.state is ErasureState.DONE:
            return row
        require(row.first_round is None, f"erasure {pseudonym} has {row.n_rounds} rounds to unlearn")
        return finish_erasure(tables, row, ErasureOutcome("none", completed_at), sign)

    async def audit_entry(self, seq: int | None = None) -> AuditEntry | None:
        audit = (await self.look()).audit
        of_number = [entry for entry in audit if seq is None or entry.seq == seq]
        return of_number[-1] if of_number else None

    async def deletions_to_purge(self) -> int | None:
        federation = federation_of(await self.look())
        return federation.n_deletions if federation.n_purged < federation.n_deletions else None

    @transaction
    def note_purge(self, tables: Tables, n_deletions: int) -> None:
        require(0 <= n_deletions <= tables.n_deletions, "ck_federations_n_purged")
        tables.federation = replace(federation_of(tables), n_purged=n_deletions)

    async def destroy_key(self, client_id: str, fingerprint: bytes | None) -> bool:  # noqa: ARG002 (nothing is sealed here)
        return self.session.store.keys.destroy(client_id)

    async def purge(self) -> bool:
        return await self.session.purge()
