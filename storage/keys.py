"""The data keys of clients, one file each, apart from the database: destroying a key erases every copy.

Clients' updates are stored encrypted with their keys (`foltr.storage.cipher`). So an erased client is unreadable in a
backup of the database, unless the backup holds the keys too: keep the two apart.

A file's name is a hash, but anyone who knows a client's name can check whether it has a key. A file system that keeps
old blocks (copy on write, snapshots, a worn flash cell) may keep an overwritten key; encrypt the disk below it.
"""

import errno
import hashlib
import os
import secrets
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Final

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from foltr.core.errors import DataError, SettingsError
from foltr.core.user_files import FileKind, read_file
from foltr.storage.errors import DataKeysError

KEY_BYTES: Final = 32
FINGERPRINT_BYTES: Final = 8
_FLUSHED_AT_ONCE: Final = 8
# Errors of file systems that allow only one name for a file.
_NO_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS)


class KeyStore:
    """The keys in one folder. Its methods wait for the disk; make many keys in a thread (`ensure`)."""

    def __init__(self, folder: Path, *, is_leaders: bool = False) -> None:
        """Open the folder, which is created with the first key; or only by the leader, if it belongs to that.

        Raises:
            SettingsError: it is not a folder, or others than its owner may read it.
        """
        self.folder = folder
        self._is_leaders = is_leaders
        self._cache: dict[tuple[str, str], bytes] = {}
        # Clients whose key may encrypt: one that was only read may belong to another database.
        self._ensured: set[tuple[str, str]] = set()
        if folder.exists():
            _require_private(folder)

    def key(self, federation: str, client_id: str) -> bytes:
        """Return the client's key, 32 bytes; if it has none, one is made and flushed to disk."""
        if (federation, client_id) not in self._ensured:
            self.ensure(federation, (client_id,))
        return self._cache[federation, client_id]

    def missing(self, federation: str, client_ids: Collection[str]) -> list[str]:
        """List the clients that `ensure` has not covered yet: only for these does it wait for the disk."""
        return [client_id for client_id in client_ids if (federation, client_id) not in self._ensured]

    def ensure(
        self, federation: str, client_ids: Collection[str], sealed_with: Mapping[str, bytes] = MappingProxyType({})
    ) -> None:
        """Make missing keys; afterwards all are on disk and `key` finds them at once.

        Args:
            sealed_with: fingerprints of the keys of stored, encrypted updates, by client.

        Raises:
            DataKeysError: such a key is missing. Making another one in its place would hide the loss.
        """
        made: list[tuple[str, Path, Path, bytes]] = []
        found: dict[str, bytes] = {}
        for client_id in self.missing(federation, client_ids):
            path = self._path(federation, client_id)
            known = _read(path)
            if client_id in sealed_with and self._is_sealed_anew(path, known, sealed_with[client_id]):
                self._activate(path)
                known = _read(path)
            if client_id in sealed_with and (known is None or fingerprint(known) != sealed_with[client_id]):
                raise DataKeysError(
                    # Without the client's name, which would appear in a log: the client may have been forgotten.
                    f"keys = {str(self.folder)!r}: stored updates of a client are encrypted, but "
                    f"{'its data key is missing' if known is None else 'its data key here is another one'} "
                    "(which client: foltr doctor). If the database was restored, and the client was forgotten "
                    "since that backup, run `foltr erasure request NAME`. Otherwise restore the backup of the keys "
                    "that belongs to this database, or name their folder with --keys"
                )
            if known is None:
                made.append((client_id, path, _temporary(path), secrets.token_bytes(KEY_BYTES)))
            else:
                found[client_id] = known
        self._note(federation, found)
        if not made:
            return
        self._make_folders({path.parent for _, path, _, _ in made})
        for _, _, temporary, key in made:
            _write(temporary, key)
        _flush_all([temporary for _, _, temporary, _ in made])
        keys = {client_id: _put(temporary, path, key) for client_id, path, temporary, key in made}
        _flush_all({path.parent for _, path, _, _ in made})
        self._note(federation, keys)

    def find(self, federation: str, client_id: str) -> bytes | None:
        """The client's key; None if it was destroyed or never made."""
        known = self._cache.get((federation, client_id))
        if known is None and (known := _read(self._path(federation, client_id))) is not None:
            self._cache[federation, client_id] = known
        return known

    def find_opening(self, federation: str, client_id: str, sealed_with: bytes) -> bytes | None:
        """The client's present or next key, if it has this fingerprint; None if neither has."""
        known, path = self.find(federation, client_id), self._path(federation, client_id)
        if known is not None and fingerprint(known) != sealed_with:
            known = _read(_next(path))
        if known is None or fingerprint(known) != sealed_with:
            # Last: another process may have adopted the next key since the key was read.
            known = _read(path)
            if known is not None and fingerprint(known) == sealed_with:
                self._cache[federation, client_id] = known
        return known if known is not None and fingerprint(known) == sealed_with else None

    def has(self, federation: str, client_id: str, sealed_with: bytes) -> bool:
        """Tell whether the client's key is the one of this fingerprint."""
        return self.find_opening(federation, client_id, sealed_with) is not None

    def clear_cache(self) -> None:
        """Clear the cache, after another process has changed keys in the folder."""
        self._cache.clear()
        self._ensured.clear()

    def make_folder(self) -> None:
        """Create the folder now, before others use its keys. Raises SettingsError if that fails."""
        self._make_folders([self.folder])

    # --- another key for a client that has one ----------------------------------------------------------------

    def make_next(self, federation: str, client_id: str) -> bytes:
        """Make the client's next key beside its present one; it is on disk when this returns.

        Replaces an earlier next key that was not adopted: nothing may be encrypted with that (`ensure`).
        """
        path, key = self._path(federation, client_id), secrets.token_bytes(KEY_BYTES)
        temporary = _temporary(path)
        _write(temporary, key)
        _flush(temporary)
        temporary.rename(_next(path))
        _flush(path.parent)
        return key

    def activate_next(self, federation: str, client_id: str) -> None:
        """Replace the client's key by the next one and overwrite it, once all updates are encrypted with the next."""
        self._cache.pop((federation, client_id), None)
        self._ensured.discard((federation, client_id))
        self._activate(self._path(federation, client_id))

    def _is_sealed_anew(self, path: Path, known: bytes | None, sealed_with: bytes) -> bool:
        """Whether updates are encrypted with the next key: its maker died before adopting it."""
        if known is not None and fingerprint(known) == sealed_with:
            return False
        following = _read(_next(path))
        return following is not None and fingerprint(following) == sealed_with

    def _activate(self, path: Path) -> None:
        # First under another name: after the renaming nothing else would lead to its bytes.
        _clear_former(path)
        if path.exists():
            os.link(path, _former(path))
        _next(path).rename(path)
        _flush(path.parent)
        _overwrite(_former(path))
        _flush(path.parent)

    def destroy(self, federation: str, client_id: str, sealed_with: bytes | None = None) -> bool:
        """Overwrite and remove the key, on disk when this returns.

        Args:
            sealed_with: fingerprint of the key to destroy; None: any key.

        Returns:
            False if it does not exist, or is another key, which belongs to another database and stays.
        """
        self._cache.pop((federation, client_id), None)
        self._ensured.discard((federation, client_id))
        path = self._path(federation, client_id)
        if sealed_with is not None and _read(path) is not None and not self.has(federation, client_id, sealed_with):
            return False
        self._cache.pop((federation, client_id), None)
        there = path.exists()
        # Files left by a process that died while making or adopting a key are as secret.
        for file in (*path.parent.glob(f"{path.name}*.new"), _next(path), _former(path), path):
            _overwrite(file)
        if path.parent.is_dir():
            # In any case: an earlier removal may not have reached the disk.
            _flush(path.parent)
        return there

    def _note(self, federation: str, found: Mapping[str, bytes]) -> None:
        named = {(federation, client_id): key for client_id, key in found.items()}
        self._cache |= named
        self._ensured |= named.keys()

    def _path(self, federation: str, client_id: str) -> Path:
        name = hashlib.sha256(f"{federation}\n{client_id}".encode()).hexdigest()
        return self.folder / name[:2] / name

    def _make_folders(self, folders: Collection[Path]) -> None:
        new = [folder for folder in folders if not folder.is_dir()]
        if not new:
            return
        if self._is_leaders and not self.folder.is_dir():
            raise DataKeysError(
                f"keys = {str(self.folder)!r}: the folder does not exist. The leader must open what a worker "
                "encrypts: name the folder of the leader's data keys with --keys"
            )
        try:
            if not self.folder.is_dir():
                self.folder.mkdir(mode=0o700, parents=True)
                _flush(self.folder.parent)
            for folder in new:
                folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise SettingsError(f"keys = {str(self.folder)!r}: cannot be made: {error.strerror or error}") from error
        _flush(self.folder)


def fingerprint(key: bytes) -> bytes:
    """Compute a key's 8-byte fingerprint, which reveals nothing of it."""
    return hashlib.sha256(b"foltr data key\n" + key).digest()[:FINGERPRINT_BYTES]


def keys_folder(db_url: str, keys: str | None) -> Path:
    """Find a database's data keys: the setting, else beside SQLite's file, else in the working directory."""
    if keys is not None:
        return Path(keys)
    try:
        parsed = make_url(db_url)
    except (ArgumentError, ValueError):
        return Path("foltr-keys")  # connecting reports what is wrong with it
    if parsed.get_backend_name() == "sqlite" and parsed.database:
        return Path(f"{parsed.database}.keys")
    return Path("foltr-keys")


def _require_private(folder: Path) -> None:
    try:
        mode = folder.stat().st_mode
        if not folder.is_dir():
            raise SettingsError(f"keys = {str(folder)!r}: not a folder; name another with --keys")
    except OSError as error:
        raise SettingsError(f"keys = {str(folder)!r}: {error.strerror or error}") from error
    if mode & 0o077:
        raise SettingsError(f"keys = {str(folder)!r}: others may read it; run: chmod 700 {folder}")


def _temporary(path: Path) -> Path:
    """Return a file name that no other process writes to, even one that was paused and continues later."""
    return path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")


def _put(temporary: Path, path: Path, key: bytes) -> bytes:
    """Give a key its name, unless another key has it by now; return the key that has the name.

    Its maker holds the federation's row. But a process that was paused lost its transaction, and does not know that
    when it wakes. Updates that others have encrypted since must not lose their key.
    """
    try:
        os.link(temporary, path)
    except FileExistsError:
        there = _read(path)
        if there is None:
            return _put(temporary, path, key)  # destroyed in this moment
        _overwrite(temporary)
        return there
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        temporary.rename(path)
        return key
    temporary.unlink()
    return key


def _next(path: Path) -> Path:
    return path.with_name(f"{path.name}.next")


def _former(path: Path) -> Path:
    return path.with_name(f"{path.name}.former")


def _clear_former(path: Path) -> None:
    """Remove what a process left that died while adopting a key: a second name of the present key, or a former key."""
    if _former(path).exists() and path.exists() and _former(path).samefile(path):
        _former(path).unlink()
    _overwrite(_former(path))


def _overwrite(path: Path) -> None:
    """Overwrite a key and remove it, if it is there."""
    if not path.exists():
        return
    with path.open("r+b") as opened:
        opened.write(bytes(KEY_BYTES))
        opened.flush()
        os.fsync(opened.fileno())
    path.unlink()


def _read(path: Path) -> bytes | None:
    try:
        key = read_file(path, FileKind.KEY)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SettingsError(f"the data key {path} cannot be read: {error.strerror or error}") from error
    if len(key) != KEY_BYTES:
        raise DataError(f"the data key {path} has {len(key)} bytes, not {KEY_BYTES}; restore it from its own backup")
    return key


def _write(path: Path, key: bytes) -> None:
    # Created with its mode, so that nobody can read it in between; leftovers of a dead process are replaced.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(key)


def _flush_all(paths: Collection[Path]) -> None:
    # A journal commits many waiting flushes at once: 0.1 ms each instead of 3.
    with ThreadPoolExecutor(min(_FLUSHED_AT_ONCE, len(paths))) as pool:
        list(pool.map(_flush, paths))


def _flush(path: Path) -> None:
    """Flush a file's bytes, or a folder's names, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
