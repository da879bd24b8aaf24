"""The lock of an operator's folder: two commands take turns."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from foltr.core.errors import SettingsError
from foltr.core.file_locks import lock_within

LOCK_WAIT_S = 30.0


@contextmanager
def locked(folder: Path, wait_s: float) -> Iterator[None]:
    try:
        descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SettingsError(f"operator: {folder}: {error.strerror}") from error
    try:
        try:
            lock_within(descriptor, wait_s)
        except TimeoutError:
            raise SettingsError(
                f"operator: {folder} is in use by another foltr command for more than {wait_s:g} s; "
                "try again when it is done"
            ) from None
        yield
    finally:
        os.close(descriptor)
