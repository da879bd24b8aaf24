"""What a federator stores of rounds in the simulated database.

A method of the stores is one transaction: it happens after a while, and now and then its answer is lost on the way, or
the database is away.
"""

from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial, wraps
from typing import Any, TypeVar

from simulation import changes
from simulation.database import NAME, Tables, federation_of, require, row_of

from foltr.core.errors import DataError
from foltr.core.failpoints import Failpoint
from foltr.core.protocol.states import RoundState
from foltr.federator.store import Transactions
from foltr.storage.body_parts import DropStep
from foltr.storage.errors import WriterFencedError
from foltr.storage.records import (
    Batch,
    ClientRow,
    CountingUpdate,
    FederationRow,
    ModelRow,
    NewEvent,
    NewModel,
    NewOrder,
    RoundOpening,
    RoundRow,
    StoredUpdate,
    UpdateRow,
)
from foltr.storage.retention import RetentionStep
from foltr.storage.schema import INTEGER_MAX

T = TypeVar("T")


def transaction(change: Callable[..., T], *, claims: bool = True) -> Callable[..., Coroutine[Any, Any, T]]:
    """Make the method for a change of the tables: one transaction under the store's claim, again while it is away."""

    @wraps(change)
    async def method(self: "RoundStore", *given: Any, **named: Any) -> T:
        async def once() -> T:
            await self.session.before()
            epoch = self.epoch if claims else None
            result = self.session.store.transact(lambda tables: change(self, tables, *given, **named), epoch)
            self.on_committed(change.__name__.lstrip("_"), given, named)
            await self.session.after()
            return result

        return await self.make(once)

    return method


class RoundStore(Transactions):
    """Rounds and what arrives in them, as `foltr.federator.store.FederationStore` has them.

    Attributes:
        on_committed: hears the name of each transaction and what it was given, even if its caller hears nothing.
    """

    def __init__(self, session: Any) -> None:
        super().__init__("the simulated database")
        self.session = session
        self.on_committed: Callable[..., None] = lambda *_: None

    async def read(self) -> Tables:
        """Wait for the database, again while it is away, and look at what is stored."""

        async def once() -> Tables:
            await self.session.before()
            return self.session.store.tables

        return await self.make(once)

    @partial(transaction, claims=False)
    def create_federation(
        self,
        tables: Tables,
        n_features: int,
        ranker: str,
        initial_weights: bytes,
        now: datetime,
        *,
        first_model_is_chosen: bool = False,  # noqa: ARG002 (nothing here starts with one)
        **founded: Any,
    ) -> None:
        if tables.federation is None:
            begun = dict.fromkeys(("writer_epoch", "roster_version", "last_order", "n_deletions", "n_purged"), 0)
            known = {"ranker": ranker, "n_features": n_features, "created_at": now}
            tables.federation = row_of(FederationRow, name=NAME, **begun, **known, **founded)
            changes.add_model(tables, 0, initial_weights, now)

    @partial(transaction, claims=False)
    def _claim_federation(self, tables: Tables, at: float) -> int:
        epoch = max(federation_of(tables).writer_epoch + 1, int(at))
        tables.federation = replace(federation_of(tables), writer_epoch=epoch)
        return epoch

    async def claim_federation(self, at: float) -> int:
        self.epoch = await self._claim_federation(at)
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

    @transaction
    def commit_batch(self, tables: Tables, batch: Batch) -> None:
        self.session.store.keys.seal(tables, batch.updates)
        changes.store_batch(tables, batch)

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
        # Without orders it takes no time, just like questions about erasures.
        tables = await self.read() if stored.orders else stored
        newest = federation_of(tables).last_order
        return [
            order
            for number, order in sorted(tables.orders.items())
            if number == newest or order.kind == "rotate_key" or (order.kind == "revoke_client" and number > after)
        ]

    async def load_clients(self) -> list[ClientRow]:
        return list((await self.read()).clients.values())

    @transaction
    def forget_presence(self, tables: Tables) -> None:
        tables.clients.update({name: replace(row, online=False) for name, row in tables.clients.items()})

    @transaction
    def open_round(self, tables: Tables, opening: RoundOpening) -> None:
        changes.open_next(tables, opening)

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

    @transaction
    def note_training(self, tables: Tables, from_round: int, training: str) -> None:
        before = {first: noted for first, noted in tables.trainings.items() if first < from_round}
        is_new = not before or before[max(before)] != training
        tables.trainings = before | ({from_round: training} if is_new else {})

    @transaction
    def begin_aggregation(self, tables: Tables, number: int) -> None:
        changes.stop_collecting(tables, number)

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

    @transaction
    def delete_old_bodies(
        self, tables: Tables, before_round: int, interval: int, *, first_round: int = 1, limit: int = 500
    ) -> RetentionStep:
        rows = [row for row in tables.old_updates(first_round, before_round, interval) if row.body is not None]
        for row in rows[:limit]:
            tables.updates[row.round, row.client_id] = replace(row, body=None, cipher=None, ticket=None)
        return RetentionStep(len(rows[:limit]), before_round if len(rows) <= limit else rows[limit - 1].round)

    @transaction
    def complete_round(
        self,
        tables: Tables,
        number: int,
        model: NewModel,
        closed_at: datetime,
        next_opening: RoundOpening | None = None,
    ) -> None:
        row, version = tables.rounds[number], model.version
        if row.state is RoundState.COMPLETED and row.model_version == version:
            return
        require(row.state is RoundState.AGGREGATING, f"round {number} is {row.state}, not aggregating")
        require(row.base_version < version, "ck_models_base_version_before_version")
        changes.add_model(
            tables,
            version,
            model.weights,
            closed_at,
            base_version=row.base_version,
            round=number,
            optimizer_state=model.optimizer_state,
            defence_state=model.defence_state,
            tainted_at=None if tables.models[row.base_version].tainted_at is None else closed_at,
        )
        changes.note_events(tables, model.events)
        if version - 1 in tables.models and tables.models[version - 1].unlearning_job is None:
            tables.models[version - 1] = replace(tables.models[version - 1], defence_state=None)
        changes.close(tables, number, state=RoundState.COMPLETED, closed_at=closed_at, model_version=version)
        if next_opening is not None:
            changes.open_next(tables, next_opening)

    @transaction
    def abandon_round(
        self,
        tables: Tables,
        number: int,
        reason: str,
        closed_at: datetime,
        next_opening: RoundOpening | None = None,
        noted: Sequence[NewEvent] = (),
    ) -> None:
        if not changes.close_without_model(tables, number, reason, closed_at):
            return
        changes.note_events(tables, noted)
        if next_opening is not None:
            changes.open_next(tables, next_opening)
