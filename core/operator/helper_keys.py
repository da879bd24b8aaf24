"""A helper's public keys in a file: ``foltr helper keys`` writes it, and ``foltr policy new --helper`` reads it.

The file is JSON with the fields of `HelperKeys`, keys as base64, and a signature by the signing key. It proves that the
owner of the signing key also chose the sealing keys; who that is the operator knows from the helper's enrolment.
"""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from foltr.core.errors import SettingsError
from foltr.core.protocol.fields import Name
from foltr.core.protocol.policies import HelperKeys
from foltr.core.protocol.signing import SigningKey, key_from_text, key_to_text, verify
from foltr.core.secure.sealing import can_be_sealed_to
from foltr.core.user_files import FileKind, read_file

_DOMAIN: Final = b"foltr helper keys\n"


class _KeysFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    name: Name
    signing_key: str
    sealing_key: str
    epoch_keys: list[str]
    signature: str


def helper_keys_text(name: str, signing_key: SigningKey, sealing_key: bytes, epoch_keys: Sequence[bytes]) -> str:
    """Return the file's text, a line of JSON.

    Args:
        name: of the helper.
        signing_key: private, of the helper's answers.
        sealing_key, epoch_keys: public, X25519.
    """
    keys = HelperKeys(name=name, signing_key=signing_key.public, sealing_key=sealing_key, epoch_keys=list(epoch_keys))
    file = _KeysFile(
        name=name,
        signing_key=key_to_text(keys.signing_key),
        sealing_key=key_to_text(keys.sealing_key),
        epoch_keys=[key_to_text(key) for key in keys.epoch_keys],
        signature=base64.b64encode(signing_key.sign(_signed_part(keys))).decode(),
    )
    return file.model_dump_json() + "\n"


def read_helper_keys(path: Path) -> HelperKeys:
    """Read a helper's public keys.

    Raises:
        SettingsError: the file does not exist, is of another kind, or the signature is not the signing key's.
    """
    try:
        text = read_file(path, FileKind.DECLARATION)
    except OSError as error:
        raise SettingsError(f"helper: {path}: {error.strerror}; `foltr helper keys` writes such files") from error
    try:
        file = _KeysFile.model_validate_json(text)
        keys = HelperKeys(
            name=file.name,
            signing_key=key_from_text("signing_key", file.signing_key),
            sealing_key=key_from_text("sealing_key", file.sealing_key),
            epoch_keys=[key_from_text("epoch_keys", key) for key in file.epoch_keys],
        )
        signature = base64.b64decode(file.signature, validate=True)
    except (ValueError, SettingsError) as error:
        raise SettingsError(f"helper: {path} is not what `foltr helper keys` writes ({_where(error)})") from None
    if not verify(keys.signing_key, _signed_part(keys), signature):
        raise SettingsError(f"helper: {path} was changed: its signature is not that of its signing key")
    if not all(map(can_be_sealed_to, (keys.sealing_key, *keys.epoch_keys))):
        raise SettingsError(
            f"helper: nothing can be sealed to a sealing key in {path}; `foltr helper keys` makes others"
        )
    return keys


def _signed_part(keys: HelperKeys) -> bytes:
    # No name has a line break, and all keys have 32 bytes.
    return _DOMAIN + keys.name.encode() + b"\n" + keys.signing_key + keys.sealing_key + b"".join(keys.epoch_keys)


def _where(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return ".".join(map(str, error.errors()[0]["loc"])) or "it is not JSON"
    return str(error) if isinstance(error, SettingsError) else "signature: it is not base64"
