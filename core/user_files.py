"""Reads files that users name: within a limit for each kind, and never for ever.

A name on a command line, in a setting or in an operator's folder may be anything: an endless device, a pipe without a
writer, another program's file of gigabytes. Every failure is an OSError like the system's own, with ``strerror`` and
``filename``, so that a caller handles a file that is missing, closed to it, too large or not text in one clause. Links
are followed (secrets of Kubernetes are links), and pipes with a writer are read, which a shell passes for
``<(command)``.
"""

import contextlib
import errno
import io
import json
import os
import select
import stat
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO, Final

from foltr.core.errors import SettingsError
from foltr.core.logs import get_logger

log = get_logger(__name__)

_MIB: Final = 2**20
_SILENCE_S: Final = 60.0
_PIECE_BYTES: Final = 2**18
LONGEST_FILE_NAME: Final = 255
"""Bytes of one name in a folder, on every common file system."""
LONGEST_LINE: Final = 16 * _MIB
"""Bytes of one line of a file that is read line by line: a document of a million features has fewer."""


class ReadableByOthersError(PermissionError):
    """A file of a secret is readable for others than its owner."""


class FileKind(Enum):
    """Kinds of files by the reason for their size, each with its most bytes."""

    SETTINGS = ("a settings file", 1 * _MIB)
    KEY = ("a file of a key", 64 * 1024)
    CREDENTIALS = ("a credentials file", 32 * _MIB)
    """A federator's file names all enrolments of former keys that count: 43 bytes a device."""
    DECLARATION = ("a schema, a model or a helper's keys", 16 * _MIB)
    MESSAGE = ("a signed message", 32 * _MIB)
    TOKENS = ("a file of tokens", 64 * _MIB)
    CERTIFICATES = ("a file of certificates", 64 * _MIB)
    """A revocation list has 40 bytes for each certificate."""
    REGISTER = ("a register of devices", 512 * _MIB)
    """Registers, users and access lists: a million devices take 200 MB."""
    SAMPLE = ("a sample of features", 256 * _MIB)
    RESULT = ("a result", 64 * _MIB)
    PLUGIN = ("a broker's plugin", 1 * _MIB)

    def __init__(self, text: str, most_bytes: int) -> None:
        self.text = text
        self.most_bytes = most_bytes


def read_file(path: str | Path, kind: FileKind) -> bytes:
    """Read a whole file; OSError if it cannot be read, or has more bytes than its kind may have."""
    with open_file(path) as file:
        return _read(file, path, kind)


def read_beginning(path: str | Path, n_bytes: int) -> bytes:
    """Read so many bytes of a file, or fewer if it ends before; OSError if it cannot be read."""
    content = bytearray()
    with open_file(path) as file:
        while piece := file.read(n_bytes - len(content)):
            content += piece
    return bytes(content)


def read_text_file(path: str | Path, kind: FileKind) -> str:
    """Read a whole file of UTF-8 text; OSError as `read_file`, or if it is not such text."""
    return _decoded(read_file(path, kind), path)


def read_json_file(path: str | Path, kind: FileKind) -> Any:
    """Read a whole file of JSON; OSError as `read_text_file`, or if it is invalid, or nested too deeply."""
    text = read_text_file(path, kind)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        cause = "it is nested too deeply" if isinstance(error, RecursionError) else f"it is not JSON ({error!s:.80})"
        raise OSError(errno.EILSEQ, cause, str(path)) from error


def read_private_file(path: str | Path, kind: FileKind) -> str:
    """Read the text of a secret, in one look at it; OSError as `read_text_file`.

    On a read-only mount its mode cannot be changed (secrets of Docker and Kubernetes), so that is only logged.

    Raises:
        ReadableByOthersError: others than its owner can read it.
    """
    with open_file(path) as file:
        if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
            if not os.fstatvfs(file.fileno()).f_flag & os.ST_RDONLY:
                raise ReadableByOthersError(errno.EPERM, f"can be read by others; run: chmod 600 {path}", str(path))
            log.warning("secret_readable_by_others", path=str(path), hint="mount it with mode 0400")
        return _decoded(_read(file, path, kind), path)


def open_file(path: str | Path) -> "UserFile":
    """Open a file for reading piece by piece, without a buffer.

    Raises:
        OSError: it is missing, or is a folder, a device, or a pipe without a writer; later if a pipe's writer sends
            nothing for a minute.
    """
    try:
        # Otherwise opening a pipe without a writer would wait for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except ValueError as error:  # a NUL in a settings file
        raise OSError(errno.EINVAL, "no file has such a name", str(path)) from error
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if _is_device(descriptor):
            raise OSError(errno.ENODEV, "it is a device, not a file", str(path))
        return UserFile(descriptor, str(path))
    except BaseException:
        os.close(descriptor)
        raise


@contextlib.contextmanager
def lines_of(path: str | Path) -> Iterator[Iterator[bytes]]:
    """Open a file of lines, with their ends; OSError as `open_file`, or if a line is longer than `LONGEST_LINE`."""
    with open_file(path) as raw, io.BufferedReader(raw) as file:
        yield _lines(file, str(path))


def too_long_a_line(path: str | Path) -> OSError:
    """Return the error for a line without an end."""
    return OSError(errno.EFBIG, f"it has a line of more than {LONGEST_LINE:,} bytes", str(path))


def _lines(file: BinaryIO, path: str) -> Iterator[bytes]:
    while line := file.readline(LONGEST_LINE + 1):
        if len(line) > LONGEST_LINE:
            raise too_long_a_line(path)
        yield line


def _is_device(descriptor: int) -> bool:
    """Whether it is a device, most of which have no end; a terminal and the null device have one."""
    status = os.fstat(descriptor)
    if stat.S_ISCHR(status.st_mode):
        return not os.isatty(descriptor) and status.st_rdev != Path(os.devnull).stat().st_rdev
    return stat.S_ISBLK(status.st_mode)


class UserFile(io.RawIOBase):
    """A file, or a pipe whose writer is waited for only so long."""

    def __init__(self, descriptor: int, name: str) -> None:
        self._descriptor, self._name, self._has_begun = descriptor, name, False

    def fileno(self) -> int:
        return self._descriptor

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            try:
                n = os.readv(self._descriptor, [buffer])
            except BlockingIOError:
                self._wait()
                continue
            except OSError as error:
                raise OSError(error.errno, error.strerror, self._name) from error
            if n == 0 and not self._has_begun and stat.S_ISFIFO(os.fstat(self._descriptor).st_mode):
                raise OSError(errno.EPIPE, "it is a pipe, and nobody writes to it", self._name)
            self._has_begun = True
            return n

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        if not poll.poll(1000 * _SILENCE_S):
            raise TimeoutError(errno.ETIMEDOUT, f"its writer sent nothing for {_SILENCE_S:g} s", self._name)

    def close(self) -> None:
        if not self.closed:
            super().close()
            with contextlib.suppress(OSError):
                os.close(self._descriptor)


def resolve(path: Path) -> Path:
    """Follow links to the real place of a file or folder, existing or not; OSError if they lead in a circle."""
    try:
        return path.resolve()
    except RuntimeError as error:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from error


def file_name_of(name: str, ending: str = "") -> str:
    """Return a file name, in its folder, for something with a name.

    Raises:
        SettingsError: no file can have that name, or it would be in another folder.
    """
    found = f"{name}{ending}"
    if name in ("", ".", "..") or "/" in name or not name.isprintable():
        raise SettingsError(
            f"name: {name!r:.80} is not a name that a file can have; use letters, digits, '.', '_' and '-'"
        )
    if len(os.fsencode(found)) > LONGEST_FILE_NAME:
        raise SettingsError(
            f"name: {name!r:.80} is too long for a file, whose name has {LONGEST_FILE_NAME} bytes at most"
        )
    return found


def check_file(path: Path, *, replaced: bool = True) -> None:
    """SettingsError, before the work is done, if a file could not be written.

    Args:
        replaced: a new file replaces it, which needs the folder; else it is written to, e.g. a device.
    """
    folder = path.absolute().parent
    try:
        if not folder.is_dir():
            raise SettingsError(f"{path}: the folder {path.parent} does not exist")
        if path.is_dir():
            raise SettingsError(f"{path}: this is a folder; expected the name of a file")
        needed = folder if replaced or not path.exists() else path
    except OSError as error:
        raise SettingsError(f"{path}: it cannot be written: {error.strerror}") from error
    if not os.access(needed, os.W_OK):
        raise SettingsError(f"{path}: it cannot be written: no permission for {needed}")


def _read(file: "UserFile", path: str | Path, kind: FileKind) -> bytes:
    if os.fstat(file.fileno()).st_size > kind.most_bytes:
        raise _too_large(path, kind)
    content = bytearray()
    while piece := file.read(min(_PIECE_BYTES, kind.most_bytes + 1 - len(content))):
        content += piece
        if len(content) > kind.most_bytes:
            raise _too_large(path, kind)
    return bytes(content)


def _decoded(content: bytes, path: str | Path) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise OSError(errno.EILSEQ, "it is not UTF-8 text", str(path)) from error


def _too_large(path: str | Path, kind: FileKind) -> OSError:
    return OSError(errno.EFBIG, f"it is larger than {kind.text} can be ({kind.most_bytes:,} bytes)", str(path))
