"""What all workers of a test run need, and one of them makes: the others wait for it, and take it as it is."""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

VARIABLE = "FOLTR_TEST_MADE_ONCE"
"""Names the folder of this run; `conftest` makes and removes it."""


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """Return what ``make`` has written at a path of that name, here or in another worker; nobody changes it."""
    folder = Path(os.environ[VARIABLE])
    made = folder / name
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            being_made = folder / f"{name}.new"
            try:
                make(being_made)
            except BaseException:
                # initdb, for one, begins in an empty folder only.
                shutil.rmtree(being_made) if being_made.is_dir() else being_made.unlink(missing_ok=True)
                raise
            being_made.rename(made)
    return made
