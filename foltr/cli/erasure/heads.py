"""``foltr erasure log-head``: the newest entry of the log of erasures, as it was published or a device heard it."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from foltr.cli import options
from foltr.cli.database import reason_as_json
from foltr.cli.erasure.receipts import DEFAULT_NOTED, KEY_HELP, Noted
from foltr.cli.history.heartbeat import whom_to_ask
from foltr.cli.operator.identities import read_any_credentials
from foltr.cli.output import report, say, warn
from foltr.cli.settings import Settings, load_settings
from foltr.core.errors import SettingsError, UnavailableError
from foltr.core.operator.next_commands import DEFAULT_OPERATOR_FOLDER
from foltr.operations.audit_heads import SignedHead, check_heads, heard_by_device, published_head
from foltr.operations.noted_entries import note, read_noted
from foltr.operations.receipt_files import public_key_of


def log_head(
    key: Annotated[str | None, typer.Option("--key", metavar="TEXT|FILE", help=KEY_HELP)] = None,
    store: Annotated[
        Path | None, typer.Option("--store", metavar="FILE", help="Ask the store of a device that does not run")
    ] = None,
    broker: options.Broker = None,
    credentials: options.Credentials = None,
    federation: options.Federation = None,
    noted: Noted = DEFAULT_NOTED,
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
            heads = [asyncio.run(ask_head(settings, _federation_of(settings), public_key))]
        else:
            heads = heard_by_device(store, public_key)
        before = read_noted(noted)
        warn(note(noted, [one.entry for one in heads]))
        if not json:
            say(heads[0].in_words())
        check_heads(heads, before, noted)
    head = heads[0].head
    report(json, {"whole": True, "federation": head.federation, "entry": head.seq, "hash": head.hash.hex()})


async def ask_head(settings: Settings, federation: str, key: bytes | None) -> "SignedHead":
    """Ask the broker that the settings name, or that of the operator's folder.

    Args:
        key: the federator's public key; None for that of the credentials.

    Raises:
        UnavailableError: there is no head that the key has signed, or nobody to ask; it says why.
    """
    named = whom_to_ask(settings, federation)
    if named is None:
        raise UnavailableError("no broker was named: name it with --broker, or credentials that do with --credentials")
    return await published_head(*named, federation, key)


def _federation_of(settings: Settings) -> str:
    """The federation that is named; else that of the credentials, or of the operator's folder."""
    if "federation" in settings.model_fields_set:
        return settings.federation
    path = DEFAULT_OPERATOR_FOLDER / "operator.json" if settings.credentials is None else Path(settings.credentials)
    if settings.credentials is None and not path.exists():
        return settings.federation
    return read_any_credentials(path).federation
