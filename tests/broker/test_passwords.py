"""Mosquitto's password file: what Mosquitto's own tool would write, changed in one step."""

import os
import shutil
import subprocess
import threading

import pytest

from foltr.broker.files import Owner
from foltr.broker.passwords import (
    accepts,
    generate_password,
    password_line,
    prepare_file,
    remove_user,
    set_users,
    users,
)
from foltr.core.errors import SettingsError

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


def test_a_known_line_is_understood(tmp_path):
    """One that mosquitto_passwd 2.0.11 wrote for the password ``secret``."""
    line = (
        "ann:$7$101$ZGKUOqFiuLiQj7DL$"
        "Qa73CxIOmO0EHlPb1oDGoUhGSab77JUeQ0lYT0WhDWGHWWBgvkbMcoBOwesU72mVfNAA551f3PO+SmxOKsNJKA=="
    )
    (tmp_path / "passwords").write_text(f"{line}\n")
    assert accepts(tmp_path / "passwords", "ann", "secret")
    assert not accepts(tmp_path / "passwords", "ann", "wrong")
    assert not accepts(tmp_path / "passwords", "bob", "secret")


@pytest.mark.skipif(shutil.which("mosquitto_passwd") is None, reason="mosquitto_passwd is not installed")
def test_the_brokers_own_tool_writes_what_we_read(tmp_path):
    """And the other way round it reads ours: tests/broker/test_access.py."""
    file = tmp_path / "passwords"
    subprocess.run(["mosquitto_passwd", "-b", "-c", str(file), "ann", "s3cret:$"], check=True, capture_output=True)
    assert accepts(file, "ann", "s3cret:$")
    assert not accepts(file, "ann", "s3cret")
    set_users(file, {"bob": "b"})
    assert accepts(file, "ann", "s3cret:$")


def test_a_line_has_its_own_salt():
    """The same password twice is not to be seen; the password itself is not in it."""
    one, two = password_line("ann", "secret"), password_line("ann", "secret")
    assert one != two
    assert one.startswith("ann:$7$101$")
    assert "secret" not in one


def test_users_are_set_changed_and_removed(tmp_path):
    """Each on its own; the others' lines stay byte for byte."""
    file = tmp_path / "passwords"
    set_users(file, {"ann": "a", "@federator": "f"})
    ann = file.read_text().splitlines()[0]
    set_users(file, {"bob": "b"})
    set_users(file, {"@federator": "new"})
    assert users(file) == {"ann", "bob", "@federator"}
    assert ann in file.read_text().splitlines()
    assert accepts(file, "@federator", "new")
    assert not accepts(file, "@federator", "f")
    assert not accepts(file, "ann", "b")
    assert remove_user(file, "ann")
    assert not remove_user(file, "ann")
    assert not remove_user(tmp_path / "none", "ann")
    assert users(file) == {"bob", "@federator"}


def test_a_name_that_would_break_the_file_is_refused(tmp_path):
    """Nothing is written."""
    for user in ("", "a:b", "a\nb", "#a", "a+", "a/b", "a b", "ü", "-a"):
        with pytest.raises(SettingsError, match="user"):
            set_users(tmp_path / "passwords", {"ann": "a", user: "p"})
        assert not (tmp_path / "passwords").exists()


def test_only_its_owner_reads_it(tmp_path):
    """From the first moment, and a mode that an administrator chose is kept."""
    file = tmp_path / "passwords"
    set_users(file, {"ann": "a"})
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o640)
    set_users(file, {"bob": "b"})
    assert file.stat().st_mode & 0o777 == 0o640
    prepare_file(file, None)
    assert file.stat().st_mode & 0o777 == 0o600
    assert users(file) == {"ann", "bob"}


@only_root
def test_the_brokers_user_keeps_it(tmp_path):
    """Root changes a line; the broker, who is somebody else, must still read the file."""
    file = tmp_path / "passwords"
    prepare_file(file, Owner(65534, 65534))
    set_users(file, {"ann": "a"})
    remove_user(file, "ann")
    assert (file.stat().st_uid, file.stat().st_gid) == (65534, 65534)


def test_two_at_the_same_time_lose_nothing(tmp_path):
    """Every line of both is there, and no temporary file is left."""
    file = tmp_path / "passwords"

    def add(prefix):
        for i in range(20):
            set_users(file, {f"{prefix}{i}": "p"})

    threads = [threading.Thread(target=add, args=(prefix,)) for prefix in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert users(file) == {f"{prefix}{i}" for prefix in "ab" for i in range(20)}
    assert [path.name for path in tmp_path.iterdir()] == ["passwords"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    """A full disk must not lock everybody out."""
    file = tmp_path / "passwords"
    set_users(file, {"ann": "a"})

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        set_users(file, {"bob": "b"})
    assert users(file) == {"ann"}
    assert [path.name for path in tmp_path.iterdir()] == ["passwords"]


def test_a_password_is_long_and_goes_into_an_address():
    """192 bits, of characters that need no escape."""
    made = {generate_password() for _ in range(100)}
    assert len(made) == 100
    assert all(len(one) == 32 and one.replace("-", "").replace("_", "").isalnum() for one in made)
