"""A store is open in one process: a lock keeps others out, and a process that is forked from it has no part in it."""

import ctypes
import os
import sqlite3
import weakref
from pathlib import Path
from typing import Protocol

from foltr.core.file_locks import lock_store

_ALONE = "A store belongs to one running client: end that process, or name another file with store= or --store"


class OpenFile(Protocol):
    """A store as long as it is open."""

    def abandon(self) -> None:
        """Have no part in the file any more: this process was forked from the one that opened it."""


_open_files: weakref.WeakSet[OpenFile] = weakref.WeakSet()


def remember_open(file: OpenFile) -> None:
    """Have a store abandoned by every process that is forked from this one."""
    _open_files.add(file)


def take_lock(path: str) -> int | None:
    """Lock the store for this process, as `foltr.core.file_locks.lock_store` does; None for one that is no file.

    Raises:
        DataError: another has it.
    """
    if path == ":memory:" or not Path(path).parent.is_dir():
        return None  # SQLite says what is wrong with the folder
    return lock_store(Path(path), "device store", _ALONE)


def leave_open(database: sqlite3.Connection) -> None:
    """See that a connection which was inherited by a fork is never closed.

    To close it, as the end of the process would, writes SQLite's log into the file and deletes it, although the other
    process writes there: what it stored since would be gone with its power.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(database))


def _abandon_all() -> None:
    for file in list(_open_files):
        file.abandon()
    _open_files.clear()


os.register_at_fork(after_in_child=_abandon_all)
