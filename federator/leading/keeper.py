"""Keeps the lease of a federation while its federator leads, and reports at once when another process has it.

A thread with its own event loop and database connection renews it, so neither a long transaction nor a long computation
loses it. But if the federator's event loop hangs, or its turn does not end, the lease is left to expire. A process that
was paused and wakes confirms its lease before it connects to the broker, since a successor may already be there.

A process claims a federation once its broker answers. Until then, if nobody leads, the thread notes that it waits, and
what it finds wrong: otherwise the database would show only that nobody leads.
"""

import asyncio
import contextlib
import math
import os
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from threading import Thread
from typing import Self, TypeVar

import structlog

from foltr.core.errors import UnavailableError
from foltr.core.protocol.verdicts import Finding, Reason
from foltr.storage.database import Database, is_transient
from foltr.storage.errors import WriterFencedError
from foltr.storage.findings import store_findings
from foltr.storage.leases import (
    LEASE_S,
    Lease,
    find_lease,
    forget_standby,
    give_up_lease,
    note_standby,
    renew_lease,
)

T = TypeVar("T")

log = structlog.get_logger(__name__)

_RENEW_EVERY_S = 1.0
# A PostgreSQL that does not answer may do so on another connection: a lease lasts two tries. SQLite always answers.
_ANSWER_S = 1.5
# Loading a large federation at start blocks the event loop for seconds.
_HANGS_AFTER_S = 60.0
_SAYS_EVERY_S = 1.0
# Longer than the database takes to answer, if it does.
_EXPLAINED_WITHIN_S = 5.0
# PostgreSQL keeps 63 bytes of a session's name, which includes this (`foltr.storage.engines.application_name`).
_LONGEST_HOLDER = 57


def new_holder() -> str:
    """Name a process that leads or waits to, by host, process number and chance, e.g. ``north:4711:5e0c93b2``."""
    ending = f":{os.getpid()}:{secrets.token_hex(4)}"
    host = socket.gethostname().encode("ascii", "replace").decode()
    return host[: _LONGEST_HOLDER - len(ending)] + ending


class LeaseKeeper:
    """The lease of one federation, held by one process. Use it around everything a leader does.

    Args:
        holder: the unique name of the process.
        is_well: whether the work goes on; after a minute of False, or of no answer, the lease is not renewed.
        check: finds what is wrong now; its findings are stored beside the lease. Called in the event loop, so it must
            not block.

    Attributes:
        ahead_s: how far this process's wall clock is ahead of the database's, at the last renewal.
    """

    def __init__(
        self,
        db: Database,
        federation: str,
        holder: str,
        is_well: Callable[[], bool],
        check: Callable[[], Sequence[Finding]] = tuple,
    ) -> None:
        self._db = db
        self._federation = federation
        self._holder = holder
        self._is_healthy = is_well
        self._check = check
        self._check_failed: Finding | None = None
        self._findings: Sequence[Finding] | None = None
        self._stored: Sequence[Finding] | None = None
        self._renewed_last = -math.inf  # by the database's clock, in epoch seconds
        self._is_waiting = False
        self.ahead_s = 0.0
        self._well_at = time.monotonic()
        self._answer_s = None if db.dialect == "sqlite" else _ANSWER_S
        self._thread_loop = asyncio.new_event_loop()
        self._due = asyncio.Event()
        self._is_over = False
        # A process that crashes does not wait for it.
        self._thread = Thread(target=self._run, name="foltr-lease", daemon=True)
        self._changed = asyncio.Event()
        self._has_led = False
        self._renewed_at = -math.inf
        self._failure: Exception | None = None

    async def __aenter__(self) -> Self:
        """Renew the lease from now on, as soon as this process has it."""
        self._loop = asyncio.get_running_loop()
        self._saying = asyncio.create_task(self._watch_health())
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Give the lease up, so that another process may lead at once."""
        self._saying.cancel()
        self._is_over = True
        self._renew_now()
        await asyncio.to_thread(self._thread.join)

    @property
    def leads(self) -> bool:
        """Whether this process has the lease, as far as it knows."""
        return self._has_led and self._failure is None

    def note_claimed(self) -> None:
        """Note that the federation is claimed: from here on another process's lease means that ours is lost."""
        self._has_led = True

    async def confirm(self) -> None:
        """Return once the lease was renewed after this call; wait while the database is away.

        Raises:
            WriterFencedError: another federator has the lease.
        """
        asked_at = time.monotonic()
        self._renew_now()
        while self._failure is None and self._renewed_at < asked_at:
            await self._changed.wait()
        if self._failure is not None:
            raise self._failure

    async def wait_lost(self) -> None:
        """Return only by raising: WriterFencedError once another federator has the lease. For a task group to watch."""
        while self._failure is None:
            await self._changed.wait()
        raise self._failure

    async def cause_of(self, error: BaseException) -> BaseException:
        """Return why a leader cannot go on: another one leads, if the database says so, else the error itself.

        A successor ends the leader's sessions, so a waking leader's first error may be a lost connection.
        """
        if not self._has_led or not (isinstance(error, WriterFencedError | UnavailableError) or is_transient(error)):
            return error
        # Read, not renewed: renewing waits for a lock, which the successor may hold. If that fails, only the error is
        # known.
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_EXPLAINED_WITHIN_S), self._db.separate_pool() as database:
                lease = await find_lease(database, self._federation)
                if lease is None or lease.holder != self._holder:
                    self._note_lost(lease)
        return self._failure if isinstance(self._failure, WriterFencedError) else error

    async def _watch_health(self) -> None:
        while True:
            if self._is_healthy():
                self._well_at = time.monotonic()
            self._findings = self._found_now()
            await asyncio.sleep(_SAYS_EVERY_S)

    def _found_now(self) -> Sequence[Finding]:
        """Return what the check finds, or that it fails: that must not cost the lease, and is tried again."""
        try:
            found = tuple(self._check())
        except Exception as error:
            if self._check_failed is None:
                log.exception("self_check_failed")
                why = f"{type(error).__name__}; its log says where."
                self._check_failed = Finding(Reason.SELF_CHECK_FAILED, why, self._holder, datetime.now(UTC))
            return (self._check_failed,)
        self._check_failed = None
        return found

    # --- in the thread ------------------------------------------------------------------------------------------

    def _renew_now(self) -> None:
        """Have the lease renewed at once; from any thread."""
        with contextlib.suppress(RuntimeError):  # it has ended
            self._thread_loop.call_soon_threadsafe(self._due.set)

    def _run(self) -> None:
        try:
            self._thread_loop.run_until_complete(self._renew())
        except Exception as error:  # noqa: BLE001 (`wait_lost` raises it)
            self._in_loop(self._note_failed, error)
        finally:
            self._thread_loop.close()

    async def _renew(self) -> None:
        async with self._db.separate_pool() as database:
            while not self._is_over:
                self._due.clear()
                if time.monotonic() - self._well_at < _HANGS_AFTER_S:
                    await self._renew_once(database)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_RENEW_EVERY_S):
                        await self._due.wait()
            if self._is_waiting:
                await self._try_transaction(database, forget_standby)
            await self._try_transaction(database, give_up_lease)

    async def _renew_once(self, database: Database) -> None:
        began_at = time.monotonic()
        answered, now = await self._try_transaction(database, renew_lease)
        if now is not None:
            self.ahead_s = time.time() - now.timestamp()
            self._in_loop(self._note_renewed, began_at)
            if self._is_waiting:
                forgotten, _ = await self._try_transaction(database, forget_standby)
                self._is_waiting = not forgotten
            if now.timestamp() - self._renewed_last >= LEASE_S:
                self._stored = None  # while it was expired, one that waits to lead may have stored others
            self._renewed_last = now.timestamp()
            await self._store_findings(database)
        elif answered:
            _, lease = await self._try_transaction(database, lambda db, name, _: find_lease(db, name))
            self._in_loop(self._note_lost, lease)
            self._is_waiting = lease is not None and not lease.is_held and not self._has_led
            if self._is_waiting:
                await self._try_transaction(database, note_standby)
                await self._store_findings(database)
            else:
                self._stored = None

    async def _store_findings(self, database: Database) -> None:
        """Store the newest findings if they are others than the stored ones."""
        found = self._findings
        if found is None or found == self._stored:
            return

        async def store(db: Database, name: str, holder: str) -> None:
            await store_findings(db, name, holder, found)

        answered, _ = await self._try_transaction(database, store)
        if answered:
            self._stored = found

    async def _try_transaction(
        self, database: Database, transaction: Callable[..., Awaitable[T]]
    ) -> tuple[bool, T | None]:
        """Return whether the database answers, and what; it may not answer now and do so later."""
        try:
            async with asyncio.timeout(self._answer_s):
                return True, await transaction(database, self._federation, self._holder)
        except Exception as error:
            if not is_transient(error):
                raise
            log.debug("lease_not_renewed", cause=str(database.unavailable(error)))
            return False, None

    def _in_loop(self, note: Callable[[T], None], what: T) -> None:
        self._loop.call_soon_threadsafe(self._note, note, what)

    # --- in the event loop --------------------------------------------------------------------------------------

    def _note(self, note: Callable[[T], None], what: T) -> None:
        note(what)
        self._changed.set()
        self._changed = asyncio.Event()

    def _note_renewed(self, began_at: float) -> None:
        self._has_led, self._renewed_at = True, began_at

    def _note_lost(self, lease: Lease | None) -> None:
        if self._has_led and self._failure is None:
            since = None if lease is None else lease.taken_at.isoformat(timespec="seconds")
            log.warning("lease_lost", holder=self._holder, leader=None if lease is None else lease.holder, since=since)
            self._failure = WriterFencedError(lost_to(lease, self._federation, self._holder))

    def _note_failed(self, error: Exception) -> None:
        self._failure = error


def lost_to(lease: Lease | None, federation: str, holder: str) -> str:
    """Tell a leader that has lost its lease who has it now, why, and what to do."""
    if lease is None:
        other = "another federator leads"
    elif lease.holder is None:
        other = f"another federator led from {_at(lease)}, and has given the lease up since"
    else:
        other = f"another federator leads, {lease.holder}, since {_at(lease)}"
    return (
        f"federation {federation!r}: {other}. This one, {holder}, lost the lease: it was paused or cut off from "
        f"the database for longer than {LEASE_S:g} s, or the other was started without --standby. Nothing that it "
        "confirmed is lost. Start it again with --standby: it waits until it may lead"
    )


def _at(lease: Lease) -> str:
    return f"{lease.taken_at:%Y-%m-%d %H:%M:%S} UTC"
