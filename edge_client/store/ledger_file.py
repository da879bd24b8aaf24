"""Reads the ledger from a device's store file, without the device."""

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from foltr.core.errors import DataError, MessageError, SettingsError
from foltr.core.protocol.codec import open_envelope
from foltr.core.protocol.policies import Policy
from foltr.edge_client.store.bounds import read_bounds
from foltr.edge_client.store.ledger import LedgerEntry, read_entries
from foltr.edge_client.store.schema import SCHEMA_VERSION
from foltr.edge_client.store.store_file import take_lock


@dataclass(frozen=True)
class LedgerFile:
    """A store's record of its client's participations.

    Attributes:
        owner: federation and client, as ``federation/client``; None if the client was forgotten.
        policy: the newest that the device knows; None without one.
        claimed: under a policy, the number of participations by the federation's count; None if not yet reported.
    """

    owner: str | None
    policy: Policy | None
    entries: list[LedgerEntry]
    claimed: int | None = None


def read_ledger(path: Path) -> LedgerFile:
    """Read the ledger in a store's file without changing it.

    Raises:
        SettingsError: it is not a file, or not a store of this version.
        DataError: a device has it open, or it cannot be read.
    """
    if not path.is_file():
        raise SettingsError(f"store: {path} is not a file; name a device's store")
    lock = take_lock(str(path))
    try:
        with closing(sqlite3.connect(path)) as database:
            return _read(database, path)
    except (sqlite3.Error, MessageError) as error:
        raise DataError(f"device store {path}: {error}") from error
    finally:
        if lock is not None:
            os.close(lock)


def _read(database: sqlite3.Connection, path: Path) -> LedgerFile:
    database.execute("PRAGMA query_only = ON")
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if version != SCHEMA_VERSION:
        raise SettingsError(
            f"store: {path} is not a device's store of version {SCHEMA_VERSION}, which this software reads"
        )
    (owner,) = database.execute("SELECT federation || '/' || client_id FROM owner").fetchone()
    (policy,) = database.execute("SELECT value FROM meta WHERE key = 'policy'").fetchone() or (None,)
    return LedgerFile(
        owner=owner,
        policy=None if policy is None else open_envelope(policy).read(Policy),
        entries=read_entries(database),
        claimed=None if policy is None else read_bounds(database, policy).watermark,
    )
