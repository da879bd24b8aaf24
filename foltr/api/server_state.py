"""State of a running server: database, tokens, access to the broker, rate limits and shared readings."""

import asyncio
import time
from dataclasses import dataclass, field

from foltr.api.coalescing import CoalescedReads
from foltr.api.limits import RateLimiter
from foltr.api.tokens import TokenFile
from foltr.core.errors import SettingsError, UnavailableError
from foltr.core.operator.credentials import Credentials
from foltr.core.protocol.verdicts import Verdict
from foltr.operations.overview import Overview, read_overview
from foltr.operations.verdict import judge, verdict_without_database
from foltr.storage.database import Database
from foltr.storage.errors import SchemaDiffersError
from foltr.storage.federations import get_federation
from foltr.storage.migrate import require_head

AWAY = "The database cannot be used now. Its operator sees why with: foltr doctor --db URL"
# How long a readiness result is reused: it limits the cost of callers without a token.
_READY_FOR_S = 1.0
_READY_WITHIN_S = 5.0


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
class ServerState:
    """One federation as this process serves it.

    Attributes:
        credentials: the operator's access to the broker, for forwarding signed orders. None disables forwarding.
        by_token, by_address: rate limits for valid tokens, and for addresses that send no valid token.
        coalesced: readings shared by all concurrent callers.
    """

    db: Database
    federation: str
    tokens: TokenFile
    credentials: "Credentials | None" = None
    by_token: RateLimiter = field(default_factory=lambda: RateLimiter(20.0, 100))
    by_address: RateLimiter = field(default_factory=lambda: RateLimiter(2.0, 30))
    coalesced: CoalescedReads = field(default_factory=CoalescedReads)
    _readiness: tuple[float, Readiness] | None = None
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _verdict: tuple[float, Verdict] | None = None
    _judging: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def readiness(self) -> Readiness:
        """Return whether the database answers, has this version and knows this federation. Cached for a second."""
        async with self._asking:
            if self._readiness is None or time.monotonic() - self._readiness[0] > _READY_FOR_S:
                found = await self._ask()
                self._readiness = (time.monotonic(), found)
            return self._readiness[1]

    async def overview(self) -> Overview:
        """Read the federation's overview. Raises UnavailableError or SettingsError as `read_overview` does."""
        return await self.coalesced.read("overview", lambda: read_overview(self.db, self.federation))

    async def verdict(self) -> Verdict:
        """Return the verdict on the federation; without a database, that it is down. Cached for a second."""
        async with self._judging:
            if self._verdict is None or time.monotonic() - self._verdict[0] > _READY_FOR_S:
                self._verdict = (time.monotonic(), await self._judge())
            return self._verdict[1]

    async def _judge(self) -> Verdict:
        try:
            async with asyncio.timeout(_READY_WITHIN_S):
                await self.db.follow_file()
                await require_head(self.db)
                return judge(await self.overview())
        except SchemaDiffersError:
            # The error itself names the database's address.
            return verdict_without_database(SchemaDiffersError("Bring the database up to date: foltr db upgrade."))
        except Exception:  # noqa: BLE001 (drivers raise anything: the database is unavailable)
            return verdict_without_database(UnavailableError(AWAY))

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
