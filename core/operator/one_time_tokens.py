"""The file of a one-time token: with it a device contacts the operator's desk, which enrols it, once.

Written by ``foltr device enrol --token``, read by the device. Its first user takes the token's name, so it is created
with mode 0600 and refused if others can read it.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from foltr.core.errors import SettingsError
from foltr.core.operator.credentials import BrokerAccess
from foltr.core.protocol.fields import Name, TokenId
from foltr.core.protocol.signing import SigningKey, key_from_text
from foltr.core.user_files import FileKind, ReadableByOthersError, read_private_file


class OneTimeToken(BaseModel):
    """A token in its device's form. Keys are base64; ``token_key`` is private, ``enrolment_key`` public.

    Attributes:
        client_id: the name that the device is enrolled under.
        token: names the token; not secret.
        broker: how its holder reaches the broker; that user may only ask to be enrolled and receive the answer.
        expires_at: seconds since the epoch, by the operator's clock.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
    version: Literal[1] = 1
    federation: Name
    client_id: Name
    token: TokenId
    token_key: Annotated[str, Field(repr=False)]
    enrolment_key: str
    broker: BrokerAccess
    expires_at: float

    @property
    def key(self) -> SigningKey:
        return SigningKey.from_text(self.token_key)

    @property
    def enrolment_public_key(self) -> bytes:
        return key_from_text("enrolment_key", self.enrolment_key)

    @property
    def expires(self) -> str:
        """Return when it expires, for people, in UTC to the minute."""
        return datetime.fromtimestamp(self.expires_at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def read_token(path: Path) -> OneTimeToken:
    """Read the token in ``path``; SettingsError if it does not exist, others may read it, or it is not a token."""
    try:
        text = read_private_file(path, FileKind.CREDENTIALS)
    except ReadableByOthersError as error:
        raise SettingsError(f"token: {path} {error.strerror}") from error
    except OSError as error:
        raise SettingsError(
            f"token: {path}: {error.strerror}; `foltr device enrol --token` writes such files"
        ) from error
    try:
        token = OneTimeToken.model_validate_json(text)
        _ = token.key, token.enrolment_public_key
    except (ValidationError, SettingsError):
        # The values stay out of the message: one is secret.
        raise SettingsError(f"token: {path} is not what `foltr device enrol --token` writes") from None
    return token
