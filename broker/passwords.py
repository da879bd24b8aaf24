"""Mosquitto's password file: a line ``user:$7$iterations$salt$hash`` for each user.

Passwords have 192 random bits, so guessing them is hopeless with any number of iterations. We use the number of
Mosquitto's own tool, because the broker hashes at every connection, in the thread that serves everybody.
"""

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Collection, Mapping
from pathlib import Path

from foltr.broker.files import Owner, locked, owner_of, replace_file
from foltr.core.errors import SettingsError
from foltr.core.user_files import FileKind, read_text_file

_ITERATIONS = 101
_SALT_BYTES = 12
_LINE = re.compile(r"([^:]+):\$7\$([0-9]+)\$([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]+)")
# No colon, which ends the name in the file, no wildcard of topics, no comment sign.
_USER = re.compile(r"[A-Za-z0-9@][A-Za-z0-9@._-]{0,64}")


def generate_password() -> str:
    """A new random password, which needs no escaping in an address."""
    return secrets.token_urlsafe(24)


def password_line(user: str, password: str) -> str:
    """The line of ``user`` in a password file: PBKDF2 with HMAC-SHA-512 and a fresh salt."""
    if not _USER.fullmatch(user):
        raise SettingsError(f"user: {user!r} is not a name: use letters, digits, '.', '_' or '-'")
    salt = secrets.token_bytes(_SALT_BYTES)
    digest = _digest(password, salt, _ITERATIONS)
    return f"{user}:$7${_ITERATIONS}${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


def prepare_file(path: Path, owner: Owner | None) -> None:
    """Create the file, empty, if it is missing; readable only for ``owner`` (None: for us)."""
    with locked(path.parent):
        replace_file(path, "".join(f"{line}\n" for line in _lines(path)), owner=owner)


def set_users(path: Path, chosen: Mapping[str, str]) -> None:
    """Add users to the file, or change their passwords. The file keeps its owner and mode; a new one is 0600."""
    lines = [password_line(user, password) for user, password in chosen.items()]
    with locked(path.parent):
        _write(path, [*_lines_without(path, chosen), *lines])


def remove_user(path: Path, user: str) -> bool:
    """Take ``user`` out of the file; False if it was not in it."""
    with locked(path.parent):
        before = _lines(path)
        after = _lines_without(path, {user})
        if len(after) == len(before):
            return False
        _write(path, after)
        return True


def keep_users(path: Path, prefix: str, kept: Collection[str]) -> bool:
    """Remove users whose names begin with ``prefix`` unless in ``kept``; return whether any was removed."""
    with locked(path.parent):
        gone = {user for user in users(path) if user.startswith(prefix)} - set(kept)
        if gone:
            _write(path, _lines_without(path, gone))
        return bool(gone)


def users(path: Path) -> set[str]:
    """Return the users whose lines are in the file."""
    return {line.partition(":")[0] for line in _lines(path)}


def accepts(path: Path, user: str, password: str) -> bool:
    """Whether a broker with this file lets ``user`` in with ``password``."""
    for line in _lines(path):
        parts = _LINE.fullmatch(line)
        if parts is not None and parts[1] == user:
            salt, expected = base64.b64decode(parts[3]), base64.b64decode(parts[4])
            return hmac.compare_digest(_digest(password, salt, int(parts[2])), expected)
    return False


def _digest(password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac("sha512", password.encode(), salt, iterations)


def _lines(path: Path) -> list[str]:
    try:
        return [line for line in read_text_file(path, FileKind.REGISTER).splitlines() if line.strip()]
    except FileNotFoundError:
        return []


def _lines_without(path: Path, gone: Collection[str]) -> list[str]:
    return [line for line in _lines(path) if line.partition(":")[0] not in gone]


def _write(path: Path, lines: list[str]) -> None:
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    replace_file(path, "".join(f"{line}\n" for line in lines), mode=mode, owner=owner_of(path))
