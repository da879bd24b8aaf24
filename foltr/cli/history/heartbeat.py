"""Asks the broker what the database cannot show: whether the federator runs, and which devices are connected."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from foltr.broker.address import BrokerAddress
from foltr.broker.link import InboundMessage
from foltr.broker.probe import look_at_certificate
from foltr.broker.short_connections import read_retained
from foltr.cli.operator.identities import broker_of, read_any_credentials
from foltr.cli.settings import Settings
from foltr.core.errors import MessageError, SettingsError, UnavailableError
from foltr.core.operator.credentials import BrokerAccess, Credentials, read_credentials
from foltr.core.operator.followed_keys import FollowedKeys, follow_messages, key_topics
from foltr.core.operator.next_commands import DEFAULT_OPERATOR_FOLDER
from foltr.core.protocol.codec import decode, open_envelope
from foltr.core.protocol.heartbeat import FederatorStatus
from foltr.core.protocol.membership import Status
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.core.protocol.verdicts import Finding

if TYPE_CHECKING:
    from foltr.operations.situation import ReceivedStatus


async def receive_status(settings: Settings, federation: str) -> "ReceivedStatus | None":
    """Ask the broker of the settings, or the one of the operator's folder in the working directory.

    Without either, the local broker is asked, and counts if it retains a heartbeat of this federation. Otherwise the
    result is None. It is also None if only the federator's own user is available: a second connection as that user
    would disconnect the running federator.
    """
    from foltr.operations.situation import ReceivedStatus

    topics = Topics(federation)
    try:
        named = broker_to_ask(settings, federation)
    except SettingsError as error:
        if settings.credentials is not None:
            raise
        return ReceivedStatus(unreachable=str(error))  # the user did not name that file
    filters = [*key_topics(federation), topics.federator_status, topics.client("+", ClientTopic.STATUS)]
    if named is None:
        return None if settings.credentials is not None else await _hear_unnamed(settings, topics, filters)
    address, credentials = named
    try:
        return _read(await read_retained(address, filters), topics, credentials)
    except UnavailableError as error:
        shown = await asyncio.to_thread(look_at_certificate, address)
        return ReceivedStatus(unreachable=str(error), found=shown if isinstance(shown, Finding) else None)


async def _hear_unnamed(settings: Settings, topics: Topics, filters: list[str]) -> "ReceivedStatus | None":
    try:
        heard = _read(await read_retained(BrokerAddress.parse(settings.broker_url), filters), topics, None)
    except UnavailableError:
        return None
    return None if heard.status is None else heard


def broker_to_ask(settings: Settings, federation: str) -> "tuple[BrokerAddress, Credentials | None] | None":
    """Find the broker and the credentials to ask with. None as for `receive_status`.

    Raises:
        SettingsError: there are credentials, and they cannot be read.
    """
    credentials = _credentials(settings, federation)
    if credentials is None:
        is_named = "broker_url" in settings.model_fields_set
        return (BrokerAddress.parse(settings.broker_url), None) if is_named else None
    if credentials.role == "federator" and _is_named(credentials.broker):
        return None
    return broker_of(settings, credentials), credentials


def _credentials(settings: Settings, federation: str) -> Credentials | None:
    if settings.credentials is not None:
        return read_any_credentials(Path(settings.credentials))
    path = DEFAULT_OPERATOR_FOLDER / "operator.json"
    if "broker_url" in settings.model_fields_set or not path.exists():
        return None
    credentials = read_credentials(path, "operator")
    return credentials if credentials.federation == federation else None


def _is_named(access: BrokerAccess) -> bool:
    return access.username is not None or access.certificate is not None


def _read(heard: "dict[str, InboundMessage]", topics: Topics, credentials: Credentials | None) -> "ReceivedStatus":
    from foltr.operations.situation import ReceivedStatus

    status, devices = None, []
    keys = None if credentials is None else follow_messages(credentials, heard)
    for topic, message in heard.items():
        try:
            if topic == topics.federator_status:
                status = _status(message.payload, topics, keys)
            elif topic not in key_topics(topics.federation) and decode(message.payload, Status).online:
                devices.append(decode(message.payload, Status).client_id)
        except MessageError:
            continue  # written by somebody else or by another version: ignored
    if status is None and keys is not None and keys.blocker is not None:
        return ReceivedStatus(None, sorted(devices), unreachable=keys.blocker)
    return ReceivedStatus(status, sorted(devices))


def _status(payload: bytes, topics: Topics, keys: FollowedKeys | None) -> FederatorStatus | None:
    envelope = open_envelope(payload)
    if keys is not None:
        key = keys.credentials.federator_public_key
        if not envelope.is_signed_by(key, topics.federator_status):
            return None
    return envelope.read(FederatorStatus)
