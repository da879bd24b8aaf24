"""The one file a process needs to take part: how to reach the broker, its key, and the keys it trusts.

Written by ``foltr device enrol``, read by devices, helpers, federators, operators. It holds secrets: it is created with
mode 0600 and refused if others can read it.
"""

import base64
import os
import re
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from foltr.core.errors import MessageError, SettingsError
from foltr.core.protocol.enrolment import issue_enrolment, read_enrolment, read_federator_key
from foltr.core.protocol.fields import Name
from foltr.core.protocol.operator_keys import OperatorKeys, follow_succession, read_kept_enrolments
from foltr.core.protocol.policies import Policy
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.signed_policies import SignedPolicy, read_policy
from foltr.core.protocol.signing import KEY_BYTES, SigningKey, key_from_text, key_to_text
from foltr.core.protocol.states import Privacy
from foltr.core.user_files import FileKind, ReadableByOthersError, read_private_file, read_text_file

if TYPE_CHECKING:
    from foltr.core.secure.sealing import SealingKey

FEDERATOR_USER = "@federator"
OPERATOR_USER = "@operator"
DESK_USER = "@desk"
_WORKER_USERS = "@ingest."
_UNFINISHED = re.compile(r"\..+\.[0-9a-f]{16}")
_Secret = Annotated[str, Field(repr=False)]
_OptionalSecret = Annotated[str | None, Field(repr=False)]
Role = Literal["device", "federator", "operator", "helper"]


def worker_user(name: str) -> str:
    """Return an ingest worker's user name at the broker; no device's name begins like it."""
    return f"{_WORKER_USERS}{name}"


def is_worker_user(user: str | None) -> bool:
    """Whether a user of the broker is an ingest worker."""
    return user is not None and user.startswith(_WORKER_USERS)


class BrokerAccess(BaseModel):
    """How to reach the broker and log in. Certificates and keys are PEM text."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
    # It may hold a password too.
    broker_url: _Secret
    username: str | None = None
    password: _OptionalSecret = None
    ca: str | None = None
    certificate: str | None = None
    key: _OptionalSecret = None


class Credentials(BaseModel):
    """The identity of a process. Keys are base64; ``signing_key`` is private, the others are public.

    Attributes:
        name: the client's or the helper's name, or ``@federator`` or ``@operator``, or ``@ingest.NAME`` for a worker.
        signing_key: None if the device made its key itself, and keeps it (`foltr device enrol --public-key`).
        federator_key_sequence: how often the operator had replaced the federator's key when this was written.
        enrolment: the operator's signed statement about this device, base64; devices only.
        policy: the operator's newest policy when this was written, as signed, base64; None if none was issued.
        sealing_keys: private, X25519, of the federator: its own, then former ones that policies are sealed to.
        federator_sealing_key: public, of the first of these; the operator's only, to seal a policy's verify key to.
            None if unknown, e.g. in a folder that was restored.
        succession: the chain from the first enrolment key to the present one, signed, base64; None without it.
        kept_enrolments: those of former enrolment keys that count, as signed, base64; the federator's only.
        privacy: what the federation was made for; the federator's and the operator's only. A device's is in its
            enrolment (`is_pinned`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
    version: Literal[1] = 1
    role: Role
    federation: Name
    name: str
    broker: BrokerAccess
    signing_key: _OptionalSecret
    enrolment_key: str
    federator_key: str
    federator_key_sequence: int = 0
    enrolment: str | None = None
    policy: str | None = None
    sealing_keys: Annotated[tuple[str, ...], Field(repr=False)] = ()
    federator_sealing_key: str | None = None
    succession: str | None = None
    kept_enrolments: str | None = None
    privacy: Privacy | None = None

    @property
    def key(self) -> SigningKey:
        if self.signing_key is None:
            raise SettingsError("signing_key: it is missing; the device made its key itself and keeps it")
        return SigningKey.from_text(self.signing_key)

    @property
    def enrolment_public_key(self) -> bytes:
        return key_from_text("enrolment_key", self.enrolment_key)

    @property
    def operator_keys(self) -> OperatorKeys:
        """The trusted keys of the operator.

        Raises:
            MessageError: the succession is not of this enrolment key, or cannot be read.
        """
        if self.succession is None:
            return OperatorKeys(self.enrolment_public_key)
        keys = follow_succession(base64.b64decode(self.succession), self.enrolment_public_key, self.federation)
        if self.kept_enrolments is None:
            return keys
        signed = base64.b64decode(self.kept_enrolments)
        return keys.keeping(read_kept_enrolments(signed, keys, self.federation))

    def with_succession(self, succession: bytes) -> "Credentials":
        """Return these credentials with the enrolment key that followed from theirs.

        Raises:
            MessageError: it does not follow from theirs.
        """
        keys = follow_succession(succession, self.enrolment_public_key, self.federation)
        text = base64.b64encode(succession).decode()
        return self.model_copy(update={"enrolment_key": key_to_text(keys.newest), "succession": text})

    @property
    def federator_public_key(self) -> bytes:
        return key_from_text("federator_key", self.federator_key)

    @property
    def opened_sealing_keys(self) -> "tuple[SealingKey, ...]":
        """Return the sealing keys, ready for use; SettingsError if one is invalid."""
        if not self.sealing_keys:
            return ()  # as on every device, which need not load OpenSSL for that
        from foltr.core.secure.sealing import SealingKey

        return tuple(SealingKey(key_from_text("sealing_keys", text)) for text in self.sealing_keys)

    def can_check(self, policy: Policy) -> bool:
        """Whether the federator has the key that a policy's verify key is sealed to, if there is one."""
        keys = {key.public for key in self.opened_sealing_keys}
        return policy.norm_proof is None or policy.norm_proof.federator_key in keys

    @property
    def federator_sealing_public_key(self) -> bytes | None:
        text = self.federator_sealing_key
        return None if text is None else key_from_text("federator_sealing_key", text)

    def with_federator_key(self, statement: bytes) -> "Credentials":
        """Return these credentials with the federator's key that the operator states (`FederatorKey`).

        Raises:
            MessageError: it is not this operator's statement, or older than the key that is known (``replayed``).
        """
        stated = read_federator_key(statement, self.operator_keys, self.federation)
        if stated.sequence < self.federator_key_sequence:
            raise MessageError(
                ReceiptCode.REPLAYED, f"key {stated.sequence} of the federator; {self.federator_key_sequence} is known"
            )
        if stated.sequence == self.federator_key_sequence:
            return self
        key = key_to_text(stated.new_key)
        return self.model_copy(update={"federator_key": key, "federator_key_sequence": stated.sequence})

    @property
    def enrolment_bytes(self) -> bytes | None:
        return None if self.enrolment is None else base64.b64decode(self.enrolment, validate=True)

    @property
    def is_pinned(self) -> bool:
        """Whether the operator's statement about this device allows it to send only under a policy.

        Raises:
            MessageError: the statement is not from the operator of these credentials, or cannot be read.
        """
        signed = self.enrolment_bytes
        if signed is None:
            return False
        # Our own file: a statement in it by a former enrolment key still names its federation.
        return read_enrolment(signed, self.operator_keys.stored(), self.federation, self.name).secure

    @property
    def policy_bytes(self) -> bytes | None:
        return None if self.policy is None else base64.b64decode(self.policy, validate=True)

    @property
    def signed_policy(self) -> SignedPolicy | None:
        """Return the policy, checked; None without one.

        Raises:
            MessageError: it is not this operator's, or cannot be read.
        """
        signed = self.policy_bytes
        return None if signed is None else read_policy(signed, self.operator_keys, self.federation)


def public_key_from(text: str) -> bytes:
    """Return the public key that a device has made itself, from the name of a file that holds it, or from the key.

    Raises:
        SettingsError: it is neither 64 hexadecimal digits nor the base64 text of 32 bytes, nor such a file.
    """
    try:
        content = read_text_file(text, FileKind.KEY).strip() if Path(text).exists() else text
        return bytes.fromhex(content) if len(content) == 2 * KEY_BYTES else key_from_text("public_key", content)
    except (ValueError, OSError, SettingsError):
        raise SettingsError(
            f"public_key: {text[:100]!r} is not a key ({2 * KEY_BYTES} hexadecimal digits, or base64), nor a file "
            "of one"
        ) from None


def key_of_device(kept: bytes | None) -> tuple[bytes, str | None]:
    """Return a device's public key, and its private one as text: of a new pair, or only the public key that it made."""
    if kept is not None:
        return kept, None
    key = SigningKey.generate()
    return key.public, key.to_text()


def device_identity(
    enrolment_key: SigningKey,
    federator_key: bytes,
    federation: str,
    client_id: str,
    serial: int,
    broker: BrokerAccess,
    *,
    secure: bool = False,
) -> Credentials:
    """Make credentials for a device, with a new key and the operator's statement about it."""
    key = SigningKey.generate()
    enrolment = issue_enrolment(enrolment_key, federation, client_id, key.public, serial, time.time(), secure=secure)
    return Credentials(
        role="device",
        federation=federation,
        name=client_id,
        broker=broker,
        signing_key=key.to_text(),
        enrolment_key=key_to_text(enrolment_key.public),
        federator_key=key_to_text(federator_key),
        enrolment=base64.b64encode(enrolment).decode(),
    )


def read_credentials(path: Path, role: Role) -> Credentials:
    """Read the credentials in ``path``.

    Raises:
        SettingsError: the file does not exist, others may read it, or it is not for this role.
    """
    try:
        text = read_private_file(path, FileKind.CREDENTIALS)
    except ReadableByOthersError as error:
        raise SettingsError(f"credentials: {path} {error.strerror}") from error
    except OSError as error:
        raise SettingsError(f"credentials: {path}: {error.strerror}; `foltr device enrol` writes such files") from error
    try:
        credentials = Credentials.model_validate_json(text)
        _ = credentials.enrolment_public_key, credentials.federator_public_key
        _ = credentials.operator_keys, credentials.enrolment_bytes, credentials.signed_policy
        _ = credentials.opened_sealing_keys, credentials.federator_sealing_public_key
        if credentials.signing_key is not None:
            _ = credentials.key
    except (ValueError, SettingsError, MessageError) as error:
        # The values stay out of the message: some are secret.
        raise SettingsError(f"credentials: {path} is not what `foltr device enrol` writes ({_where(error)})") from None
    if credentials.signing_key is None:
        raise SettingsError(
            f"credentials: {path} has no private key, which the device {credentials.name} made itself and keeps: only "
            "that device can use them"
        )
    if role == "federator" == credentials.role and credentials.key.public != credentials.federator_public_key:
        raise SettingsError(f"credentials: {path} mixes two federators: its key is not the one that devices trust")
    if credentials.role != role:
        raise SettingsError(f"credentials: {path} is for the role {credentials.role}; this needs one for a {role}")
    return credentials


def write_secret(path: Path, content: str | bytes, *, replace: bool = False) -> None:
    """Atomically and durably write a file that only its owner can read.

    Raises:
        SettingsError: it exists and ``replace`` is not given, or it cannot be written.
    """
    if path.exists() and not replace:
        raise SettingsError(f"{path} exists; name another file with --out, or remove it if it is no longer needed")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error


def remove_unfinished(folder: Path) -> None:
    """Remove unfinished files of `write_secret` from a locked folder, left when a process was killed."""
    for path in folder.rglob(".*"):
        if _UNFINISHED.fullmatch(path.name):
            path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    # A new name survives a power failure only once its folder is on disk too.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _where(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return ".".join(map(str, error.errors()[0]["loc"])) or "it is not JSON"
    if isinstance(error, MessageError):
        return f"policy: {error}"
    return str(error) if isinstance(error, SettingsError) else "enrolment or policy: it is not base64"


def write_credentials(path: Path, credentials: Credentials) -> None:
    """Write credentials to a file that only its owner may read; replaces an existing file atomically."""
    write_secret(path, credentials.model_dump_json(indent=1) + "\n", replace=True)
