"""Secrets on disk: from their first byte readable for one user only, and never half written."""

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
    """The user ``user`` and its group; None unless we are root and the user exists here."""
    if os.geteuid() != 0:
        return None
    with contextlib.suppress(KeyError):
        entry = pwd.getpwnam(user)
        return Owner(entry.pw_uid, entry.pw_gid)
    return None


def owner_of(path: Path) -> Owner | None:
    """Return the owner of ``path``, if it exists."""
    with contextlib.suppress(FileNotFoundError):
        status = path.stat()
        return Owner(status.st_uid, status.st_gid)
    return None


def replace_file(path: Path, content: str | bytes, *, mode: int = 0o600, owner: Owner | None = None) -> None:
    """Replace the content of ``path`` atomically: a reader, also after a crash, sees the old content or the new.

    Raises:
        OSError: it cannot be written or given to ``owner``. The old file is unchanged.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        # Closed to others before it has any content.
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
    """Hold an exclusive lock on ``folder`` for the body.

    Raises:
        UnavailableError: another process has held it for half a minute.
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
