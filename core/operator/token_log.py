"""The one-time tokens of an operator's folder: what each is for, until when, and its outcome.

    tokens/ID.json    one token: its public key, the name, the state, and once used the device's key and the answer

Nothing in here can be used as a token. A token is marked with the keys that it is used for before they are enrolled,
and the answer is stored before it is sent. So even if the desk crashes, the same request gets the same answer, and
another one `token_used`. When a client is forgotten, everything with its name is deleted.
"""

import secrets
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from foltr.core.errors import ProtocolViolationError, SettingsError
from foltr.core.operator.credentials import write_secret
from foltr.core.operator.register import Register, read_private
from foltr.core.protocol.enrolment_requests import DeskHead, EnrolmentCode, EnrolmentRequest
from foltr.core.protocol.fields import Name, TokenId
from foltr.core.protocol.signed_requests import issue_answer, issue_head
from foltr.core.protocol.signing import SigningKey, key_to_text

MAX_OPEN_TOKENS: Final = 10_000
SHORTEST_S: Final = 60.0
LONGEST_S: Final = 30 * 86_400.0
# A device that asked in time, and lost the answer, can still ask again.
GRACE_S: Final = 3600.0
KEPT_S: Final = 30 * 86_400.0
"""How long the record of an expired token is kept."""


class TokenState(StrEnum):
    """The state of a token. Expiry is not a state: the clock decides it for an open one."""

    OPEN = "open"
    CLAIMED = "claimed"
    """Marked with the keys of the device that asked, which is being enrolled."""
    USED = "used"
    REVOKED = "revoked"


TRANSITIONS: Final[Mapping[TokenState, frozenset[TokenState]]] = {
    TokenState.OPEN: frozenset({TokenState.CLAIMED, TokenState.REVOKED}),
    TokenState.CLAIMED: frozenset({TokenState.USED, TokenState.REVOKED}),
    TokenState.USED: frozenset(),
    TokenState.REVOKED: frozenset(),
}


class EnrolmentSnapshot(BaseModel):
    """A name's state in the register; a token is for the name in its state when the token was made.

    Attributes:
        serial: of its newest enrolment; None without one.
        void_below: the serial below which its enrolments are void; None if none was voided.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    serial: int | None
    void_below: int | None


def enrolment_snapshot(register: Register, client_id: str) -> EnrolmentSnapshot:
    """Return this name's present state in the register."""
    device = register.enrolled.get(client_id)
    return EnrolmentSnapshot(
        serial=None if device is None else device.serial, void_below=register.revoked.get(client_id)
    )


class TokenRecord(BaseModel):
    """One token in the operator's folder. Keys are public, base64; times are seconds since the epoch.

    Attributes:
        token_key: checks the signature of requests.
        before: the name's state when the token was made.
        device_key, reply_key: of the device that it is used for; None while it is open.
        answer: the signed answer, base64; None until the token is used.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    token: TokenId
    client_id: Name
    token_key: str
    issued_at: float
    expires_at: float
    before: EnrolmentSnapshot
    state: TokenState = TokenState.OPEN
    device_key: str | None = None
    reply_key: str | None = None
    answer: str | None = None

    def with_state(self, state: TokenState, **fields: str | None) -> "TokenRecord":
        """Return the record in another state; ProtocolViolationError if that transition is not allowed."""
        if state not in TRANSITIONS[self.state]:
            raise ProtocolViolationError(f"token {self.token}: from {self.state} to {state}")
        return self.model_copy(update={"state": state, **fields})

    def claimed_by(self, request: EnrolmentRequest) -> "TokenRecord":
        """Return the record, marked with the keys of the request."""
        keys = {"device_key": key_to_text(request.public_key), "reply_key": key_to_text(request.reply_key)}
        return self.with_state(TokenState.CLAIMED, **keys)

    def is_for(self, request: EnrolmentRequest) -> bool:
        """Whether the token is used, or being used, with the keys in this request."""
        return (self.device_key, self.reply_key) == (key_to_text(request.public_key), key_to_text(request.reply_key))

    def has_expired(self, now: float) -> bool:
        return self.state is TokenState.OPEN and now >= self.expires_at

    def is_admitted(self, now: float) -> bool:
        """Whether the broker should let its holder in: to ask, or to ask again."""
        return self.state is not TokenState.REVOKED and now < self.expires_at + GRACE_S


def decide(record: TokenRecord | None, request: EnrolmentRequest, register: Register, now: float) -> EnrolmentCode:
    """Decide on a request that the token's holder signed; ``enrolled``: grant it, or it was granted before.

    Args:
        record: of the token; None for an unknown one.
    """
    if record is None:
        return EnrolmentCode.TOKEN_UNKNOWN
    if record.state is TokenState.REVOKED:
        return EnrolmentCode.TOKEN_REVOKED
    if record.device_key is not None and not record.is_for(request):
        return EnrolmentCode.TOKEN_USED
    if record.state is TokenState.USED:
        return EnrolmentCode.ENROLLED
    if record.has_expired(now):
        return EnrolmentCode.TOKEN_EXPIRED
    if register.is_forgotten(record.client_id):
        return EnrolmentCode.NAME_FORGOTTEN
    if enrolment_snapshot(register, record.client_id) != record.before and not is_enrolled_by(record, register):
        return EnrolmentCode.NAME_CHANGED
    return EnrolmentCode.ENROLLED


def is_enrolled_by(record: TokenRecord, register: Register) -> bool:
    """Whether the register has the device that a token is being used for: the desk ended after that step."""
    device = register.enrolled.get(record.client_id)
    return device is not None and device.public_key == record.device_key


class TokenLog:
    """The tokens of one operator's folder, whose lock is held.

    Args:
        folder: of the tokens alone; created with the first one.
        key: the enrolment key, which signs answers.
    """

    def __init__(self, folder: Path, federation: str, key: SigningKey) -> None:
        self._folder = folder
        self._federation = federation
        self._key = key

    def answer(self, token: str, request: bytes, code: EnrolmentCode, sealed: bytes = b"") -> bytes:
        """A signed answer to a device that enrols itself."""
        return issue_answer(self._key, self._federation, token, request, code, sealed)

    def head(self, next_serial: int, now: float) -> bytes:
        """The signed head of the desk: how far enrolment has come."""
        return issue_head(self._key, DeskHead(federation=self._federation, next_serial=next_serial, written_at=now))

    def get(self, token: str) -> TokenRecord | None:
        """Return a token or None. SettingsError if its file is damaged."""
        path = self._path(token)
        if not path.exists():
            return None
        try:
            return TokenRecord.model_validate_json(read_private(path))
        except ValidationError:
            raise SettingsError(f"operator: {path} is damaged; remove it, and make another token") from None

    def records(self) -> list[TokenRecord]:
        """All tokens, the oldest first."""
        names = sorted(path.stem for path in self._folder.glob("*.json")) if self._folder.is_dir() else []
        found = [record for name in names if (record := self.get(name)) is not None]
        return sorted(found, key=lambda record: (record.issued_at, record.client_id))

    def issue(
        self, client_ids: Iterable[str], register: Register, lasts_s: float, now: float
    ) -> dict[str, tuple[TokenRecord, SigningKey]]:
        """Make a token for each name: its record, which is stored, and its private key, which is not.

        Raises:
            SettingsError: too many are open, or their lifetime is too long or too short.
        """
        if not SHORTEST_S <= lasts_s <= LONGEST_S:
            raise SettingsError("expires: a token lasts for 1 minute to 30 days, e.g. 1h")
        client_ids = list(client_ids)
        n_open = sum(record.is_admitted(now) for record in self.records())
        if n_open + len(client_ids) > MAX_OPEN_TOKENS:
            raise SettingsError(f"count: {n_open} tokens are open, and at most {MAX_OPEN_TOKENS:,} may be; revoke some")
        issued = {}
        for client_id in client_ids:
            key = SigningKey.generate()
            record = TokenRecord(
                token=secrets.token_hex(8),
                client_id=client_id,
                token_key=key_to_text(key.public),
                issued_at=now,
                expires_at=now + lasts_s,
                before=enrolment_snapshot(register, client_id),
            )
            self.put(record)
            issued[client_id] = record, key
        return issued

    def put(self, record: TokenRecord) -> None:
        """Store a changed record."""
        write_secret(self._path(record.token), record.model_dump_json(indent=1) + "\n", replace=True)

    def revoke(self, records: Iterable[TokenRecord]) -> int:
        """Revoke the unused ones of these tokens; return how many."""
        unused = [record for record in records if TokenState.REVOKED in TRANSITIONS[record.state]]
        for record in unused:
            self.put(record.with_state(TokenState.REVOKED))
        return len(unused)

    def open_of(self, client_ids: Collection[str], now: float) -> list[TokenRecord]:
        """The tokens for these names that a device could use."""
        return [
            record
            for record in self.records()
            if record.client_id in client_ids
            and record.state in (TokenState.OPEN, TokenState.CLAIMED)
            and not record.has_expired(now)
        ]

    def forget(self, client_id: str) -> None:
        """Remove every token that names this client."""
        self._remove(record for record in self.records() if record.client_id == client_id)

    def prune(self, now: float) -> None:
        """Remove useless records."""
        self._remove(record for record in self.records() if now >= record.expires_at + KEPT_S)

    def _remove(self, records: Iterable[TokenRecord]) -> None:
        for record in records:
            self._path(record.token).unlink(missing_ok=True)

    def _path(self, token: str) -> Path:
        return self._folder / f"{token}.json"
