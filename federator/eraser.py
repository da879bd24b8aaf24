"""Erases clients: first stored data, then their keys, then what the broker retains; and notifies them.

If a federator ends in between, the next one repeats each part: the rows show what is left to do.
"""

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import structlog

from foltr.core.erasure.audit import AuditEntry
from foltr.core.erasure.receipt import ErasureReceipt, sign_receipt, utc_text
from foltr.core.erasure.states import FORGET_STATE, ErasureState
from foltr.core.failpoints import Failpoint, failpoint
from foltr.core.protocol.audit_heads import AuditHead
from foltr.core.protocol.receipts import ErasureNotice, ReceiptCode
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.federator.clock import Clock, to_datetime
from foltr.federator.deciding.decisions import PendingErasure
from foltr.federator.deciding.orders import unknown_to_all
from foltr.federator.publishing.announcements import ReceiptSender
from foltr.federator.publishing.audit_heads import AuditHeads
from foltr.federator.publishing.retained import RetainedTopics
from foltr.federator.store import FederationStore
from foltr.storage.erasure_records import ErasureOutcome, ErasureRequest, ErasureRow
from foltr.storage.errors import WriterFencedError
from foltr.storage.records import Batch, NewEvent

log = structlog.get_logger(__name__)

# A device that was not notified by then has not connected since; its name is deleted anyway.
_NAMES_KEPT = timedelta(days=30)
_PURGE_PAUSE_S = 10.0
# A reader in the way may be a backup, so tries to purge become ever rarer.
_LONGEST_PURGE_PAUSE_S = 600.0
# The operator waits for it when the federator stops.
_LAST_PURGE_S = 30.0
_NAMES_EVERY_S = 86_400.0
# Between two parts of a large client's rows, so that others' updates are stored in between.
_ERASING_PAUSE_S = 0.02
# The actor takes a turn at least once an hour.
_OVERDUE_EVERY_S = 60.0
# An erasure is several transactions and a key's file, and long for a client that sent much: fifty in one turn blocked
# everybody for minutes.
MOST_AT_ONCE = 4
A_TURN_S = 0.25


def signed_by(key: SigningKey | None) -> Callable[[ErasureRow, ErasureOutcome, AuditEntry], str | None]:
    """Return the function that makes an erasure's receipt; it makes none if the federator signs nothing."""

    def sign(row: ErasureRow, outcome: ErasureOutcome, entry: AuditEntry) -> str | None:
        if key is None:
            return None
        receipt = ErasureReceipt(
            federation=row.federation,
            pseudonym=row.pseudonym,
            requested_at=utc_text(row.requested_at),
            erased_at=utc_text(row.erased_at),
            completed_at=utc_text(outcome.completed_at),
            requested_by=row.requested_by,
            n_rounds=row.n_rounds,
            n_updates=row.n_updates,
            n_events=row.n_events,
            erased_digest=row.erased_digest,
            key_destroyed=row.key_destroyed,
            strategy=outcome.strategy,
            rounds_replayed=outcome.rounds_replayed,
            model_before=outcome.model_before,
            model_after=outcome.model_after,
            models_withdrawn=outcome.models_withdrawn,
            coverage=outcome.coverage,
            figures=dict(outcome.figures),
            audit_seq=entry.seq,
            audit_hash=entry.hash,
        )
        return sign_receipt(receipt, key)

    return sign


class ErasurePace:
    """How many erasures fit into a moment, by how long the last one took; at least one, or none would ever be done."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_took_s = 0.0

    @property
    def batch_size(self) -> int:
        """How many a turn takes."""
        is_quick = self._last_took_s * MOST_AT_ONCE <= A_TURN_S
        return MOST_AT_ONCE if is_quick else max(1, int(A_TURN_S / self._last_took_s))

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure how long the erasure in the body takes."""
        began = self._clock.now()
        try:
            yield
        finally:
            self._last_took_s = self._clock.now() - began


class Eraser:
    """The erasures of one federation. Only its single writer calls it.

    Args:
        key: signs receipts; None makes none.
        deadline_s: an erasure that takes longer raises an alarm.

    Attributes:
        pace: how many erasures to begin in a turn.
    """

    def __init__(
        self,
        federation: str,
        store: FederationStore,
        clock: Clock,
        receipts: ReceiptSender,
        retained: RetainedTopics,
        key: SigningKey | None,
        deadline_s: float,
    ) -> None:
        self._name = federation
        self._store = store
        self._clock = clock
        self._receipts = receipts
        self._retained = retained
        self._topics = Topics(federation)
        self._sign = signed_by(key)
        self._heads = AuditHeads(federation, store, retained)
        self.pace = ErasurePace(clock)
        # The pseudonyms of clients whose rows are deleted in parts, in order.
        self._erasing: list[str] = []
        self._erase_at = 0.0
        # Notified clients, to be noted at the next occasion.
        self._told: list[str] = []
        # Bytes of deleted rows may still be in the file; the database knows whether they are.
        self._purge_due = False
        self._purge_at = 0.0
        self._purge_pause_s = _PURGE_PAUSE_S
        self._purging: asyncio.Task[None] | None = None
        self._names_at = 0.0
        self._deadline_s = deadline_s
        self._overdue_look_at = 0.0

    async def start(self, published: AuditHead | None) -> None:
        """Continue the last federator's erasures; ``published`` is its last published head of the audit log."""
        await self._heads.start(published, to_datetime(self._clock.now()))
        # It may have died, or stopped, between a deletion and its purge.
        self._purge_due = await self._store.deletions_to_purge() is not None
        for row in await self._store.unfinished_erasures():
            await self._go_on(row)

    async def erase(self, wanted: PendingErasure) -> ErasureRow | None:
        """Erase a client's stored data; a job unlearns what its updates have taught the model.

        None for a stranger without stored data: it gets an answer, and its name is not stored.
        """
        with self.pace.measured():
            if wanted.is_stranger and not await self._store.is_named(wanted.client_id):
                await self._refuse_stranger(wanted)
                return None
            request = ErasureRequest(
                wanted.client_id,
                wanted.pseudonym,
                to_datetime(wanted.at),
                wanted.by,
                erased_at=to_datetime(self._clock.now()),
                order=wanted.order,
            )
            row = await self._store.erase_client(request)
            failpoint(Failpoint.ERASED)
            return await self._go_on(row)

    async def _go_on(self, row: ErasureRow) -> ErasureRow:
        """Finish an erasure whose rows are gone; else notify its device, and begin to delete rows (`delete_more`)."""
        if row.state is not ErasureState.ERASING:
            return await self._finish(row)
        self._erasing.append(row.pseudonym)
        if row.client_id is not None:
            self.clear(row.client_id)
            self.notify(row.client_id, row)
        return row

    async def delete_more(self) -> ErasureRow | None:
        """Delete the next rows of a client that is being erased; return its erasure once the last one is gone."""
        now = self._clock.now()
        if not self._erasing or now < self._erase_at:
            return None
        row = await self._store.erase_more(self._erasing[0], to_datetime(now))
        failpoint(Failpoint.ERASED)
        self._erase_at = self._clock.now() + _ERASING_PAUSE_S
        if row.state is ErasureState.ERASING:
            return None
        del self._erasing[0]
        return await self._finish(row)

    @property
    def is_erasing(self) -> bool:
        """Whether a forgotten client still has rows to delete."""
        return bool(self._erasing)

    async def _refuse_stranger(self, wanted: PendingErasure) -> None:
        code, detail = ReceiptCode.UNKNOWN_CLIENT, "no client of this name has ever joined: nothing to forget"
        event = NewEvent(to_datetime(wanted.at), "message_refused", f"forget: {detail}", code)
        orders = [] if wanted.order is None else [unknown_to_all(wanted.order)]
        await self._store.commit_batch(Batch(events=[event], orders=orders))
        # Otherwise the retained request could be accepted later.
        self._retained.put(self._topics.client(wanted.client_id, ClientTopic.FORGET), None)
        self._receipts.send(
            [ErasureNotice(federation=self._name, client_id=wanted.client_id, code=code, detail=detail)]
        )

    async def _finish(self, row: ErasureRow) -> ErasureRow:
        client_id, is_first = row.client_id, row.state is ErasureState.ERASED
        destroyed = client_id is not None and await self._destroy_key(client_id, row)
        if row.state is ErasureState.ERASED:
            # Report only what was destroyed here: a key that was not found may be in another folder.
            failpoint(Failpoint.KEY_DESTROYED)
            row = await self._store.note_key_destroyed(row.pseudonym, destroyed=destroyed)
        if row.state is ErasureState.ERASED:
            now = to_datetime(self._clock.now())
            row = await self._store.complete_erasure(row.pseudonym, now, self._sign)
        if is_first:
            log.info("client_erased", pseudonym=row.pseudonym, n_updates=row.n_updates, n_rounds=row.n_rounds)
        self._purge_due = True
        await self._heads.publish()
        if client_id is not None:
            # Until it is done its device may need further messages.
            self.clear(client_id, row.pseudonym if row.state is ErasureState.DONE else None)
            self.notify(client_id, row)
        return row

    async def _destroy_key(self, client_id: str, row: ErasureRow) -> bool:
        """Destroy the key of its updates; again each time, since a copy of the keys may have been restored."""
        return await self._store.destroy_key(client_id, row.key_fingerprint)

    def clear(self, client_id: str, pseudonym: str | None = None) -> None:
        """Clear what the broker retains of a client; with a pseudonym its name is deleted afterwards."""
        topics = [self._topics.client(client_id, topic) for topic in (ClientTopic.STATUS, ClientTopic.FORGET)]
        for topic in topics[:-1]:
            self._retained.put(topic, None)
        self._retained.put(topics[-1], None, None if pseudonym is None else lambda: self._told.append(pseudonym))

    def wake_at(self) -> float:
        """When `tidy` has something to do without a message; epoch seconds."""
        erase_at = self._erase_at if self._erasing else math.inf
        if self._purging is not None:
            return min(erase_at, self._clock.now() + _PURGE_PAUSE_S)  # another erasure may be due by then
        return min(erase_at, self._purge_at if self._purge_due else math.inf)

    async def tidy(self) -> None:
        """Delete the names of notified clients, and purge their bytes.

        A purge rewrites a table, so it is not done for each of many.
        """
        while self._told:
            pseudonym = self._told[-1]
            await self._store.note_told(pseudonym)
            self._told.remove(pseudonym)
            self._purge_due = True
        now = self._clock.now()
        if now >= self._names_at:
            self._names_at = now + _NAMES_EVERY_S
            n_dropped = await self._store.drop_untold_names(to_datetime(now) - _NAMES_KEPT)
            self._purge_due = self._purge_due or n_dropped > 0
        if now >= self._overdue_look_at:
            self._overdue_look_at = now + _OVERDUE_EVERY_S
            await self._note_overdue(now)
        if self._purge_due and now >= self._purge_at and self._purging is None:
            # In the background: it takes long for a large database, and must not end anything.
            self._purge_at = now + self._purge_pause_s
            self._purging = asyncio.create_task(self._purge(), name="purge")

    async def _note_overdue(self, now: float) -> None:
        """Log an alarm for erasures past their deadline, once each; the database remembers."""
        n_late = await self._store.note_overdue(to_datetime(now - self._deadline_s), to_datetime(now))
        if n_late:
            log.error("erasure_overdue", n=n_late, hint="foltr erasure list says what each of them waits for")

    async def _purge(self) -> None:
        # Later deletions are for the next purge.
        self._purge_due, is_done = False, False
        try:
            is_done = await self._purge_what_was_deleted()
        except WriterFencedError:
            is_done = True  # the federator that has taken over purges
        except Exception as error:  # noqa: BLE001 (it is repeated, and must not end other tasks)
            log.warning("purge_delayed", cause=str(error))
        finally:
            self._purge_due = self._purge_due or not is_done
            self._purge_pause_s = _PURGE_PAUSE_S if is_done else min(2 * self._purge_pause_s, _LONGEST_PURGE_PAUSE_S)
            self._purging = None

    async def _purge_what_was_deleted(self) -> bool:
        """Purge; return whether no bytes are left of what had been deleted before."""
        n_deletions = await self._store.deletions_to_purge()
        if n_deletions is None:
            return True
        if not await self._store.purge():
            return False
        await self._store.note_purge(n_deletions)
        return True

    async def wait_purged(self) -> None:
        """Wait for a running purge to end."""
        if self._purging is not None:
            await self._purging

    async def close(self) -> None:
        """Purge what is due, within a time limit; the next start purges the rest, but may never come."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_PURGE_S):
                await self.wait_purged()
                if self._purge_due:
                    await self._purge()
        if self._purge_due:
            log.warning(
                "purge_unfinished",
                detail=f"deleted bytes may remain in the database's files: no purge within {_LAST_PURGE_S:g} s. "
                "Start the federator again: it purges first",
            )

    def notify(self, client_id: str, row: ErasureRow) -> None:
        """Send a client the progress of its erasure; a client that misses it asks again."""
        done = row.state is ErasureState.DONE
        detail = "this federator signs nothing" if row.receipt is None else ""
        if not done:
            due_at = row.requested_at + timedelta(seconds=self._deadline_s)
            detail = f"the model without it is due by {due_at:%Y-%m-%d %H:%M} UTC"
        self._receipts.send(
            [
                ErasureNotice(
                    federation=self._name,
                    client_id=client_id,
                    code=ReceiptCode(FORGET_STATE[row.state].value),
                    receipt=None if row.receipt is None else row.receipt.encode(),
                    detail=detail,
                )
            ]
        )

    async def notify_again(self, client_id: str, pseudonym: str) -> None:
        """Answer a client that was forgotten before, and clear its request and a restored key."""
        row = await self._store.find_erasure(pseudonym)
        if row is not None:
            if row.state is not ErasureState.ERASING:  # its key goes once its rows are gone
                await self._destroy_key(client_id, row)
            self.clear(client_id)
            self.notify(client_id, row)

    async def after_swap(self, done: Sequence[ErasureRow]) -> None:
        """Purge the deleted weights, and notify the clients that have not heard that their erasure is done."""
        self._purge_due = True
        await self._heads.publish()
        for row in done:
            if row.client_id is not None:
                self.clear(row.client_id, row.pseudonym)
                self.notify(row.client_id, row)
