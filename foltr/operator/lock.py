"""The lock of an operator's folder: two commands take turns."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from foltr.errors import SettingsError

LOCK_WAIT_S = 30.0
_POLL_S = 0.05


@contextmanager
def locked(folder: Path, wait_s: float) -> Iterator[None]:
    try:
        descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SettingsError(f"operator: {folder}: {error.strerror}") from error
    try:
        give_up_at = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= give_up_at:
                    raise SettingsError(
                        f"operator: {folder} is in use by another foltr command for more than {wait_s:g} s; "
                        "try again when it is done"
                    ) from None
                time.sleep(_POLL_S)
        yield
    finally:
        # Closing lets go of the lock. The file stays: removing it would let two processes lock two files.
        os.close(descriptor)
