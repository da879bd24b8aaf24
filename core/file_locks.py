"""Lets one process at a time use a store or a folder, by a lock.

The lock ends with its process, however that ends. Its file stays: removing it would let two processes lock two files.
"""

import contextlib
import fcntl
import os
import time
from pathlib import Path

from foltr.core.errors import DataError

_POLL_S = 0.05


class StoreInUseError(DataError):
    """Another process has the store open."""


def lock_store(path: Path, kind: str, alone: str) -> int:
    """Lock a store for this process, in a file beside it with the process's id; close the returned lock to end it.

    Args:
        kind: of store, for messages.
        alone: why only one process may use it, and what to do.

    Raises:
        StoreInUseError: another process has it.
        DataError: the lock's file cannot be written.
    """
    if not path.name:
        raise DataError(f"{kind} {path}: it is a folder. Name a writable file with --store")
    lock = path.with_name(f"{path.name}.lock")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise DataError(f"{kind} {path}: {lock}: {error.strerror}. Name a writable file with --store") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
    except BlockingIOError as error:
        holder = os.read(descriptor, 32).decode(errors="replace").strip()
        os.close(descriptor)
        who = f"the process {holder}" if holder.isdecimal() else "another process"
        raise StoreInUseError(f"{kind} {path}: {who} has it open. {alone}") from error
    except OSError as error:
        os.close(descriptor)
        raise DataError(f"{kind} {path}: {lock}: {error.strerror}. Free space on its disk") from error
    return descriptor


def create_private(path: Path) -> None:
    """Create a store's file if it is missing, readable only for its owner; SQLite's other files get the same mode."""
    with contextlib.suppress(OSError):  # SQLite reports what is wrong with the path
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def lock_within(descriptor: int, wait_s: float) -> None:
    """Lock an open file or folder; TimeoutError if another process held it for all of ``wait_s``."""
    give_up_at = time.monotonic() + wait_s
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= give_up_at:
                raise TimeoutError from None
            time.sleep(_POLL_S)
