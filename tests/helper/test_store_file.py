"""The file of a helper's store: whose it is, one process at a time, and for its owner's eyes only."""

import contextlib
import os
import sqlite3
import stat
import sys

import pytest
from support.completed_process import completed

from foltr.core.errors import DataError, SettingsError
from foltr.helper.store import HelperStore

OWNER = "mail/north"
OPENING = """
import sys
from pathlib import Path
from foltr.helper.store import HelperStore
HelperStore(Path(sys.argv[1]), sys.argv[2], exclusive=True)
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "north.sqlite"


@contextlib.contextmanager
def opened(path, owner=OWNER, *, exclusive=True):
    store = HelperStore(path, owner, exclusive=exclusive)
    try:
        yield store
    finally:
        store.close()


@pytest.mark.parametrize("other", ["mail/south", "photos/north"])
def test_a_store_has_one_owner(path, other):
    """What one helper has opened says nothing of another; the refusal names both."""
    with opened(path):
        pass
    with pytest.raises(SettingsError, match=f"belongs to {OWNER}, not to {other}"), opened(path, other):
        pass
    with opened(path):
        pass


@pytest.mark.parametrize(
    ("made_by", "says"),
    [
        ("PRAGMA user_version = 2", r"is of version 2, .* version 1 only"),
        ("CREATE TABLE meta (key TEXT, value TEXT)", "not a database of foltr"),
        (None, "file is not a database"),
    ],
)
def test_a_store_of_other_software_is_refused(path, made_by, says):
    """Better no helper than one that misreads its own memory; its lock does not outlive the refusal."""
    if made_by is None:
        path.write_bytes(b"no database, but longer than the header of one is" * 10)
    else:
        if "version" in made_by:
            with opened(path):
                pass
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.execute(made_by)
    for _ in range(2):
        with pytest.raises((SettingsError, DataError), match=says), opened(path):
            pass


def test_a_folder_that_is_not_there_is_said(tmp_path):
    """With what to do; no file is left."""
    with pytest.raises(DataError, match="No such file"), opened(tmp_path / "none" / "north.sqlite"):
        pass


def test_only_its_owner_can_read_it(path):
    """The file has private keys; as have SQLite's own beside it."""
    umask = os.umask(0)
    try:
        with opened(path) as store:
            store.make_sealing_keys(0)[0]
            for file in path.parent.iterdir():
                assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0, file
    finally:
        os.umask(umask)


def test_two_processes_do_not_answer_for_one_helper(path):
    """The second one is refused, with the first one's number; once the first has ended it is not."""
    with opened(path):
        second = completed([sys.executable, "-c", OPENING, str(path), OWNER])
        assert f"the process {os.getpid()} has it open" in second.stderr
        with pytest.raises(DataError, match="has it open"), opened(path):
            pass
    with opened(path):
        pass


def test_a_key_is_made_beside_a_process_that_has_it_open(path):
    """So that a running helper prepares the next policy; it finds the key when the policy comes."""
    with opened(path) as store:
        with opened(path, exclusive=False) as beside:
            public = beside.make_sealing_keys(0)[0]
        assert store.sealing_key(public).public == public


def test_a_failed_transaction_changes_nothing(path):
    """Nor does it keep the next one from beginning."""
    with opened(path) as store:
        with pytest.raises(DataError, match="Nothing was changed"):
            set_twice(store)
        assert store.meta("roster") is None
        store.set_meta("roster", b"\x01")
        assert store.meta("roster") == b"\x01"


def test_a_commit_is_on_disk_when_it_returns(path):
    """FULL is what makes a log that is written ahead survive a loss of power; deleted rows are overwritten."""
    with opened(path) as store:
        assert store.rows("PRAGMA synchronous") == [(2,)]
        assert store.rows("PRAGMA journal_mode") == [("wal",)]
        assert store.rows("PRAGMA secure_delete") == [(1,)]


def set_twice(store):
    with store.transaction() as cursor:
        for _ in range(2):
            cursor.execute("INSERT INTO meta (key, value) VALUES ('roster', x'00')")
