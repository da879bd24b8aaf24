"""Notes why a federator ended by itself: afterwards nobody leads, and only its log would say why."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from foltr.core.errors import SettingsError, UnavailableError
from foltr.core.protocol.verdicts import Ending
from foltr.federator.deciding.state import KeyReplacedError
from foltr.storage.database import Database
from foltr.storage.errors import DataKeysError, MissingKeyError, SchemaNewerError, SchemaOlderError, WriterFencedError
from foltr.storage.leases import note_ended

_NOTED_WITHIN_S: Final = 5.0
# The first that fits; others follow from it.
_ENDINGS: Final = (
    (DataKeysError, Ending.DATA_KEYS_MISSING),
    (MissingKeyError, Ending.DATA_KEYS_MISSING),
    (KeyReplacedError, Ending.KEY_REPLACED),
    (WriterFencedError, Ending.LEASE_LOST),
    (SchemaOlderError, Ending.SCHEMA_OLDER),
    (SchemaNewerError, Ending.SCHEMA_NEWER),
    (SettingsError, Ending.SETTINGS_REFUSED),
    (UnavailableError, Ending.UNAVAILABLE),
)


@asynccontextmanager
async def ending_noted(database: Database, federation: str) -> AsyncIterator[None]:
    """Note the error with which the block ends, and let it go on."""
    try:
        yield
    except Exception as error:
        await note_ending(database, federation, error)
        raise


async def note_ending(database: Database, federation: str, error: Exception) -> None:
    """Note why a process ends, if the database takes it: the error itself matters more."""
    ending = next((ending for kind, ending in _ENDINGS if isinstance(error, kind)), Ending.FAILED)
    # Others may name a client, which may be erased; its log has them.
    is_nameless = isinstance(error, SettingsError | UnavailableError | WriterFencedError)
    # Not every reader of a verdict may know the database's address.
    detail = str(error).replace(database.location, "The database") if is_nameless else type(error).__name__
    with contextlib.suppress(Exception):
        async with asyncio.timeout(_NOTED_WITHIN_S), database.separate_pool() as pool:
            await note_ended(pool, federation, ending, detail)
