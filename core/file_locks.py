"""A store, or a folder, is one process's at a time: a lock keeps others out.

It ends with the process that has it, however that ends. Its file stays: to remove it would let two processes lock two
files.
"""

import contextlib
import fcntl
import os
import time
from pathlib import Path

from foltr.core.errors import DataError

_POLL_S = 0.05


def lock_store(path: Path, kind: str, alone: str) -> int:
    """Lock a store for this process, in a file beside it that says who has it; return the lock, which ends when closed.

    Args:
        kind: of store, in words.
        alone: why it is one process's, and what to do.

    Raises:
        DataError: another process has it, or the lock's file cannot be written.
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
        raise DataError(f"{kind} {path}: {who} has it open. {alone}") from error
    except OSError as error:
        os.close(descriptor)
        raise DataError(f"{kind} {path}: {lock}: {error.strerror}. Free space on its disk") from error
    return descriptor


def create_private(path: Path) -> None:
    """Make a store's file, if there is none, so that only its owner can read it; those that SQLite adds follow it."""
    with contextlib.suppress(OSError):  # what is wrong with the path, SQLite will say
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def lock_within(descriptor: int, wait_s: float) -> None:
    """Lock an open file or folder; TimeoutError where another process did not let go of it within ``wait_s``."""
    give_up_at = time.monotonic() + wait_s
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= give_up_at:
                raise TimeoutError from None
            time.sleep(_POLL_S)
