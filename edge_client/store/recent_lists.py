"""A device keeps the lists that it has shown lately, so that their clicks can be recorded by id, also after a restart.

A list is written within about a second after it was shown, not at once: ranking waits for no disk. If several processes
share the store, it is in the file before it is shown: a click may come to another process when this one was killed. A
list that nobody has clicked on is kept for a day, and only if it is one of the newest. Once recorded, a list is an
interaction (`foltr.edge_client.store.store`), which no bound of this table removes; the row here has its clicks, so
that a repetition is recognised and later clicks are added.
"""

import sqlite3
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from foltr.core.errors import DataError, UsageError
from foltr.core.learning.gate import Source
from foltr.core.logs import get_logger
from foltr.edge_client.serp import Serp

log = get_logger(__name__)

KEPT_LISTS: Final = 1000
SAVED_WITHIN_S: Final = 1.0
KEPT_S: Final = 24 * 3600.0

Schedule = Callable[[Callable[[], None]], None]
"""Has work done after `SAVED_WITHIN_S`, perhaps in another thread."""


class StoreOfLists(Protocol):
    """What this needs of the device's store."""

    schema_hash: bytes | None
    forgotten: bool

    def rows(self, query: str, parameters: tuple[int | str | bytes, ...] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""

    def transaction(self, *, is_synced: bool = True) -> AbstractContextManager[sqlite3.Cursor]:
        """Run a transaction."""


class Recorded(NamedTuple):
    """What was recorded of a list so far.

    Attributes:
        clicks: (shown,) bool.
        nth: which of its source's lists it was for the gate, from 1; None if no gate has judged it.
    """

    clicks: npt.NDArray[np.bool_]
    nth: int | None


class RecentList(NamedTuple):
    """A list that may get clicks, and what was recorded of it before; None for its first clicks."""

    serp: Serp
    before: Recorded | None


class RecentLists:
    """The newest lists of one device; any thread may call it.

    Args:
        most: how many are kept.

    Attributes:
        schedule: has new lists saved; None: with `save`, at the latest when the store is closed.
        n_features: of the application's lists; None if it did not say.
        is_shared: other processes show and record lists, too.
    """

    def __init__(self, store: StoreOfLists, most: int) -> None:
        self._store = store
        self._most = most
        self.schedule: Schedule | None = None
        self.n_features: int | None = None
        self.is_shared = False
        self._lock = threading.Lock()
        self._unsaved: OrderedDict[str, tuple[Serp, float]] = OrderedDict()
        # Made here and not recorded yet: an application may hold such a list for longer than it is kept here.
        self._fresh: weakref.WeakSet[Serp] = weakref.WeakSet()
        self._is_scheduled = False

    def remember(self, serp: Serp) -> None:
        """Keep a list that is about to be shown; it is saved soon, or at once if the store is shared."""
        with self._lock:
            self._fresh.add(serp)
            self._unsaved[serp.serp_id] = serp, time.time()
            if len(self._unsaved) > self._most:
                self._unsaved.popitem(last=False)
            is_due = self.schedule is not None and not self._is_scheduled
            self._is_scheduled |= is_due
        if is_due and self.schedule is not None:
            self.schedule(self.save)
        if self.is_shared:
            self._write(is_synced=False)

    def find(self, shown: Serp | str) -> RecentList:
        """Return a list, given as it was made or by its id.

        Raises:
            DataError: it is not kept: another ranker's, or too old; or of other features than the application's.
        """
        if not isinstance(shown, Serp | str):
            raise DataError(f"serp: expected what `rank` returned, or its serp_id, got {type(shown).__name__}")
        serp_id = shown if isinstance(shown, str) else shown.serp_id
        with self._lock:
            unsaved = self._unsaved.get(serp_id)
            is_fresh = isinstance(shown, Serp) and shown in self._fresh
        found = self._stored(serp_id) if unsaved is None else RecentList(unsaved[0], None)
        if isinstance(shown, Serp) and (found is not None or is_fresh):
            found = RecentList(shown, None if found is None else found.before)
        if found is None:
            raise DataError(
                f"serp: no list {serp_id!r:.40} is known: it was never stored, or was shown more than a day or "
                f"{self._most} lists ago. Rank again, and show the new list"
            )
        width = found.serp.features.shape[1]
        if width and self.n_features not in (None, width):
            raise DataError(f"serp: it has {width} features, but this application set n_features={self.n_features}")
        return found

    def reach_s(self) -> float | None:
        """Return how long ago the oldest of them was shown; None while there is room for more."""
        ((n, oldest),) = self._store.rows("SELECT count(*), min(shown_at) FROM recent_lists")
        return max(0.0, time.time() - oldest) if n >= self._most else None

    def save(self) -> None:
        """Save what was not saved yet, and delete what is too old. A full disk is logged: clicks come first."""
        with self._lock:
            is_any, self._is_scheduled = bool(self._unsaved), False
        if is_any or self.is_shared:
            self._write(is_synced=True)

    def _write(self, *, is_synced: bool) -> None:
        saved: list[tuple[Serp, float]] = []
        try:
            with self._store.transaction(is_synced=is_synced) as cursor:
                # Only now: the client may have been forgotten since, which deletes what was saved until then.
                with self._lock:
                    saved = [] if self._store.forgotten else list(self._unsaved.values())
                for serp, shown_at in saved:
                    cursor.execute(_INSERT.format("OR IGNORE"), _values(serp, shown_at, self._store.schema_hash))
                # By age only once in a while: it reads all of them.
                _trim(cursor, self._most, time.time() - KEPT_S if is_synced else None)
        except DataError as error:
            log.warning("lists_not_saved", n=len(saved), cause=str(error))
            return
        except UsageError:
            return  # it is closed
        with self._lock:
            for serp, _ in saved:
                self._unsaved.pop(serp.serp_id, None)

    def put_recorded(self, cursor: sqlite3.Cursor, serp: Serp, recorded: Recorded) -> None:
        """Store in the transaction of its interaction that a list was recorded; its features are there now."""
        cursor.execute(
            f"{_INSERT.format('')} ON CONFLICT (serp_id) DO UPDATE SET "
            "features = NULL, clicks = excluded.clicks, nth = excluded.nth",
            _values(serp, time.time(), self._store.schema_hash, recorded),
        )
        _trim(cursor, self._most)

    def note_recorded(self, serp: Serp) -> None:
        """Keep a list only in the file: its interaction is stored."""
        with self._lock:
            self._fresh.discard(serp)
            self._unsaved.pop(serp.serp_id, None)

    def forget(self) -> None:
        """Forget the lists that are not saved: the client was forgotten."""
        with self._lock:
            self._fresh.clear()
            self._unsaved.clear()

    def _stored(self, serp_id: str) -> RecentList | None:
        rows = self._store.rows(_SELECT, (serp_id,))
        if not rows:
            return None
        schema_hash, clicks, nth, *columns = rows[0]
        if schema_hash != self._store.schema_hash:
            raise DataError(f"serp: list {serp_id:.40} has the features of another schema; rank again")
        before = None if clicks is None else Recorded(np.frombuffer(clicks, "u1").astype(np.bool_), nth)
        return RecentList(_serp(serp_id, *columns), before)


_COLUMNS: Final = (
    "n_documents, features, ranking, model_version, reversals, log_probability, variant, source, to_credit, "
    "base_positions"
)
_INSERT: Final = (
    f"INSERT {{}} INTO recent_lists (serp_id, shown_at, {_COLUMNS}, schema_hash, clicks, nth) "  # noqa: S608
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_SELECT: Final = (
    "SELECT recent.schema_hash, recent.clicks, nth, recent.n_documents, coalesce(recent.features, kept.features), "
    "recent.ranking, model_version, recent.reversals, recent.log_probability, recent.variant, recent.source, "
    "to_credit, base_positions "
    "FROM recent_lists AS recent LEFT JOIN interactions AS kept USING (serp_id) WHERE serp_id = ?"
)


def _values(
    serp: Serp, shown_at: float, schema_hash: bytes | None, recorded: Recorded | None = None
) -> tuple[object, ...]:
    return (
        serp.serp_id,
        int(shown_at),
        len(serp.features),
        None if recorded is not None else serp.features.astype("<f4", copy=False).tobytes(),
        serp.ranking.astype("<i8", copy=False).tobytes(),
        serp.model_version,
        serp.reversals.astype("<f8", copy=False).tobytes(),
        serp.log_probability,
        serp.variant,
        str(serp.source),
        None if serp.to_credit is None else serp.to_credit.tobytes(),
        None if serp.base_positions is None else serp.base_positions.astype("<i8", copy=False).tobytes(),
        schema_hash,
        None if recorded is None else recorded.clicks.astype("u1").tobytes(),
        None if recorded is None else recorded.nth,
    )


def _serp(serp_id: str, n_documents: int, features: bytes | None, *columns: Any) -> Serp:
    ranking, model_version, reversals, log_probability, variant, source, to_credit, base_positions = columns
    # Its features are gone if it was recorded, and its interaction was deleted since.
    n_columns = len(features) // (4 * n_documents) if features and n_documents else 0
    return Serp(
        serp_id,
        np.frombuffer(ranking, "<i8").copy(),
        model_version,
        np.frombuffer(features or b"", "<f4").reshape(n_documents if n_columns else 0, n_columns).copy(),
        np.frombuffer(reversals, "<f8").copy(),
        log_probability,
        variant,
        Source(source),
        None if to_credit is None else np.frombuffer(to_credit, "i1"),
        None if base_positions is None else np.frombuffer(base_positions, "<i8"),
    )


def _trim(cursor: sqlite3.Cursor, most: int, shown_after: float | None = None) -> None:
    """Delete the oldest lists beyond so many, and those that were shown before a moment."""
    cursor.execute("DELETE FROM recent_lists WHERE number <= (SELECT max(number) - ? FROM recent_lists)", (most,))
    if shown_after is not None:
        cursor.execute("DELETE FROM recent_lists WHERE shown_at < ?", (int(shown_after),))
