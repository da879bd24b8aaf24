"""State of a running server: database, tokens, access to the broker, rate limits and shared readings."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from foltr.api.limits import RateLimiter
from foltr.api.tokens import TokenFile
from foltr.core.errors import SettingsError
from foltr.core.operator.credentials import Credentials
from foltr.operations.overview import Overview, read_overview
from foltr.storage.database import Database
from foltr.storage.federations import get_federation
from foltr.storage.migrate import require_head

T = TypeVar("T")

AWAY = "The database cannot be used now. Its operator sees why with: foltr doctor --db URL"
# How long a readiness result is reused: it limits the cost of callers without a token.
_READY_FOR_S = 1.0
_READY_WITHIN_S = 5.0


class Together:
    """Shared readings by key: a caller shares a reading that began after its call with all who called before it began.

    An answer is therefore never older than its question, and a key has at most two readings: the running one, and the
    next, which waits for it.
    """

    def __init__(self) -> None:
        self._running: dict[Hashable, asyncio.Task[Any]] = {}
        self._next: dict[Hashable, asyncio.Task[Any]] = {}

    async def read(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        """Return the result of ``make``, or raise its error. Callers with the same key share it."""
        following: asyncio.Task[T] | None = self._next.get(key)
        if following is None:
            following = asyncio.create_task(self._read(key, self._running.get(key), make))
            following.add_done_callback(_look_at_its_error)
            self._next[key] = following
        # A caller that goes away must not cancel the reading of the others.
        return await asyncio.shield(following)

    async def _read(self, key: Hashable, before: "asyncio.Task[Any] | None", make: Callable[[], Awaitable[T]]) -> T:
        if before is not None:
            await asyncio.wait([before])
        self._running[key] = self._next.pop(key)
        try:
            return await make()
        finally:
            if self._running.get(key) is asyncio.current_task():
                del self._running[key]


def _look_at_its_error(task: "asyncio.Task[Any]") -> None:
    # If all callers have gone, asyncio would warn about an error that was never retrieved.
    if not task.cancelled():
        task.exception()


@dataclass(frozen=True)
class Readiness:
    """Whether queries can be answered, and if not, what to do.

    Attributes:
        cause: the full cause. For the log only, as it may reveal the database's address.
    """

    ready: bool
    next_step: str | None = None
    cause: str | None = None


@dataclass
class Served:
    """One federation as this process serves it.

    Attributes:
        credentials: the operator's access to the broker, for forwarding signed orders. None disables forwarding.
        by_token, by_address: rate limits for valid tokens, and for addresses that send no valid token.
        together: readings shared by all concurrent callers.
    """

    db: Database
    federation: str
    tokens: TokenFile
    credentials: "Credentials | None" = None
    by_token: RateLimiter = field(default_factory=lambda: RateLimiter(20.0, 100))
    by_address: RateLimiter = field(default_factory=lambda: RateLimiter(2.0, 30))
    together: Together = field(default_factory=Together)
    _readiness: tuple[float, Readiness] | None = None
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def readiness(self) -> Readiness:
        """Return whether the database answers, has this version and knows this federation. Cached for a second."""
        async with self._asking:
            if self._readiness is None or time.monotonic() - self._readiness[0] > _READY_FOR_S:
                found = await self._ask()
                self._readiness = (time.monotonic(), found)
            return self._readiness[1]

    async def overview(self) -> Overview:
        """Read the federation's overview. Raises UnavailableError or SettingsError as `read_overview` does."""
        return await self.together.read("overview", lambda: read_overview(self.db, self.federation))

    async def _ask(self) -> Readiness:
        try:
            async with asyncio.timeout(_READY_WITHIN_S):
                await self.db.follow_file()
                await require_head(self.db)
                if await get_federation(self.db, self.federation) is None:
                    step = "Start the federator of this federation, or name another one with --federation."
                    return Readiness(
                        ready=False, next_step=step, cause=f"federation {self.federation!r} does not exist"
                    )
        except SettingsError as error:
            return Readiness(ready=False, next_step="Bring the database up to date: foltr db upgrade", cause=str(error))
        except TimeoutError:
            cause = f"{self.db.location} did not answer within {_READY_WITHIN_S:g} s"
            return Readiness(ready=False, next_step=AWAY, cause=cause)
        except Exception as error:  # noqa: BLE001 (drivers raise anything: the database is unavailable)
            return Readiness(ready=False, next_step=AWAY, cause=str(self.db.unavailable(error)))
        return Readiness(ready=True)
