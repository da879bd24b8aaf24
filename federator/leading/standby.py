"""Waits for the lease of a federation: a standby watches it, and connects to no broker before it may lead.

It takes a lease that was given up at once. An expired lease it takes only after watching without a failure for as long
as a lease lasts: after an outage of the database leases have expired because nobody could renew them. If the tables
have another version, or its data keys cannot decrypt the updates, it neither waits nor leads.
"""

import asyncio
import contextlib
import math
import time

import structlog

from foltr.core.alive_file import AliveFile
from foltr.storage.cipher import require_keys
from foltr.storage.database import Database, is_transient
from foltr.storage.leases import (
    LEASE_S,
    Lease,
    end_sessions,
    find_lease,
    forget_standby,
    note_standby,
    renew_lease,
    take_lease,
)
from foltr.storage.migrate import require_head

log = structlog.get_logger(__name__)

_LOOK_EVERY_S = 0.5
_NOTE_EVERY_S = 5.0
_SOONEST_S = 0.02


class Standby:
    """One process that waits to lead one federation.

    Args:
        holder: the name of the process.
        alive_file: touched whenever the database answers.

    Attributes:
        waits: whether it waits now.
    """

    def __init__(self, db: Database, federation: str, holder: str, alive_file: AliveFile) -> None:
        self._db = db
        self._federation = federation
        self._holder = holder
        self._alive_file = alive_file
        self._answers_since = -math.inf
        self._noted_at = -math.inf
        self._leader: str | None = ""
        self._knows_keys = False
        self.waits = False

    async def wait_for_lease(self, stopped: asyncio.Event) -> bool:
        """Wait until the lease is free, and take it; False if ``stopped`` came first.

        Raises:
            SettingsError: the tables now have another version, or its folder of data keys belongs to another database.
        """
        self._answers_since, self._noted_at, self._leader = -math.inf, -math.inf, ""
        self._knows_keys = False
        self.waits = True
        try:
            while not stopped.is_set():
                look_again_in_s = await self._look()
                if look_again_in_s is None:
                    return True
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(look_again_in_s):
                        await stopped.wait()
            return False
        finally:
            self.waits = False
            with contextlib.suppress(Exception):  # a leftover row expires after a while
                await forget_standby(self._db, self._federation, self._holder)

    async def _look(self) -> float | None:
        """Look once: None if the lease was taken, else the seconds until the next look."""
        now = time.monotonic()
        try:
            lease = await find_lease(self._db, self._federation)
            if not self._knows_keys:
                await self._require_keys()
                self._knows_keys = True
            if now - self._noted_at >= _NOTE_EVERY_S:
                await note_standby(self._db, self._federation, self._holder)
                self._noted_at = now
            self._answered(lease, now)
            if not self._is_free(lease, now):
                left_s = math.inf if lease is None or not lease.is_held else lease.left_s
                return max(_SOONEST_S, min(_LOOK_EVERY_S, left_s))
            if await self._take_lease(lease):
                return None
            # Another standby was first, or the leader works.
            self._answers_since = time.monotonic()
        except Exception as error:
            if not is_transient(error):
                await require_head(self._db)  # tables of another version, or none, explain more than this error
                raise
            if self._answers_since < math.inf:
                log.warning("database_unavailable", cause=str(self._db.unavailable(error)))
            self._answers_since = math.inf
        return _LOOK_EVERY_S

    async def _take_lease(self, lease: Lease | None) -> bool:
        """Take a free lease; False if another process was first."""
        # The tables may have been upgraded while it waited; older software must not write to them.
        await require_head(self._db)
        await self._require_keys()
        if self._is_own(lease):
            return await renew_lease(self._db, self._federation, self._holder) is not None
        if not await take_lease(self._db, self._federation, self._holder):
            return False
        former = None if lease is None else lease.holder
        log.info("lease_taken", holder=self._holder, after=former)
        if former is not None:
            await end_sessions(self._db, former)
        return True

    async def _require_keys(self) -> None:
        """Check that its data keys decrypt the newest updates: otherwise it could make no model as leader."""
        if self._db.keys is not None:
            self._db.keys.clear_cache()  # the folder may have changed since the last look
        await require_keys(self._db, self._federation)

    def _is_own(self, lease: Lease | None) -> bool:
        """Whether it has the lease: it took it, and lost the database before it could go on."""
        return lease is not None and lease.holder == self._holder

    def _answered(self, lease: Lease | None, now: float) -> None:
        self._alive_file.touch()
        if self._answers_since == math.inf:
            self._answers_since = now
        leader = None if lease is None or not lease.is_held else lease.holder
        if leader != self._leader:
            log.info("standby_waiting", holder=self._holder, leader=leader)
            self._leader = leader

    def _is_free(self, lease: Lease | None, now: float) -> bool:
        if lease is None or lease.holder is None or self._is_own(lease):
            return True
        return not lease.is_held and now - self._answers_since >= LEASE_S
