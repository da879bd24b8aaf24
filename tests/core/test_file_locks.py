"""What one process has others do not get, until it lets go of it."""

import os
import stat
from pathlib import Path

import pytest

from foltr.core.errors import DataError
from foltr.core.file_locks import create_private, lock_store, lock_within


def test_a_store_is_one_holders(tmp_path):
    """The other is told who has it, why and what to do; once that one has let go, it gets it. The lock's file stays."""
    path = tmp_path / "clicks.sqlite"
    lock = lock_store(path, "device store", "Name another.")
    with pytest.raises(
        DataError, match=rf"^device store {path}: the process {os.getpid()} has it open\. Name another\.$"
    ):
        lock_store(path, "device store", "Name another.")
    os.close(lock)
    os.close(lock_store(path, "device store", "Name another."))
    assert stat.S_IMODE((tmp_path / "clicks.sqlite.lock").stat().st_mode) == 0o600
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"store\.lock: Not a directory\. Name a writable file with --store"):
        lock_store(tmp_path / "file" / "store", "helper store", "")
    with pytest.raises(DataError, match="store /: it is a folder"):
        lock_store(Path("/"), "store", "")


def test_a_store_is_its_owners_to_read(tmp_path):
    """From the beginning; what is there is left as it is, and what cannot be made is said by whoever opens it."""
    create_private(tmp_path / "store")
    assert stat.S_IMODE((tmp_path / "store").stat().st_mode) == 0o600
    (tmp_path / "store").write_text("rows")
    create_private(tmp_path / "store")
    assert (tmp_path / "store").read_text() == "rows"
    create_private(tmp_path / "nowhere" / "store")


def test_a_lock_is_waited_for_and_not_for_ever(tmp_path):
    first, second = (os.open(tmp_path, os.O_RDONLY) for _ in range(2))
    lock_within(first, 0.0)
    with pytest.raises(TimeoutError):
        lock_within(second, 0.1)
    os.close(first)
    lock_within(second, 0.0)
    os.close(second)
