"""What a file that a user names may be, and what it may not."""

import contextlib
import itertools
import json
import os
import threading
import time
from collections.abc import Iterable, Iterator

import pytest
from structlog.testing import capture_logs

from foltr.core import user_files
from foltr.core.errors import SettingsError
from foltr.core.user_files import FileKind


@contextlib.contextmanager
def piped(pieces: Iterable[bytes], pause_s: float = 0.0) -> Iterator[str]:
    """The path of a pipe into which another thread writes these pieces."""
    reads, writes = os.pipe()

    def write() -> None:
        with contextlib.suppress(BrokenPipeError), os.fdopen(writes, "wb", buffering=0) as file:
            for piece in pieces:
                time.sleep(pause_s)
                file.write(piece)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield f"/dev/fd/{reads}"
    finally:
        os.close(reads)
        thread.join()


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/full", "/dev/urandom"])
def test_a_device_without_an_end_is_refused_at_once(device):
    for read in (lambda: user_files.read_file(device, FileKind.REGISTER), lambda: user_files.read_beginning(device, 7)):
        with pytest.raises(OSError, match="it is a device") as raised:
            read()
        assert raised.value.filename == device


def test_a_kind_has_a_limit(tmp_path):
    """One byte more is refused; 100,000 devices with the longest names take a twentieth of a register's."""
    for kind in FileKind:
        path = tmp_path / "file"
        with path.open("wb") as file:
            file.truncate(kind.most_bytes + 1)
        with pytest.raises(OSError, match=f"larger than {kind.text} can be .{kind.most_bytes:,} bytes") as raised:
            user_files.read_file(path, kind)
        assert raised.value.filename == str(path), kind
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(100 * 2**30)
    with pytest.raises(OSError, match="larger than a file of a key can be"):
        user_files.read_file(path, FileKind.KEY)
    path = tmp_path / "key"
    path.write_bytes(b"k" * FileKind.KEY.most_bytes)
    assert len(user_files.read_file(path, FileKind.KEY)) == FileKind.KEY.most_bytes
    path = tmp_path / "register.json"
    device = {"client_id": "d" * 64, "public_key": "k" * 44, "serial": 2**31, "certificate": "c" * 40, "at": 1e9}
    path.write_text(json.dumps([device] * 100_000))
    assert path.stat().st_size < FileKind.REGISTER.most_bytes / 20
    assert len(user_files.read_json_file(path, FileKind.REGISTER)) == 100_000


def test_what_a_shell_passes_for_a_command_is_read():
    """``<(command)`` is /dev/fd/N: in pieces; as private as a file of one user; its beginning is so many bytes."""
    for pause_s in (0.0, 0.05):
        with piped([b'{"a": ', b"1}"], pause_s) as path:
            assert user_files.read_json_file(path, FileKind.KEY) == {"a": 1}
    with piped([b"secret"]) as path:
        assert user_files.read_private_file(path, FileKind.KEY) == "secret"
    with piped([b"ab", b"cd", b"ef"], 0.02) as path:
        assert user_files.read_beginning(path, 5) == b"abcde"
    with piped(itertools.repeat(bytes(2**16))) as path, pytest.raises(OSError, match="larger than"):
        user_files.read_file(path, FileKind.KEY)


def test_links_are_followed_and_circles_are_an_error_with_their_name(tmp_path):
    """As secrets of Kubernetes need it: a link into a folder that is itself a link."""
    (tmp_path / "..2026").mkdir()
    (tmp_path / "..2026" / "key").write_text("one")
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / "key").symlink_to("..data/key")
    (tmp_path / "..2026" / "key").chmod(0o600)
    assert user_files.read_private_file(tmp_path / "key", FileKind.KEY) == "one"
    assert user_files.resolve(tmp_path / "key") == tmp_path / "..2026" / "key"
    (tmp_path / "loop").symlink_to("loop")
    for use in (
        lambda: user_files.read_file(tmp_path / "loop", FileKind.KEY),
        lambda: user_files.resolve(tmp_path / "loop"),
    ):
        with pytest.raises(OSError, match="symbolic links") as raised:
            use()
        assert raised.value.filename == str(tmp_path / "loop")


def test_what_is_no_file_is_an_error_with_its_name(tmp_path):
    """Many commands are given /dev/null, which is an empty file; a pipe that nobody writes to is refused at once."""
    for name, cause in [("", "directory"), ("missing", "No such file"), ("a\0b", "no file has such a name")]:
        with pytest.raises(OSError, match=cause) as raised:
            user_files.read_file(f"{tmp_path}/{name}", FileKind.KEY)
        assert raised.value.strerror, (name, cause)
        assert raised.value.filename == f"{tmp_path}/{name}", (name, cause)
    path = tmp_path / "text"
    path.write_text("é\r\nx", newline="")
    assert user_files.read_text_file(path, FileKind.KEY) == "é\r\nx"
    assert user_files.read_file("/dev/null", FileKind.KEY) == b""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    with pytest.raises(OSError, match="nobody writes to it"):
        user_files.read_file(path, FileKind.KEY)


def test_json_that_is_none_is_an_error_as_a_file_that_is_missing(tmp_path):
    for content, cause in [
        (b"[" * 100_000, "nested too deeply"),
        (b'{"version": 1, "na', "it is not JSON"),
        (b'{"n": ' + b"1" * 5000 + b"}", "it is not JSON"),
        (b"\xff\xfe\x00", "it is not UTF-8 text"),
    ]:
        path = tmp_path / "file.json"
        path.write_bytes(content)
        with pytest.raises(OSError, match=cause) as raised:
            user_files.read_json_file(path, FileKind.DECLARATION)
        assert raised.value.filename == str(path), (content, cause)


def test_a_secret_that_others_can_read_is_refused_with_what_to_do(tmp_path, monkeypatch):
    """But on a read-only mount, like a container's secrets, it is taken with a warning."""
    path = tmp_path / "key"
    path.write_text("secret")
    for mode in (0o640, 0o604, 0o666):
        path.chmod(mode)
        with pytest.raises(user_files.ReadableByOthersError, match="chmod 600"):
            user_files.read_private_file(path, FileKind.KEY)
    path.chmod(0o400)
    assert user_files.read_private_file(path, FileKind.KEY) == "secret"
    path.chmod(0o444)
    mounted = os.statvfs(path)
    read_only = os.statvfs_result((*mounted[:8], mounted.f_flag | os.ST_RDONLY, mounted.f_namemax))
    monkeypatch.setattr(os, "fstatvfs", lambda _: read_only)
    with capture_logs() as logs:
        assert user_files.read_private_file(path, FileKind.KEY) == "secret"
    assert [(line["event"], line["log_level"], line["path"]) for line in logs] == [
        ("secret_readable_by_others", "warning", str(path))
    ]


def test_a_line_without_an_end_is_refused_and_a_long_one_is_not(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"a" * (user_files.LONGEST_LINE - 1) + b"\nb\n")
    with user_files.lines_of(path) as lines:
        assert [len(line) for line in lines] == [user_files.LONGEST_LINE, 2]
    with path.open("wb") as file:
        file.truncate(100 * 2**30)
    with user_files.lines_of(path) as lines, pytest.raises(OSError, match="a line of more than"):
        next(lines)


def test_an_open_file_is_closed_when_it_cannot_be_used(tmp_path):
    """A name is refused by its characters and bytes; the longest that devices have is a file's name."""
    before = len(os.listdir("/dev/fd"))  # noqa: PTH208 (the links in it are what is counted)
    for _ in range(3):
        with pytest.raises(IsADirectoryError):
            user_files.open_file(tmp_path)
    assert len(os.listdir("/dev/fd")) == before  # noqa: PTH208
    for name in ["", ".", "..", "/", "a/b", "a\nb", "a\0b", "a\x1b[2J", "x" * 300, "é" * 128]:
        with pytest.raises(SettingsError, match="name: "):
            user_files.file_name_of(name, ".json")
    assert user_files.file_name_of("device-1", ".json") == "device-1.json"
    assert len(user_files.file_name_of(f"{'f' * 64}-{'d' * 64}", ".helper.sqlite")) < user_files.LONGEST_FILE_NAME
