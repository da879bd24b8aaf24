"""A device enrols itself with a one-time token: it makes its key, which never leaves it, and asks the operator's desk.

The key is on disk before it asks, so a device that is killed repeats the request, and gets the same answer.
"""

import asyncio
import contextlib
import os
import secrets
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from foltr.broker.address import BrokerAddress
from foltr.broker.link import InboundMessage, MqttLink
from foltr.core.errors import DataError, MessageError, SettingsError, UnavailableError
from foltr.core.failpoints import Failpoint, failpoint
from foltr.core.operator.credentials import BrokerAccess, Credentials, write_credentials, write_secret
from foltr.core.operator.one_time_tokens import OneTimeToken
from foltr.core.protocol.enrolment import read_enrolment
from foltr.core.protocol.enrolment_requests import EnrolmentAnswer, EnrolmentCode
from foltr.core.protocol.fields import TokenId
from foltr.core.protocol.signed_requests import answer_info, issue_request, read_answer
from foltr.core.protocol.signing import SigningKey, key_from_text, key_to_text
from foltr.core.protocol.topics import Topics, token_user
from foltr.core.secure.sealing import SealingKey
from foltr.core.user_files import FileKind, read_text_file

ASK_AGAIN_S = 2.0
_REMEDIES = {
    EnrolmentCode.TOKEN_USED: "If it was not you, tell the operator, who revokes the name: foltr device revoke "
    "{name}. If it was you, and the credentials are lost: foltr device enrol {name} "
    "--token --replace",
    EnrolmentCode.UNREADABLE: "Update this device or the operator's desk",
}
_REMEDY = "The operator makes another: foltr device enrol {name} --token --replace"


class TokenRefusedError(DataError):
    """The operator's desk refuses this token; asking again is useless."""


class DeviceKeys(BaseModel):
    """A device's private keys for one token, until it is enrolled; base64."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
    token: TokenId
    signing_key: Annotated[str, Field(repr=False)]
    reply_key: Annotated[str, Field(repr=False)]


async def enrol_device(
    token: OneTimeToken, out: Path, *, wait_s: float, broker: BrokerAccess | None = None
) -> Credentials:
    """Enrol this device with a one-time token, and write its credentials.

    Args:
        out: the file for the credentials; the device's keys are beside it until they are there.
        wait_s: how long to wait for the broker and for the operator's desk, in seconds.
        broker: how to reach the broker, if not as the token says.

    Raises:
        TokenRefusedError: the token was used, has expired, was revoked, or its name is not available.
        UnavailableError: no broker, or no answer in time. The token stays valid for this device.
        SettingsError: a file cannot be read or written.
    """
    pending = out.with_name(f".{out.name}.enrolling")
    keys = keys_for(pending, token)
    failpoint(Failpoint.KEYS_MADE)
    device_key = SigningKey.from_text(keys.signing_key)
    reply_key = SealingKey(key_from_text("reply_key", keys.reply_key))
    request = issue_request(token.key, token.federation, token.token, device_key, reply_key.public)
    answer = await _ask(token, broker or token.broker, request, wait_s)
    failpoint(Failpoint.ENROLMENT_ANSWERED)
    if answer.code is not EnrolmentCode.ENROLLED:
        remedy = _REMEDIES.get(answer.code, _REMEDY).format(name=token.client_id)
        raise TokenRefusedError(
            f"token: {answer.code}: {answer.code.meaning}. {remedy} (token {token.token}, for {token.client_id}, "
            f"valid until {token.expires})"
        )
    credentials = _open(token, answer, reply_key, request, device_key)
    write_credentials(out, credentials)
    pending.unlink(missing_ok=True)
    return credentials


def keys_for(pending: Path, token: OneTimeToken) -> DeviceKeys:
    """Return this device's keys for this token, making them if needed; two commands at once get the same keys."""
    if (kept := _kept_keys(pending, token)) is not None:
        return kept
    if pending.exists():
        pending.unlink()  # for another token, or damaged
    made = DeviceKeys(
        token=token.token,
        signing_key=SigningKey.generate().to_text(),
        reply_key=key_to_text(SealingKey.generate().private),
    )
    written = pending.with_name(f"{pending.name}.{secrets.token_hex(8)}")
    write_secret(written, made.model_dump_json() + "\n")
    try:
        os.link(written, pending)
    except FileExistsError:
        return _kept_keys(pending, token) or made
    except OSError:
        written.replace(pending)  # this file system allows only one name for a file
    finally:
        written.unlink(missing_ok=True)
    return made


def _kept_keys(pending: Path, token: OneTimeToken) -> DeviceKeys | None:
    with contextlib.suppress(OSError, ValidationError):
        kept = DeviceKeys.model_validate_json(read_text_file(pending, FileKind.CREDENTIALS))
        return kept if kept.token == token.token else None
    return None


async def _ask(token: OneTimeToken, access: BrokerAccess, request: bytes, wait_s: float) -> EnrolmentAnswer:
    """Ask until the operator answers this request; UnavailableError if that takes too long."""
    topics = Topics(token.federation)
    answered: asyncio.Future[EnrolmentAnswer] = asyncio.get_running_loop().create_future()

    def heard(message: InboundMessage) -> None:
        # On an open broker others may write here too.
        with contextlib.suppress(MessageError):
            key = token.enrolment_public_key
            answer = read_answer(message.payload, key, token.federation, token.token, request)
            if not answered.done():
                answered.set_result(answer)

    link = MqttLink(
        BrokerAddress.of(access),
        client_id=token_user(token.token),
        subscriptions=[topics.enrolment_answer(token.token)],
        on_message=heard,
        persistent=False,
        give_up_after_s=wait_s,
    )
    async with link:
        try:
            async with asyncio.timeout(wait_s):
                while not answered.done():
                    await link.wait_connected(wait_s)
                    with contextlib.suppress(UnavailableError):
                        await link.publish(topics.enrolment_request(token.token), request)
                    await asyncio.wait([answered], timeout=ASK_AGAIN_S)
        except (TimeoutError, UnavailableError) as error:
            if (outage := link.outage) is not None:
                told = f"This token is valid until {token.expires}; an expired or revoked one cannot connect"
                raise UnavailableError(f"{outage} {told}.") from error
            raise UnavailableError(
                f"no answer of the operator's desk within {wait_s:g} s: does `foltr operator desk` run with the "
                f"operator's folder? The token is valid until {token.expires}, and stays this device's: try again"
            ) from error
    return answered.result()


def _open(
    token: OneTimeToken, answer: EnrolmentAnswer, reply_key: SealingKey, request: bytes, device_key: SigningKey
) -> Credentials:
    """Return the credentials in an answer, with the device's key.

    Raises:
        SettingsError: they are not this device's: the desk and the token do not belong together.
    """
    content = reply_key.unseal(answer.sealed, answer_info(request))
    try:
        credentials = Credentials.model_validate_json(content or b"")
        enrolment = read_enrolment(
            credentials.enrolment_bytes or b"", token.enrolment_public_key, token.federation, token.client_id
        )
        is_ours = credentials.enrolment_key == token.enrolment_key and enrolment.public_key == device_key.public
    except (ValueError, MessageError):
        is_ours = False
    if not is_ours:
        raise SettingsError("token: the answer is for another device; ask the operator who has this token")
    return credentials.model_copy(update={"signing_key": device_key.to_text()})
