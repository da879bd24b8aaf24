"""Does a federator's transactions again and again while the database is away."""

import asyncio
import inspect
import random
from typing import Any, Final, Protocol, TypeVar, cast

import structlog

from foltr.errors import UnavailableError
from storage.database import is_transient

log = structlog.get_logger(__name__)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
# These are no transactions: what fails is done again later, by whoever asked for it.
_TRIED_ONCE: Final = {"destroy_key", "purge"}


class _Store(Protocol):
    def unavailable(self, error: Exception) -> UnavailableError:
        """Say in one line which database failed, why, and what to do."""


S = TypeVar("S", bound=_Store)


def patient(store: S, patience_s: float) -> S:
    """Give the store with each of its transactions done again while the database is away.

    What is written is safe to do again, and reading always is.

    Args:
        patience_s: how long one transaction is tried.

    Raises:
        UnavailableError: from a transaction, the database was away for longer than the patience.
    """
    return cast("S", _Patient(store, patience_s))


class _Patient:
    def __init__(self, store: _Store, patience_s: float) -> None:
        self._store = store
        self._patience_s = patience_s

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._store, name)
        if name in _TRIED_ONCE or not inspect.iscoroutinefunction(attribute):
            return attribute

        async def transaction(*args: Any, **options: Any) -> Any:
            loop = asyncio.get_running_loop()
            deadline, pause = loop.time() + self._patience_s, _FIRST_PAUSE_S
            while True:
                try:
                    return await attribute(*args, **options)
                except Exception as error:
                    if not is_transient(error):
                        raise
                    self._note_failure(error, is_last=loop.time() >= deadline)
                await asyncio.sleep(random.uniform(0.5, 1) * pause)  # noqa: S311 (spreads retries, no secret)
                pause = min(2 * pause, _LONGEST_PAUSE_S)

        # The next one is found where this one was looked for.
        setattr(self, name, transaction)
        return transaction

    def _note_failure(self, error: Exception, *, is_last: bool) -> None:
        cause = self._store.unavailable(error)
        if is_last:
            raise UnavailableError(
                f"{cause}, then start the federator again: nothing accepted is lost (tried for {self._patience_s:g} s)"
            ) from error
        log.warning("database_unavailable", cause=str(cause))
