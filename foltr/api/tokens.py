"""Tokens and roles for the HTTP API. They are in a file, stored as hashes.

A token is ``ID.SECRET``, for a participant ``ID.SECRET.CLIENT``. The file stores SHA-256 of the whole text, so it
contains neither the secret nor the client's name, which must not outlive an erasure. A secret has 256 random bits, so a
slow hash would add nothing.
"""

import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path

from foltr.core.errors import DataError, SettingsError
from foltr.core.file_locks import lock_store
from foltr.core.operator.credentials import write_secret
from foltr.core.protocol.topics import check_name
from foltr.core.user_files import FileKind, read_json_file

_SECRET_BYTES, _ID_BYTES = 32, 6
# A client's name has at most 64 characters.
LONGEST_TOKEN = 200
_MOST_TOKENS = 10_000


class Role(StrEnum):
    """What a token is for."""

    VIEWER = "viewer"  # reads everything
    OPERATOR = "operator"  # reads everything, and forwards orders signed by the enrolment key
    PARTICIPANT = "participant"  # reads one client's contributions and receipt


class TokenRefusal(StrEnum):
    """Why a token is refused."""

    UNKNOWN = "unknown"
    EXPIRED = "expired"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A token as stored. Times are seconds since the epoch.

    Attributes:
        digest: SHA-256 of the token's text, in hex.
        revoked_at: None unless revoked.
    """

    id: str
    role: Role
    federation: str
    digest: str
    made_at: float
    expires_at: float
    revoked_at: float | None = None


@dataclass(frozen=True, slots=True)
class Bearer:
    """The holder of a valid token.

    Attributes:
        client_id: set for a participant, else None.
    """

    id: str
    role: Role
    expires_at: float
    client_id: str | None = None


class TokenFile:
    """The tokens of a server. The file is read again when it changes, so a revocation takes effect at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: tuple[tuple[int, int, int], dict[str, TokenRecord]] | None = None

    def records(self) -> dict[str, TokenRecord]:
        """Return the tokens by id. Raises SettingsError if the file is malformed or readable by other users."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise SettingsError(f"{self.path}: {error.strerror}") from error
        if found.st_mode & 0o077:
            raise SettingsError(f"{self.path}: others can read or write it; run: chmod 600 {self.path}")
        stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        if self._read is None or self._read[0] != stamp:
            self._read = (stamp, _parsed(self.path))
        return self._read[1]

    def check(self, text: str, federation: str, now: float) -> Bearer | TokenRefusal:
        """Return the bearer of a token, or why it is refused. Secrets are compared in constant time."""
        if len(text) > LONGEST_TOKEN or not text.isascii():
            return TokenRefusal.UNKNOWN
        token_id, _, client_id = [*text.split(".", 2), "", ""][:3]
        record = self.records().get(token_id)
        is_it = hmac.compare_digest(digest_of(text), "0" * 64 if record is None else record.digest)
        if record is None or not is_it or record.federation != federation:
            return TokenRefusal.UNKNOWN
        if record.revoked_at is not None:
            return TokenRefusal.REVOKED
        if now >= record.expires_at:
            return TokenRefusal.EXPIRED
        return Bearer(record.id, record.role, record.expires_at, client_id or None)

    def add(self, role: Role, federation: str, lasts_s: float, client_id: str | None) -> tuple[str, TokenRecord]:
        """Create a token and store its hash. Return its text, which is stored nowhere, and the record."""
        if (role is Role.PARTICIPANT) != (client_id is not None):
            raise SettingsError("client: a participant's token needs --client, and no other token takes it")
        if client_id is not None:
            check_name("client", client_id)
        now = time.time()
        parts = [secrets.token_hex(_ID_BYTES), secrets.token_urlsafe(_SECRET_BYTES), *filter(None, [client_id])]
        text = ".".join(parts)
        record = TokenRecord(parts[0], role, federation, digest_of(text), now, now + lasts_s)
        self._change(lambda known: {**_lasting(known, now), record.id: record})
        return text, record

    def revoke(self, token_id: str) -> TokenRecord:
        """Revoke a token. Raises DataError if its id is unknown."""
        found: list[TokenRecord] = []

        def revoked(known: dict[str, TokenRecord]) -> dict[str, TokenRecord]:
            if token_id not in known:
                raise DataError(f"{self.path} has no token {token_id!r}; see: foltr api token list")
            record = known[token_id]
            found.append(record if record.revoked_at is not None else replace(record, revoked_at=time.time()))
            return {**known, token_id: found[0]}

        self._change(revoked)
        return found[0]

    def _change(self, change: Callable[[dict[str, TokenRecord]], dict[str, TokenRecord]]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = lock_store(self.path, "file of tokens", "Only one command at a time may change it: run this again.")
        try:
            known = change(self.records())
            if len(known) > _MOST_TOKENS:
                raise DataError(f"{self.path} has {_MOST_TOKENS} tokens; revoke some, and wait until they expire")
            text = json.dumps({"version": 1, "tokens": [asdict(record) for record in known.values()]}, indent=1)
            write_secret(self.path, text + "\n", replace=True)
        finally:
            os.close(lock)


def digest_of(text: str) -> str:
    """Return the digest that is stored for a token."""
    return hashlib.sha256(text.encode()).hexdigest()


def _lasting(known: dict[str, TokenRecord], now: float) -> dict[str, TokenRecord]:
    return {token_id: record for token_id, record in known.items() if record.expires_at > now}


def _parsed(path: Path) -> dict[str, TokenRecord]:
    try:
        read = read_json_file(path, FileKind.TOKENS)
        records = [TokenRecord(**{**one, "role": Role(one["role"])}) for one in read["tokens"]]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise SettingsError(
            f"{path}: this is not a file of tokens ({error}); restore it, or remove it and make new tokens"
        ) from error
    return {record.id: record for record in records}
