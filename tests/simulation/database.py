"""The database, in dicts: what is stored, and one transaction at a time that happens as a whole or not at all."""

from collections.abc import Callable, Collection
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, TypeVar

from foltr.core.erasure.audit import AuditEntry
from foltr.core.errors import ProtocolViolationError, SettingsError
from foltr.core.failpoints import Failpoint
from foltr.core.protocol.states import OPEN_ROUND, RoundState
from foltr.storage.erasure_records import ErasureRow, HeldReset, UnlearningJobRow
from foltr.storage.errors import WriterFencedError
from foltr.storage.records import ClientRow, FederationRow, ModelRow, NewEvent, NewOrder, NewUpdate, RoundRow, UpdateRow

NAME = "sim"
Row = TypeVar("Row")


def row_of(kind: type[Row], source: object = None, **known: Any) -> Row:
    """Make a row: what is not known is as in ``source``, else as its type has it, else None."""
    usual = {
        column.name: getattr(source, column.name, None)
        for column in fields(kind)  # type: ignore[arg-type]
        if hasattr(source, column.name) or column.default is MISSING
    }
    return kind(**(usual | known))


def is_made_of(row: object, new: object, *but: str) -> bool:
    """Whether a row says all that ``new`` does, leaving out these columns."""
    return all(getattr(row, name) == getattr(new, name) for name in {one.name for one in fields(new)}.difference(but))  # type: ignore[arg-type]


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
    resets: dict[int, HeldReset] = field(default_factory=dict)
    audit: tuple[AuditEntry, ...] = ()
    orders: dict[int, NewOrder] = field(default_factory=dict)
    trainings: dict[int, str] = field(default_factory=dict)  # JSON, by their first rounds

    def copy(self) -> "Tables":
        return Tables(**{name: dict(rows) if isinstance(rows, dict) else rows for name, rows in vars(self).items()})

    @property
    def n_deletions(self) -> int:
        return 0 if self.federation is None else self.federation.n_deletions

    def stored(self, client_id: str, update_id: str) -> UpdateRow | None:
        """The row of an update, if it is stored."""
        number = self.identities.get((client_id, update_id))
        return None if number is None else self.updates[number, client_id]

    def open_rounds(self) -> list[RoundRow]:
        return [row for row in self.rounds.values() if row.state in OPEN_ROUND]

    def of_round(self, number: int) -> list[UpdateRow]:
        """The updates of a round in byte order of client_id."""
        rows = [row for (round_, _), row in self.updates.items() if round_ == number]
        return sorted(rows, key=lambda row: row.client_id.encode())

    def old_updates(self, first: int, before: int, interval: int) -> list[UpdateRow]:
        """The updates of closed rounds that no unlearning job replays."""
        rounds = [row for number, row in sorted(self.rounds.items()) if first <= number < before]
        closed = [row for row in rounds if row.closed_at is not None]
        kept = {row.number for row in closed if row.state is RoundState.COMPLETED and (row.number - 1) % interval == 0}
        return [update for row in closed if row.number not in kept for update in self.of_round(row.number)]


class KeyFolder:
    """The data keys of clients, which lie beside the database: what is restored is the database alone."""

    def __init__(self) -> None:
        self._keys: dict[str, int] = {}
        self._sealed_with: dict[tuple[str, str], int] = {}  # by client_id and update_id
        self._ensured: set[str] = set()
        self._n_made = 0

    def __contains__(self, client_id: str) -> bool:
        return client_id in self._keys

    def seal(self, tables: Tables, new: Collection[NewUpdate]) -> None:
        """Seal updates. SettingsError: a client has stored ones that no key of it opens."""
        self._ensure(tables, {update.client_id for update in new} - self._ensured)
        self._sealed_with |= {(update.client_id, update.update_id): self._keys[update.client_id] for update in new}

    def _ensure(self, tables: Tables, missing: Collection[str]) -> None:
        for row in tables.updates.values() if missing else ():
            if row.client_id in missing and row.body is not None and not self.opens(row):
                raise SettingsError(f"stored updates of {row.client_id} are encrypted, but its data key is missing")
        for client_id in sorted(missing):
            if client_id not in self._keys:
                self._n_made += 1
                self._keys[client_id] = self._n_made
        self._ensured.update(missing)

    def opens(self, row: UpdateRow) -> bool:
        return self._keys.get(row.client_id) == self._sealed_with[row.client_id, row.update_id]

    def destroy(self, client_id: str) -> bool:
        """Destroy a client's key; False if there is none."""
        self._ensured.discard(client_id)
        return self._keys.pop(client_id, None) is not None

    def clear_cache(self) -> None:
        """Be sure of no key: another database lies beside them."""
        self._ensured.clear()


class SimulatedStore:
    """The tables, and who looks at every commit.

    Attributes:
        unpurged: bytes of what was deleted may be left in the file.
    """

    def __init__(self, on_commit: Callable[[Tables, Tables], None]) -> None:
        self.tables = Tables()
        self.copies: list[Tables] = []
        self.keys = KeyFolder()
        self.unpurged = False
        self._on_commit = on_commit

    def order_outcome(self, number: int) -> tuple[str, bytes] | None:
        """What became of an order that is stored, and its digest."""
        order = self.tables.orders.get(number)
        return None if order is None else (str(order.outcome), order.digest)

    def transact(self, change: Callable[[Tables], Any], epoch: int | None) -> Any:
        after = self.tables.copy()
        if epoch is not None and (after.federation is None or after.federation.writer_epoch != epoch):
            raise WriterFencedError(f"epoch {epoch} is over")
        result = change(after)
        before, self.tables = self.tables, after
        if federation_of(after).writer_epoch and after.rounds:
            self.copies.append(after)  # a backup may be made at any time
        if before.n_deletions != after.n_deletions:
            self.unpurged = True
        self._on_commit(before, after)
        return result

    def restore(self, amount: float) -> Tables:
        """Put an older copy in the place of what is stored; return it."""
        if self.copies:
            self.tables = self.copies[int(amount * len(self.copies)) % len(self.copies)]
            self.keys.clear_cache()
            federation = federation_of(self.tables)
            self.unpurged = federation.n_purged < federation.n_deletions
        return self.tables

    def enter_epoch(self, epoch: int) -> None:
        """As an operator does by hand."""

        def change(tables: Tables) -> None:
            tables.federation = replace(federation_of(tables), writer_epoch=epoch)

        self.transact(change, None)


def require(condition: bool, constraint: str) -> None:
    if not condition:
        raise ProtocolViolationError(f"constraint {constraint}")


def federation_of(tables: Tables) -> FederationRow:
    if tables.federation is None:
        raise ProtocolViolationError("no such federation")
    return tables.federation


class QuietSession:
    """One process's connection to the database; nothing happens to this one."""

    def __init__(self, store: SimulatedStore) -> None:
        self.store = store

    async def before(self) -> None:
        """Time passes before the transaction; OSError: the database is away."""

    async def after(self) -> None:
        """Time passes after it; OSError: it is committed, and its answer was lost."""

    def pass_failpoint(self, _name: Failpoint) -> None:
        """The process may end here, before what it does is committed."""

    async def purge(self) -> bool:
        """Leave no bytes of what was deleted; False: do it again."""
        self.store.unpurged = False
        return True


def quiet_database() -> SimulatedStore:
    """Make a database whose commits nobody looks at."""
    return SimulatedStore(lambda _before, _after: None)
