"""Runs a federator's transactions, each again and again while the database is away."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from foltr.errors import UnavailableError
from storage.database import Database, is_transient

log = structlog.get_logger(__name__)
T = TypeVar("T")

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0


class Persistence:
    """Called with a transaction, it returns what that returns.

    Args:
        patience_s: how long one transaction is tried.
    """

    def __init__(self, db: Database, patience_s: float) -> None:
        self._db = db
        self._patience_s = patience_s

    async def __call__(self, transaction: Callable[[], Awaitable[T]]) -> T:
        """Run the transaction until it is through.

        Raises:
            UnavailableError: the database was away for longer than the patience.
        """
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + self._patience_s, _FIRST_PAUSE_S
        while True:
            try:
                return await transaction()
            except Exception as error:
                if not is_transient(error):
                    raise
                cause = self._db.unavailable(error)
                if loop.time() >= deadline:
                    raise UnavailableError(
                        f"{cause}, then start the federator again: nothing accepted is lost "
                        f"(tried for {self._patience_s:g} s)"
                    ) from error
                log.warning("database_unavailable", cause=str(cause))
            await asyncio.sleep(random.uniform(0.5, 1) * pause)  # noqa: S311 (spreads retries, no secret)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
