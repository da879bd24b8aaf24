"""A device remembers across restarts its clicks, its unsent update and the newest model.

Every change is one transaction, and on disk when the call returns. Interactions are numbered, and no number is reused.
Numbers alone decide what becomes of an interaction:

* up to the *watermark* they count (the federation reports it with every answer); the newest of them are kept, to be
  learned again if they no longer count, or when another client is unlearned;
* up to the *floor* they are spent: they were sent with the device's noise, and are never learned again;
* those that the pending update covers wait for its receipt;
* all others wait to be learned.

Only waiting interactions with features of the application's present schema are learned. The others wait, and are
deleted once an update covers them.

So a click is in no two updates that count, as far as the device can tell; the federator's database ensures it. A
method's state on the device follows the watermark, also back.

Under a policy the watermark counts the client's participations in secure sums, not interactions: these are spent, and
deleted, when they are sent. It is also independent of the ledger, which charges what this device has sent. A method's
state on the device never goes back.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from foltr.core.errors import DataError
from foltr.core.failpoints import Failpoint, failpoint
from foltr.core.learning.gate import Gate
from foltr.core.learning.interaction import Interaction
from foltr.core.learning.rewards import ListRewards
from foltr.core.logs import get_logger
from foltr.core.secure.ledger import Spent
from foltr.edge_client.store import ledger
from foltr.edge_client.store.bounds import (
    CountingBounds,
    PendingUpdate,
    SettledRound,
    Settlement,
    newest_began,
    newest_state,
    read_bounds,
    remember_counted,
)
from foltr.edge_client.store.click_window import ClickWindow
from foltr.edge_client.store.gate_rows import read_gate
from foltr.edge_client.store.interaction_rows import (
    UNNUMBERED,
    Within,
    count_above,
    delete_spent,
    delete_waiting,
    insert_interaction,
    make_room,
    number_above,
    read_earned,
    read_interactions,
    recorded_since,
    trim_kept,
)
from foltr.edge_client.store.knowledge import KnowledgeStore, delete_anchor
from foltr.edge_client.store.ledger import LedgerEntry
from foltr.edge_client.store.recent_lists import KEPT_LISTS, RecentLists
from foltr.edge_client.store.store_file import MetaKey, put_meta, synchronized

__all__ = ["UNNUMBERED", "DeviceStore", "Interaction"]

log = get_logger(__name__)

KEPT_INTERACTIONS = 500


class DeviceStore(KnowledgeStore):
    """The device's database; for one process at a time, and all of its threads.

    Args:
        path: a file, created if missing, or ``":memory:"`` for a device that need not survive a restart.
        client_id, federation: the owner; None opens any client's store, or one without an owner.
        max_interactions: when this many wait, the oldest not yet in an update makes room for a new one.
        max_kept: how many counted interactions are kept; the oldest go.
        max_recent: how many shown lists are kept for their clicks.

    Attributes:
        click_window: how long interactions wait for more clicks before they are learned.
        recent: the lists shown lately.
        n_dropped: how many interactions made room for newer ones.
        schema_hash: of the application's features, from here on; None if it has not declared them.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        client_id: str | None,
        federation: str | None,
        max_interactions: int,
        max_kept: int = KEPT_INTERACTIONS,
        max_recent: int = KEPT_LISTS,
    ) -> None:
        self.click_window, self.recent = ClickWindow(), RecentLists(self, max_recent)
        super().__init__(path, None if client_id is None or federation is None else (federation, client_id))
        self.n_dropped = 0
        self.schema_hash: bytes | None = None
        self._max_interactions = max_interactions
        self._max_kept = max_kept
        # A copy of the file's: nobody else writes there, and each transaction that changes them updates this copy.
        self._bounds = self._read_bounds()
        counted = (self._bounds.counted,)
        if self.rows("SELECT count(*) FROM interactions WHERE id <= ?", counted)[0][0] > max_kept:  # lowered since
            try:
                with self.transaction() as cursor:
                    trim_kept(cursor, self._bounds.counted, max_kept)
            except DataError:
                self.close()
                raise

    # --- interactions ---------------------------------------------------------------------------------------

    @synchronized
    def add_interaction(
        self,
        serp_id: str,
        shown: Interaction,
        within: Within | None = None,
        rewards: ListRewards | None = None,
        *,
        replaces: bool = False,
    ) -> Interaction | None:
        """Store an interaction and number it; None if nothing is stored.

        That is so if this list is stored already, or the one to replace no longer waits, or the client was forgotten.

        Args:
            shown: without a number yet (`UNNUMBERED`).
            within: called in the same transaction.
            rewards: for `earned`; None: unknown.
            replaces: it has more clicks on a stored list, whose interaction it replaces, under a new number: an update
                that was being made of the other is refused by `put_update`.
        """
        if self.forgotten:
            return None
        recorded_at, n_dropped = self.click_window.now(), 0
        with self.transaction() as cursor:
            if replaces:
                if (replaced := delete_waiting(cursor, serp_id, self._bounds.learned)) is None:
                    return None
                (first_credit,) = replaced
                if rewards is not None and first_credit:
                    rewards = replace(rewards, credit=first_credit)
            row_id = insert_interaction(cursor, serp_id, shown, self.schema_hash, rewards, recorded_at)
            if row_id is None:
                return None
            if row_id - self._bounds.counted > self._max_interactions:
                n_dropped = make_room(cursor, self._bounds, self._max_interactions)
            if within is not None:
                within(cursor)
            failpoint(Failpoint.IN_INTERACTION_TRANSACTION)
        self._bounds = self._bounds._replace(newest=row_id)
        self.click_window.add(row_id, recorded_at)
        self._note_dropped(n_dropped)
        failpoint(Failpoint.INTERACTION_STORED)
        return replace(shown, id=row_id)

    def _note_dropped(self, n: int) -> None:
        if n and not self.n_dropped:
            hint = "the state of the device says why they wait"
            log.warning("interactions_dropped", max_interactions=self._max_interactions, hint=hint)
        self.n_dropped += n

    @synchronized
    def earned(self, first: int, last: int, credits_since: int = 0) -> list[ListRewards]:
        """Return the rewards of the interactions from one id to another whose base order was known.

        Args:
            credits_since: lists that are mixed with an older model have no credit.
        """
        return read_earned(self._db, (first, last), self.schema_hash, credits_since)

    @synchronized
    def gate(self) -> Gate:
        """Return the gate as it was stored with the newest list; a new one before the first."""
        return Gate() if self.forgotten else read_gate(self._db)

    @synchronized
    def waiting_ids(self, limit: int) -> list[int]:
        """Return the ids of the oldest interactions that wait to be learned, and not for more clicks."""
        if self._bounds.newest <= self._bounds.learned:
            return []  # the usual case after an answer or a new model, without reading the file
        rows = self._db.execute(
            "SELECT id FROM interactions WHERE id > ? AND id < ? AND schema_hash IS ? ORDER BY id LIMIT ?",
            (self._bounds.learned, self._first_open, self.schema_hash, limit),
        )
        return [row[0] for row in rows]

    @synchronized
    def waiting_interactions(self, limit: int, above: int = 0) -> list[Interaction]:
        """Return the interactions of `waiting_ids` with an id above ``above``."""
        return read_interactions(
            self._db,
            "WHERE id > ? AND id < ? AND schema_hash IS ? ORDER BY id LIMIT ?",
            (max(above, self._bounds.learned), self._first_open, self.schema_hash, limit),
        )

    @synchronized
    def newest_waiting_width(self) -> int | None:
        """Return the number of features of the newest interaction that waits to be learned; None without one."""
        row = self._db.execute(
            "SELECT length(features) / (4 * n_documents) FROM interactions "
            "WHERE id > ? AND schema_hash IS ? ORDER BY id DESC LIMIT 1",
            (self._bounds.learned, self.schema_hash),
        ).fetchone()
        return None if row is None else int(row[0])

    @synchronized
    def discard_interactions(self, ids: Sequence[int]) -> None:
        """Delete interactions that can never be used, e.g. with other features than the ranker's."""
        with self.transaction() as cursor:
            cursor.executemany("DELETE FROM interactions WHERE id = ?", [(i,) for i in ids])

    @synchronized
    def n_waiting(self) -> int:
        """Count the interactions that wait to be learned, or for more clicks."""
        return count_above(self._db, self._bounds.learned, self.schema_hash)

    @synchronized
    def n_open(self) -> int:
        """Count the interactions that wait for more clicks."""
        return count_above(self._db, max(self._bounds.learned, self._first_open - 1), self.schema_hash)

    @property
    def _first_open(self) -> int:
        """The first interaction that waits for more clicks; the next one's number if none does."""
        first = self.click_window.first()
        return self._bounds.newest + 1 if first is None else first

    @synchronized
    def wait_for_clicks(self, length_s: float) -> None:
        """Let interactions wait so long for more clicks, also those from before."""
        self.click_window.length_s = length_s
        self.click_window.begin(recorded_since(self._db, self._bounds.learned, self.click_window.now() - length_s))

    # --- what counts ----------------------------------------------------------------------------------------

    def watermark(self) -> int | None:
        """Return the last counted interaction; 0 before the first, None before the federation reports it."""
        return self._bounds.watermark

    @synchronized
    def settle(self, watermark: int, answered: str | None = None, settled: SettledRound | None = None) -> Settlement:
        """Take the watermark of an answer: interactions up to it count, those above it should be learned.

        The pending update is removed if it counts. If it does not count and was answered, its interactions wait again.

        Args:
            answered: the update_id that the answer settles for good, if it does.
            settled: the round that then gets no other update; None: it may.

        Raises:
            DataError: the watermark is too high for any device; nothing is changed.
        """
        bounds = self._bounds
        bounds.check_watermark(watermark)
        before, pending = bounds.watermark, bounds.pending
        counted = pending is not None and watermark >= pending.through
        given_up = not counted and pending is not None and pending.update_id == answered
        lost = before is not None and watermark < before and watermark < newest_began(self._db, before)
        settlement = Settlement(before, watermark, counted, given_up, lost)
        if not settlement.changed:
            return settlement
        newest = bounds.newest
        with self.transaction() as cursor:
            if not bounds.under_policy:
                newest = number_above(cursor, newest, watermark, is_new=before is None)
            if pending is not None and counted:
                remember_counted(cursor, pending)
            if counted or given_up:
                cursor.execute("DELETE FROM pending_update")
            if counted or given_up or lost:
                # A restored database uses the numbers of rounds again.
                put_meta(cursor, {MetaKey.SETTLED_ROUND: None if lost or settled is None else settled.packed})
            cursor.execute("UPDATE bounds SET watermark = ?", (watermark,))
            if not bounds.under_policy:
                delete_spent(cursor, bounds.floor)
                trim_kept(cursor, watermark, self._max_kept)
            elif before is not None and watermark > max(before, 0 if pending is None else pending.through):
                # The store is an older copy: an update that it does not know of had the credits of these lists.
                cursor.execute("UPDATE interactions SET credit = 0 WHERE credit != 0")
            failpoint(Failpoint.IN_SETTLEMENT_TRANSACTION)
        pending = None if counted or given_up else pending
        self._bounds = bounds._replace(watermark=watermark, newest=newest, pending=pending)
        if before is None:
            self.wait_for_clicks(self.click_window.length_s)  # they may have other numbers now
        failpoint(Failpoint.SETTLEMENT_STORED)
        return settlement

    # --- the unsent update ----------------------------------------------------------------------------------

    @synchronized
    def put_update(
        self,
        update: PendingUpdate,
        interaction_ids: Sequence[int],
        *,
        spent: bool = False,
        charged: LedgerEntry | None = None,
    ) -> None:
        """Store ``update`` as the pending one, made of these interactions, with its local state.

        Args:
            spent: they are never learned again, even if the update does not count.
            charged: its cost, under a policy: they are then spent, and deleted.

        Raises:
            DataError: they are not those that wait, or the watermark is not ``after``, or it is not charged under the
                device's policy, or not as the ledger's next participation; nothing is changed.
        """
        bounds = self._bounds
        newest = update.through if charged is None else interaction_ids[-1]
        with self.transaction() as cursor:
            covered = cursor.execute(
                "SELECT id, schema_hash IS ? FROM interactions WHERE id > ? AND id <= ? ORDER BY id",
                (self.schema_hash, bounds.learned, newest),
            ).fetchall()
            waiting = [row_id for row_id, is_of_this_schema in covered if is_of_this_schema]
            if waiting != list(interaction_ids) or bounds.watermark != update.after:
                raise DataError(
                    f"update {update.update_id}: its {len(interaction_ids)} interactions are not the {len(waiting)} "
                    f"that wait up to {newest}, or {update.after} is not what counts"
                )
            if bounds.policy_hash != (None if charged is None else charged.policy_hash):
                raise DataError(f"update {update.update_id} is not charged under the policy of this device")
            if len(covered) > len(waiting):
                cursor.execute(
                    "DELETE FROM interactions WHERE id > ? AND id <= ? AND schema_hash IS NOT ?",
                    (bounds.learned, newest, self.schema_hash),
                )
            if charged is not None:
                update = self._spend(cursor, update, newest, charged)
            cursor.execute(
                "INSERT INTO pending_update (only_one, update_id, round, after, through, payload, local_state) "
                "VALUES (1, ?, ?, ?, ?, ?, ?)",
                (update.update_id, update.round, update.after, update.through, update.payload, update.local_state),
            )
            if spent:
                cursor.execute("UPDATE bounds SET floor = ?", (newest,))
            failpoint(Failpoint.IN_UPDATE_TRANSACTION)
        is_spent = spent or charged is not None
        self._bounds = bounds._replace(pending=update, floor=newest if is_spent else bounds.floor)
        failpoint(Failpoint.UPDATE_STORED)

    def _spend(self, cursor: sqlite3.Cursor, update: PendingUpdate, newest: int, charged: LedgerEntry) -> PendingUpdate:
        """Charge an update, which has the credits of all that wait; delete its interactions. Its local state stays."""
        ledger.add_entry(cursor, charged)
        cursor.execute("DELETE FROM interactions WHERE id <= ?", (newest,))
        cursor.execute("UPDATE interactions SET credit = 0 WHERE credit != 0 AND id < ?", (self._first_open,))
        cursor.execute("UPDATE bounds SET floor = ?", (newest,))
        self._store_state(cursor, update.local_state)
        return replace(update, local_state=None)

    def pending_update(self) -> PendingUpdate | None:
        return self._bounds.pending

    def settled_round(self) -> SettledRound:
        """Return the round that `settle` stored; the first of all without one."""
        return SettledRound.unpack(self.meta(MetaKey.SETTLED_ROUND))

    @synchronized
    def replace_payload(self, update_id: str, payload: bytes) -> None:
        """Replace an update's bytes, e.g. by ones signed with another key."""
        with self.transaction() as cursor:
            cursor.execute("UPDATE pending_update SET payload = ? WHERE update_id = ?", (payload, update_id))
        self._bounds = self._read_bounds()

    @synchronized
    def local_state(self) -> bytes | None:
        """Return the state left by the newest update: the pending one, or else the newest that counts.

        Under a policy it is the newest one's, whether it counts or not.
        """
        watermark, pending = self._bounds.watermark, self._bounds.pending
        if self._bounds.under_policy:
            return self.meta(MetaKey.LOCAL_STATE)
        if pending is not None and pending.local_state is not None:
            return pending.local_state
        return newest_state(self._db, watermark or 0)

    # --- participations under a policy ------------------------------------------------------------------------

    @synchronized
    def put_policy(self, signed: bytes) -> None:
        """Store the operator's newest policy, and drop the pending update, made under another policy or none.

        With the first policy everything sent before is spent: it must not be seen beside a secure sum that contains it.
        The federation has yet to report how many participations count.
        """
        with self.transaction() as cursor:
            if not self._bounds.under_policy:
                sent = self._bounds.learned
                self._store_state(cursor, self.local_state())
                cursor.execute("DELETE FROM counted_updates")
                cursor.execute("DELETE FROM interactions WHERE id <= ?", (sent,))
                cursor.execute("UPDATE bounds SET watermark = NULL, floor = ?", (sent,))
            cursor.execute("DELETE FROM pending_update")
            delete_anchor(cursor)  # no votes under a policy
            put_meta(cursor, {MetaKey.POLICY: signed})
        self._bounds = self._read_bounds()

    @synchronized
    def entries(self) -> list[LedgerEntry]:
        """Return the ledger."""
        return ledger.read_entries(self._db)

    def spent(self) -> Spent:
        """Return the total cost of all participations, and the number of the last."""
        return ledger.spent_in(self.entries())

    @staticmethod
    def _store_state(cursor: sqlite3.Cursor, state: bytes | None) -> None:
        if state is not None:
            put_meta(cursor, {MetaKey.LOCAL_STATE: state})

    # --- what is kept of what counts ----------------------------------------------------------------------------

    @synchronized
    def kept_ids(self, most_relearned: int | None = None) -> list[int]:
        """Return the ids of the kept interactions that count, oldest first.

        Args:
            most_relearned: only those that were learned in fewer steps of unlearning jobs; None: all.
        """
        rows = self._db.execute(
            "SELECT id FROM interactions WHERE id <= ?1 AND schema_hash IS ?2 AND (?3 IS NULL OR relearned < ?3) "
            "ORDER BY id",
            (self._bounds.counted, self.schema_hash, most_relearned),
        )
        return [row[0] for row in rows]

    @synchronized
    def kept_interaction(self, kept_id: int) -> Interaction:
        """Return an interaction that `kept_ids` lists."""
        return read_interactions(self._db, "WHERE id = ?", (kept_id,))[0]

    def close(self) -> None:
        """Save the lists shown lately, and close the file as `StoreFile.close` does."""
        if not self._gone:
            self.recent.save()
        super().close()

    # --- being forgotten ------------------------------------------------------------------------------------

    @synchronized
    def forget(self) -> None:
        self.recent.forget()
        try:
            super().forget()
        finally:
            self._bounds = self._read_bounds()
            self.click_window.begin(())

    def _read_bounds(self) -> CountingBounds:
        return read_bounds(self._db, self.meta(MetaKey.POLICY))
