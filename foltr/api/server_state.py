"""State of a running server: database, tokens, access to the broker, rate limits and shared readings."""

import asyncio
import time
from dataclasses import dataclass, field, replace
from typing import Final

from foltr.api.coalescing import CoalescedReads
from foltr.api.limits import RateLimiter
from foltr.api.tokens import TokenFile
from foltr.core.errors import SettingsError, UnavailableError
from foltr.core.operator.credentials import Credentials
from foltr.core.protocol.verdicts import Finding, Reason, Verdict
from foltr.operations.overview import Overview, read_overview
from foltr.operations.verdict import judge, verdict_without_database
from foltr.storage.database import Database
from foltr.storage.errors import DatabaseGoneError, SchemaDiffersError
from foltr.storage.migrate import require_head
from foltr.storage.sqlite_file import PUT_BACK

# Readers may not know the database's address. Where its operator types the command, this variable has it.
_VALUES: Final = {"URL": '"$FOLTR_DB_URL"'}
AWAY = "The database cannot be used now. Its operator sees why with: foltr doctor --db URL"
# How long a condition is reused: it limits the cost of callers without a token.
_READ_EVERY_S = 1.0
_READ_WITHIN_S = 5.0


@dataclass(frozen=True)
class Condition:
    """How the federation is, and whether its database can be read.

    Attributes:
        next_step: what to do if the database cannot be read; None if it can.
        cause: why it cannot. For the log only, as it may reveal the database's address.
    """

    verdict: Verdict
    next_step: str | None = None
    cause: str | None = None


def away(cause: str | None = None) -> Condition:
    """Return the condition without a database."""
    return Condition(_without_database(UnavailableError(AWAY)), AWAY, cause)


def _without_database(error: Exception) -> Verdict:
    return verdict_without_database(error, _VALUES)


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
    _condition: tuple[float, Condition] | None = None
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def overview(self) -> Overview:
        """Read the federation's overview from tables of our version.

        Raises:
            UnavailableError, SettingsError: as of `read_overview`.
            SchemaDiffersError: as of `require_head`.
        """
        return await self.coalesced.read("overview", self._read_overview)

    async def _read_overview(self) -> Overview:
        await require_head(self.db)
        return replace(await read_overview(self.db, self.federation), values=_VALUES)

    async def condition(self) -> Condition:
        """Return how the federation is; without a database, that it is down. Cached for a second."""
        async with self._reading:
            if self._condition is None or time.monotonic() - self._condition[0] > _READ_EVERY_S:
                found = await self._ask()
                self._condition = (time.monotonic(), found)
            return self._condition[1]

    async def _ask(self) -> Condition:
        try:
            async with asyncio.timeout(_READ_WITHIN_S):
                await self.db.follow_file()
                return Condition(judge(await self.overview()))
        # The errors themselves name the database's address.
        except SchemaDiffersError as error:
            step = error.next_step
            return Condition(_without_database(type(error)(step)), step, str(error))
        except SettingsError as error:
            step = "Start the federator of this federation, or name another one with --federation."
            return Condition(Verdict.of([Finding(Reason.FEDERATOR_STOPPED, step)]), step, str(error))
        except DatabaseGoneError as error:
            return Condition(_without_database(DatabaseGoneError(PUT_BACK)), PUT_BACK, str(error))
        except TimeoutError:
            return away(f"{self.db.location} did not answer within {_READ_WITHIN_S:g} s")
        except Exception as error:  # noqa: BLE001 (drivers raise anything: the database is unavailable)
            return away(str(self.db.unavailable(error)))
