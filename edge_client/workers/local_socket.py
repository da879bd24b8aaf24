"""Connections between processes of one user on one machine, by a Unix socket.

Messages are pickled: only processes of the same user are heard, and these could read and change the store anyway.
"""

import contextlib
import copyreg
import io
import os
import pickle
import select
import socket
import struct
import threading
import time
import weakref
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

_LONGEST_PATH: Final = 107
_LENGTH: Final = struct.Struct(">Q")
_LOOK_MS: Final = 10_000
_AFTER_ERROR_S: Final = 0.05
# Held while a socket is made and noted, so that no fork copies one that `_close_copies` does not know.
_making = threading.Lock()


def _read_only(content: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(content)


class _Pickler(pickle.Pickler):
    # Gates and reports have some, which Python does not pickle.
    dispatch_table = copyreg.dispatch_table | {MappingProxyType: lambda proxy: (_read_only, (dict(proxy),))}


class LocalConnection:
    """One connection; one thread at a time asks or answers by it."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        # Again by the same thread: garbage that is collected there may close it.
        self._reading = threading.RLock()
        _sockets.add(connected)

    def send(self, message: object, timeout_s: float | None = None) -> None:
        """Send an object. Raises OSError: the other process is gone, or does not take it within ``timeout_s``."""
        content = io.BytesIO(bytes(_LENGTH.size))
        content.seek(_LENGTH.size)
        _Pickler(content, pickle.HIGHEST_PROTOCOL).dump(message)
        framed = content.getbuffer()
        _LENGTH.pack_into(framed, 0, len(framed) - _LENGTH.size)
        self._socket.settimeout(timeout_s)
        self._socket.sendall(framed)

    def receive(self, timeout_s: float | None = None) -> Any:
        """Wait for an object. Raises OSError: the other process is gone, or sends nothing within ``timeout_s``."""
        give_up_at = None if timeout_s is None else time.monotonic() + timeout_s
        with self._reading:
            (length,) = _LENGTH.unpack(self._read(_LENGTH.size, give_up_at))
            content = self._read(length, give_up_at)
        return pickle.loads(content)  # noqa: S301 (from a process of the same user)

    def close(self) -> None:
        """Close it, also for a thread that waits in `receive`."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes that thread
        with self._reading:  # it would read from the next file that gets the number
            self._socket.close()

    def _read(self, n_bytes: int, give_up_at: float | None) -> bytearray:
        content, n_read = bytearray(n_bytes), 0
        while n_read < n_bytes:
            rest_s = None if give_up_at is None else give_up_at - time.monotonic()
            if rest_s is not None and rest_s <= 0:
                raise TimeoutError
            self._socket.settimeout(rest_s)
            n_new = self._socket.recv_into(memoryview(content)[n_read:])
            if not n_new:
                raise ConnectionResetError
            n_read += n_new
        return content


class LocalListener:
    """Takes connections at a path, which must be this process's alone.

    Raises:
        OSError: no socket can be made there.
    """

    def __init__(self, path: str) -> None:
        self._path, self._is_closed = path, False
        with contextlib.suppress(FileNotFoundError):
            Path(path).unlink()  # of a process that was killed
        with _making:
            self._socket = socket.socket(socket.AF_UNIX)
            _sockets.add(self._socket)
        try:
            os.fchmod(self._socket.fileno(), 0o600)  # before it has a name
            self._socket.bind(path)
            self._socket.listen(socket.SOMAXCONN)
            self._socket.setblocking(False)
        except OSError:
            self._socket.close()
            raise

    def accept(self) -> LocalConnection | None:
        """Wait for a connection; None once it is closed. One thread does, until then."""
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        while not self._is_closed:
            waiting.poll(_LOOK_MS)
            try:
                with _making:
                    connected, _ = self._socket.accept()
                    if _is_ours(connected, self._path):
                        return LocalConnection(connected)
                    connected.close()
            except BlockingIOError:
                continue
            except OSError:
                time.sleep(_AFTER_ERROR_S)  # of too many open files, say
        # Here, not in `close`: a thread that polls a closed socket polls the next file that gets its number, and holds
        # that open. If this is a pipe, its reader waits for the end for ever.
        self._socket.close()
        return None

    def close(self) -> None:
        """Refuse further connections."""
        if self._is_closed:
            return  # the path may be the next owner's by now
        self._is_closed = True
        with contextlib.suppress(OSError):
            Path(self._path).unlink()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes `accept`, not on every system


def connect(path: str) -> LocalConnection:
    """Connect to the process that listens at a path; OSError if no process of this user does."""
    with _making:
        connected = socket.socket(socket.AF_UNIX)
        connection = LocalConnection(connected)
    try:
        connected.connect(path)
        if not _is_ours(connected, path):
            raise PermissionError
    except OSError:
        connected.close()
        raise
    return connection


def socket_beside(store: str | Path) -> str | None:
    """Return the path of a store's socket; None if it cannot have one."""
    path = f"{store}.socket"
    return None if str(store) == ":memory:" or len(os.fsencode(path)) > _LONGEST_PATH else path


def _is_ours(connected: socket.socket, path: str) -> bool:
    """Whether the other process is of this user: in a folder that others can write, anybody may listen."""
    if hasattr(socket, "SO_PEERCRED"):
        _, user, _ = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    else:
        user = Path(path).lstat().st_uid
    return bool(user == os.geteuid())


_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _close_copies() -> None:
    """Close a forked process's copies: with them, nobody would notice the end of the process that made them."""
    _making.release()
    for one in list(_sockets):
        one.close()
    _sockets.clear()


os.register_at_fork(before=_making.acquire, after_in_parent=_making.release, after_in_child=_close_copies)
