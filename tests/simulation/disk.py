"""A device's disk: the real `DeviceStore`, in memory. It survives a crash of the process, and may be full or lost.

What thousands of worlds would do again and again for nothing is done once: a new disk is a copy of an empty one, and
what was read is read again only after a row has changed.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from foltr.core.erasure.states import ForgetState
from foltr.core.errors import DataError
from foltr.edge_client.store.bounds import PendingUpdate, Settlement
from foltr.edge_client.store.interaction_rows import trim_kept
from foltr.edge_client.store.ledger import LedgerEntry
from foltr.edge_client.store.store import DeviceStore, Interaction

if TYPE_CHECKING:
    from simulation.judge_clicks import ClickJudge

T = TypeVar("T")


class Gone(StrEnum):
    """Why a click is on its device no more, and so in no update if it is in none yet."""

    DROPPED = "it made room for newer ones"
    NOT_KEPT = "it counted once, and was not kept until its update was taken back"
    STORE_LOST = "the device lost its store"
    FORGOTTEN = "its device was forgotten, and deleted what it had"
    NUMBER_TAKEN = "it had the number of a click that was lost with an older store, and that counts"


class DeviceDisk(DeviceStore):
    """One device's store; a click is known by its list, whatever its number is.

    Attributes:
        n_failures_due: so many of the next transactions fail.
        has_wish: the user's wish to be forgotten is on this disk, whatever the program makes of it.
    """

    def __init__(self, client_id: str, clicks: "ClickJudge", *, max_interactions: int, max_kept: int) -> None:
        self.n_failures_due = 0
        self._clicks = clicks
        self._client_id = client_id
        self._was_read: dict[tuple[object, ...], Any] = {}
        self._n_changes = 0  # when it was read
        self.has_wish = False
        self._make: Callable[[], None] = lambda: super(DeviceDisk, self).__init__(
            ":memory:", client_id=client_id, federation="sim", max_interactions=max_interactions, max_kept=max_kept
        )
        self._make()

    def _prepare(self, owner: tuple[str, str] | None) -> None:
        self._was_read.clear()
        _empty_store(self._client_id).copy_to(self._db)
        super()._prepare(owner)

    def transaction(self, *, is_synced: bool = True) -> AbstractContextManager[sqlite3.Cursor]:
        if self.n_failures_due:
            self.n_failures_due -= 1
            raise DataError("the disk is full")
        return super().transaction(is_synced=is_synced)

    def close(self) -> None:
        """Stay: the process ends, and the disk does not."""

    def crash(self) -> None:
        """Keep what is written; what was to be written with the next change ends with the process."""
        self._unsaved.clear()

    def lose(self) -> None:
        """Become another disk, with nothing of the old one on it."""
        for click in self.numbers():
            self._clicks.on_gone(click, Gone.STORE_LOST)
        n_failures, self.n_failures_due = self.n_failures_due, 0
        super().close()
        self.has_wish = False
        self._make()
        self.n_failures_due = n_failures

    def forget(self) -> None:
        with self._noting(Gone.FORGOTTEN):
            super().forget()

    def put_forget_state(self, state: ForgetState | None) -> None:
        super().put_forget_state(state)
        self.has_wish = state is not None

    def keep_nothing(self) -> None:
        """Have nothing to learn from again, from now on."""
        self._max_kept = 0
        if not self.forgotten:
            with self._noting(Gone.NOT_KEPT), super().transaction() as cursor:
                trim_kept(cursor, self.watermark() or 0, 0)

    def make_room(self) -> None:
        """Drop no click any more, from now on: not even where an update that counts by now fills the disk."""
        self._max_interactions = 10_000

    def numbers(self) -> dict[str, int]:
        """Return the clicks on the disk, with the numbers they have now."""
        return self._read(self._numbers)

    def _numbers(self) -> dict[str, int]:
        return dict(self.rows("SELECT serp_id, id FROM interactions ORDER BY id"))

    def waiting_interactions(self, limit: int, above: int = 0) -> list[Interaction]:
        return self._read(super().waiting_interactions, limit, above)

    def put_model(self, announcement: bytes) -> None:
        """Keep a model, and all that was read: a model is no part of any of it."""
        is_current = self._n_changes == self._db.total_changes
        super().put_model(announcement)
        if is_current:
            self._n_changes = self._db.total_changes

    def _read(self, read: Callable[..., T], *args: Any) -> T:
        if self._n_changes != self._db.total_changes:
            self._n_changes = self._db.total_changes
            self._was_read.clear()
        key = (read.__name__, *args)
        if key not in self._was_read:
            self._was_read[key] = read(*args)
        return self._was_read[key]  # type: ignore[no-any-return]

    def add_interaction(self, serp_id: str, *args: Any, **more: Any) -> Interaction | None:
        with self._noting(Gone.DROPPED):
            added = super().add_interaction(serp_id, *args, **more)
        if added is not None:
            self._clicks.on_recorded(self._client_id, serp_id)
            if serp_id not in self.numbers():
                self._clicks.on_gone(serp_id, Gone.DROPPED)  # all the room is the pending update's
        return added

    def put_update(
        self,
        update: PendingUpdate,
        interaction_ids: Sequence[int],
        *,
        spent: bool = False,
        charged: LedgerEntry | None = None,
    ) -> None:
        clicks = {number: click for click, number in self.numbers().items()}
        super().put_update(update, interaction_ids, spent=spent, charged=charged)
        self._clicks.on_made(update, [clicks[number] for number in interaction_ids])

    def settle(self, watermark: int, *more: Any) -> Settlement:
        with self._noting(Gone.NOT_KEPT):
            return super().settle(watermark, *more)

    @contextmanager
    def _noting(self, why: Gone) -> Iterator[None]:
        before = self.numbers()
        yield
        for click in before.keys() - self.numbers().keys():
            self._clicks.on_gone(click, why)


class _EmptyStore(DeviceStore):
    def copy_to(self, database: sqlite3.Connection) -> None:
        self._db.backup(database)


@cache
def _empty_store(client_id: str) -> _EmptyStore:
    return _EmptyStore(":memory:", client_id=client_id, federation="sim", max_interactions=1)
