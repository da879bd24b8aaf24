"""Waits for the lease of a federation: a standby looks at it, and connects to no broker before it may lead.

It takes a lease that was given up at once. One that is over it takes only after it has looked for as long as a lease
lasts without a failure: a database that is back after an outage has leases that nobody could renew.
"""

import asyncio
import contextlib
import math
import time

import structlog

from foltr.alive_file import AliveFile
from storage.database import Database, is_transient
from storage.leases import LEASE_S, Lease, end_sessions, find_lease, forget_standby, note_standby, take_lease

log = structlog.get_logger(__name__)

_LOOK_EVERY_S = 0.5
_NOTE_EVERY_S = 5.0
_SOONEST_S = 0.02


class Standby:
    """One process that waits to lead one federation.

    Args:
        holder: what the process is called.
        alive_file: touched with each look that the database answers.

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
        self.waits = False

    async def take(self, stopped: asyncio.Event) -> bool:
        """Wait until the lease can be had, and take it; False if ``stopped`` came first."""
        self._answers_since, self._noted_at, self._leader = -math.inf, -math.inf, ""
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
            with contextlib.suppress(Exception):  # one that is not forgotten is gone after a while
                await forget_standby(self._db, self._federation, self._holder)

    async def _look(self) -> float | None:
        """Look once: None if the lease was taken, else after how many seconds to look again."""
        now = time.monotonic()
        try:
            lease = await find_lease(self._db, self._federation)
            if now - self._noted_at >= _NOTE_EVERY_S:
                await note_standby(self._db, self._federation, self._holder)
                self._noted_at = now
            self._answered(lease, now)
            if not self._is_free(lease, now):
                left_s = math.inf if lease is None or not lease.is_held else lease.left_s
                return max(_SOONEST_S, min(_LOOK_EVERY_S, left_s))
            if await take_lease(self._db, self._federation, self._holder):
                former = None if lease is None else lease.holder
                log.info("lease_taken", holder=self._holder, after=former)
                if former is not None:
                    await end_sessions(self._db, former)
                return None
            # Another one was first, or the leader is at work.
            self._answers_since = time.monotonic()
        except Exception as error:
            if not is_transient(error):
                raise
            if self._answers_since < math.inf:
                log.warning("database_unavailable", cause=str(self._db.unavailable(error)))
            self._answers_since = math.inf
        return _LOOK_EVERY_S

    def _answered(self, lease: Lease | None, now: float) -> None:
        self._alive_file.touch()
        if self._answers_since == math.inf:
            self._answers_since = now
        leader = None if lease is None or not lease.is_held else lease.holder
        if leader != self._leader:
            log.info("standing_by", holder=self._holder, leader=leader)
            self._leader = leader

    def _is_free(self, lease: Lease | None, now: float) -> bool:
        if lease is None or lease.holder is None:
            return True
        return not lease.is_held and now - self._answers_since >= LEASE_S
