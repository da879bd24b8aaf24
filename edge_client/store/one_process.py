"""A store is open in one process: a lock keeps others out, and a process that is forked from it has no part in it."""

import contextlib
import ctypes
import fcntl
import os
import sqlite3
import weakref
from pathlib import Path
from typing import Protocol

from foltr.errors import DataError


class OpenFile(Protocol):
    """A store as long as it is open."""

    def abandon(self) -> None:
        """Have no part in the file any more: this process was forked from the one that opened it."""


_open_files: weakref.WeakSet[OpenFile] = weakref.WeakSet()


def remember_open(file: OpenFile) -> None:
    """Have a store abandoned by every process that is forked from this one."""
    _open_files.add(file)


def take_lock(path: str) -> int | None:
    """Lock the store for this process, in a file beside it that says who has it; it ends with the process.

    Raises:
        DataError: another has it.
    """
    if path == ":memory:" or not Path(path).parent.is_dir():
        return None  # SQLite says what is wrong with the folder
    lock = Path(f"{path}.lock")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise DataError(f"device store {path}: {lock}: {error.strerror}. Name a writable file with --store") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
    except BlockingIOError as error:
        holder = os.read(descriptor, 32).decode(errors="replace").strip()
        os.close(descriptor)
        who = f"the process {holder}" if holder.isdecimal() else "another process"
        raise DataError(
            f"device store {path}: {who} has it open. A store belongs to one running client: end that process, "
            "or name another file with store= or --store"
        ) from error
    except OSError as error:
        os.close(descriptor)
        raise DataError(f"device store {path}: {lock}: {error.strerror}. Free space on its disk") from error
    return descriptor


def create_private(path: str) -> None:
    """Make the file, if it is to be one, so that only its owner can read the clicks in it; SQLite's others follow."""
    if path != ":memory:":
        with contextlib.suppress(FileExistsError, OSError):  # what is wrong with the path, SQLite will say
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


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
