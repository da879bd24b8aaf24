"""Secrets on disk: readable for one user from their first byte on, and never half written."""

import contextlib
import os
import pwd
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from foltr.core.errors import UnavailableError
from foltr.core.file_locks import lock_within

_LOCK_WAIT_S = 30.0


@dataclass(frozen=True)
class Owner:
    """A user and group of this machine, by number."""

    uid: int
    gid: int


def owner_named(user: str) -> Owner | None:
    """The user ``user`` and its group, if files can be given to it: root is needed, and that it exists here."""
    if os.geteuid() != 0:
        return None
    with contextlib.suppress(KeyError):
        entry = pwd.getpwnam(user)
        return Owner(entry.pw_uid, entry.pw_gid)
    return None


def owner_of(path: Path) -> Owner | None:
    """Return whose ``path`` is, if it exists."""
    with contextlib.suppress(FileNotFoundError):
        status = path.stat()
        return Owner(status.st_uid, status.st_gid)
    return None


def replace_file(path: Path, content: str | bytes, *, mode: int = 0o600, owner: Owner | None = None) -> None:
    """Put ``content`` into ``path`` at once: a reader, also after a crash, sees the old content or the new.

    Raises:
        OSError: it cannot be written, or not be given to ``owner``. The old file is as it was.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        # Closed to others before there is anything in it.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            if owner is not None and owner != owner_of(temporary):
                os.fchown(file.fileno(), owner.uid, owner.gid)
            os.fchmod(file.fileno(), mode)
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Nobody else who locks ``folder`` is between its beginning and its end at the same time.

    Raises:
        UnavailableError: somebody else has held it for half a minute.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            lock_within(descriptor, _LOCK_WAIT_S)
        except TimeoutError:
            raise UnavailableError(
                f"{folder} is locked by another command for {_LOCK_WAIT_S:g} s; end it, then run this again"
            ) from None
        yield
    finally:
        os.close(descriptor)
