"""``foltr erasure log-head``: the newest entry of the log of erasures, as it was published or a device heard it."""

import asyncio
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foltr.cli import options
from foltr.cli.database import reason_as_json
from foltr.cli.doctor.checks import role_of
from foltr.cli.erasure.noted import (
    DEFAULT,
    Noted,
    NotedEntry,
    contradictions,
    newest_noted,
    note,
    noted_entry,
    read_noted,
)
from foltr.cli.erasure.receipts import KEY_HELP, public_key_of
from foltr.cli.history.heartbeat import retained, whom_to_ask
from foltr.cli.output import report, say
from foltr.cli.settings import Settings, load_settings
from foltr.errors import DataError, MessageError, SettingsError, UnavailableError
from foltr.operator.credentials import read_credentials
from foltr.operator.heard_keys import HeardKeys, believe_heard, key_topics
from foltr.operator.next_commands import DEFAULT_OPERATOR_FOLDER
from foltr.protocol.audit_heads import AuditHead
from foltr.protocol.codec import open_envelope
from foltr.protocol.topics import Topics

if TYPE_CHECKING:
    from broker.link import InboundMessage
    from foltr.operator.credentials import Credentials

_ASK = "Ask the operator which backup was restored, and why; keep the file with what was noted"


@dataclass(frozen=True)
class SignedHead:
    """A head, the key that has signed it, and where it was heard, in words.

    Attributes:
        is_published: it is what everybody hears now.
    """

    head: AuditHead
    key: bytes
    source: str
    is_published: bool = False

    @property
    def at(self) -> datetime:
        """When its entry was written."""
        return datetime.fromtimestamp(self.head.at, UTC)

    @property
    def entry(self) -> NotedEntry:
        """As an entry to be noted."""
        return noted_entry(self.head.federation, self.key, self.head.seq, self.head.hash.hex(), self.source)

    def in_words(self) -> str:
        """Say what it says."""
        if self.head.seq == 0:
            return f"The audit log of {self.head.federation} is empty, says {self.source}."
        when = f"written {self.at:%Y-%m-%d %H:%M:%S} UTC, hash {self.head.hash.hex()}"
        return f"The audit log of {self.head.federation} ends with entry {self.head.seq}, says {self.source}: {when}."


def log_head(
    key: Annotated[str | None, typer.Option("--key", metavar="TEXT|FILE", help=KEY_HELP)] = None,
    store: Annotated[
        Path | None, typer.Option("--store", metavar="FILE", help="Ask the store of a device that does not run")
    ] = None,
    broker: options.Broker = None,
    credentials: options.Credentials = None,
    federation: options.Federation = None,
    noted: Noted = DEFAULT,
    json: options.Json = False,
) -> None:
    """Print and note the newest entry, as the federator has published it or a device has heard it.

    The exit code is 1 if it contradicts what was noted before, or what else the device has heard.
    """
    if store is not None and key is None:
        raise SettingsError("key: name the federator's public key with --key, too")
    settings = load_settings(broker_url=broker, credentials=credentials, federation=federation)
    public_key = None if key is None else public_key_of(key)
    with reason_as_json(json, {"whole": False}):
        if store is None or public_key is None:
            heads = [asyncio.run(published_head(settings, _federation_of(settings), public_key))]
        else:
            heads = heard_by_device(store, public_key)
        before = read_noted(noted)
        note(noted, [one.entry for one in heads])
        if not json:
            say(heads[0].in_words())
        _check_heads(heads, before, noted)
    head = heads[0].head
    report(json, {"whole": True, "federation": head.federation, "entry": head.seq, "hash": head.hash.hex()})


def _check_heads(heads: list[SignedHead], before: list[NotedEntry], noted: Path) -> None:
    """DataError where a head is not above, or beside, what was noted or what the device has heard before it."""
    newest = heads[0]
    for one in heads:
        for other in contradictions(before, one.entry):
            raise DataError(
                f"audit log: {one.source} says that entry {other.seq} has the hash {one.entry.hash}, and {noted} has "
                f"{other.hash} from {other.source}: the log was written anew. {_ASK}"
            )
    if len(heads) > 1:
        _, first, later = heads
        raise DataError(
            f"audit log: {newest.source} heard of entry {first.head.seq}, and later that the log ends with "
            f"{later.head.seq}: it was cut, or an older database was restored. {_ASK}"
        )
    highest = newest_noted(before, newest.head.federation, newest.key)
    if highest is not None and highest.seq > newest.head.seq and newest.is_published:
        raise DataError(
            f"audit log: it ends with entry {newest.head.seq}, says {newest.source}, and {noted} has entry "
            f"{highest.seq} from {highest.source}: it was cut, an older database was restored, or the broker repeats "
            f"an older message. {_ASK}"
        )


async def published_head(settings: Settings, federation: str, key: bytes | None) -> SignedHead:
    """Ask the broker that the settings name, or that of the operator's folder.

    Args:
        key: the federator's public key; None for that of the credentials.

    Raises:
        UnavailableError: there is no head that the key has signed, or nobody to ask; it says why.
    """
    named = whom_to_ask(settings, federation)
    if named is None:
        raise UnavailableError("no broker was named: name it with --broker, or credentials that do with --credentials")
    address, credentials = named
    topics = Topics(federation)
    heard = await retained(address, [*key_topics(federation), topics.audit_head])
    where = f"the broker {address}"
    if topics.audit_head not in heard:
        raise UnavailableError(
            f"{where} has no head of the audit log of {federation}: start the federator, and if it "
            "runs, renew the broker's access list with `foltr broker config --force`"
        )
    hindrance = None
    if key is None:
        keys = _keys_of(credentials, heard)
        key, hindrance = keys.credentials.federator_public_key, keys.hindrance
    try:
        return replace(_signed(heard[topics.audit_head].payload, topics, key, where), is_published=True)
    except UnavailableError as error:
        if hindrance is None:
            raise
        raise UnavailableError(f"{error}: {hindrance}") from error


def heard_by_device(store: Path, key: bytes) -> list[SignedHead]:
    """Read what a device that does not run has heard: the newest head, then two that contradict each other, if any.

    Raises:
        SettingsError: it is no device's store.
        DataError: it runs, or it has heard of none.
    """
    from edge_client.store.heard import HeardStore

    if not store.exists():
        raise SettingsError(f"store: there is no file {store}; name the store of a device")
    opened = HeardStore(store, None)
    try:
        owner, payloads = opened.owner, opened.audit_heads()
    finally:
        opened.close()
    if owner is None or not payloads:
        raise DataError(f"store: {store} has heard of no audit log")
    try:
        return [_signed(payload, Topics(owner[0]), key, f"the device {owner[1]}") for payload in payloads]
    except UnavailableError as error:
        raise DataError(f"store: {error}") from error


def _keys_of(credentials: "Credentials | None", heard: "dict[str, InboundMessage]") -> HeardKeys:
    if credentials is None:
        raise SettingsError("key: name the federator's public key with --key, or credentials that have it")
    return believe_heard(credentials, heard)


def _signed(payload: bytes, topics: Topics, key: bytes, source: str) -> SignedHead:
    """Read a head; UnavailableError where it is not signed by the key, or cannot be read."""
    try:
        envelope = open_envelope(payload)
        if envelope.is_signed_by(key, topics.audit_head):
            return SignedHead(envelope.read(AuditHead), key, source)
        cause = "another one, or nobody, has signed it"
    except MessageError as error:
        cause = str(error)
    raise UnavailableError(f"{source} has no head of the audit log that the key's holder has signed: {cause}")


def _federation_of(settings: Settings) -> str:
    """The federation that is named; else that of the credentials, or of the operator's folder."""
    if "federation" in settings.model_fields_set:
        return settings.federation
    path = DEFAULT_OPERATOR_FOLDER / "operator.json" if settings.credentials is None else Path(settings.credentials)
    if settings.credentials is None and not path.exists():
        return settings.federation
    return read_credentials(path, role_of(path)).federation
