"""Secrets on disk: closed to others from the first byte, whole or not there, and one writer at a time."""

import os
import stat
import threading
import time

import pytest
from support.waiting import PATIENCE_S

from foltr.broker.files import Owner, locked, owner_named, owner_of, replace_file

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


def test_a_secret_is_never_open(tmp_path, monkeypatch):
    """Not even for the moment before its mode is set, and whatever the umask is."""
    modes, fsync = [], os.fsync

    def look(descriptor):
        modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", look)
    before = os.umask(0)
    try:
        replace_file(tmp_path / "key", "secret")
        replace_file(tmp_path / "ca", "public", mode=0o644)
    finally:
        os.umask(before)
    assert modes == [0o600, 0o644]
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


def test_a_file_is_replaced_and_not_written_through(tmp_path):
    """A link in its place is replaced itself; what it points to is somebody else's."""
    (tmp_path / "elsewhere").write_text("theirs")
    (tmp_path / "key").symlink_to(tmp_path / "elsewhere")
    replace_file(tmp_path / "key", "ours")
    assert (tmp_path / "elsewhere").read_text() == "theirs"
    assert (tmp_path / "key").read_text() == "ours"


def test_nothing_is_left_where_it_cannot_be_written(tmp_path):
    """Where a folder is in its place, the folder stays and the temporary file goes."""
    (tmp_path / "key").mkdir()
    with pytest.raises(OSError, match="key"):
        replace_file(tmp_path / "key", "secret")
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


@only_root
def test_a_file_is_given_to_its_reader(tmp_path):
    """By root, who is the only one who can; to nobody where the user is of another machine, or an image."""
    replace_file(tmp_path / "key", "secret", owner=Owner(65534, 65534))
    assert owner_of(tmp_path / "key") == Owner(65534, 65534)
    assert owner_named("root") == Owner(0, 0)
    assert owner_named("nobody-of-this-name") is None
    assert owner_of(tmp_path / "none") is None


def test_one_at_a_time(tmp_path):
    """The second waits for the end of the first, which may be an error."""
    order = []

    def second():
        with locked(tmp_path):
            order.append("second")

    def first():
        with locked(tmp_path):
            thread.start()
            time.sleep(0.05)
            order.append("first")
            raise KeyError

    thread = threading.Thread(target=second)
    with pytest.raises(KeyError):
        first()
    thread.join(PATIENCE_S)
    assert order == ["first", "second"]
