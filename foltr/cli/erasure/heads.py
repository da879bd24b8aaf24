"""``foltr erasure log-head``: the newest entry of the log of erasures, as the federator has published it."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from foltr.cli import options
from foltr.cli.erasure.receipts import KEY_HELP
from foltr.cli.history.heartbeat import whom_to_ask
from foltr.cli.operator.identities import read_any_credentials
from foltr.cli.output import report
from foltr.cli.settings import Settings, load_settings
from foltr.core.errors import UnavailableError
from foltr.core.operator.next_commands import DEFAULT_OPERATOR_FOLDER
from foltr.operations.audit_heads import PublishedHead, published_head
from foltr.operations.receipt_files import public_key_of


def log_head(
    key: Annotated[str | None, typer.Option("--key", metavar="TEXT|FILE", help=KEY_HELP)] = None,
    broker: options.Broker = None,
    credentials: options.Credentials = None,
    federation: options.Federation = None,
    json: options.Json = False,
) -> None:
    """Print the newest entry, as the federator has published it.

    Keep its number and its hash: foltr erasure verify-log --entry says later whether the log still has it.
    """
    settings = load_settings(broker_url=broker, credentials=credentials, federation=federation)
    found = asyncio.run(ask_head(settings, _federation_of(settings), None if key is None else public_key_of(key)))
    head = found.head
    report(
        json,
        {"federation": head.federation, "entry": head.seq, "hash": head.hash.hex()},
        found.in_words(),
        f"Keep it, and look for it later: foltr erasure verify-log --entry {head.seq}:{head.hash.hex()}",
    )


async def ask_head(settings: Settings, federation: str, key: bytes | None) -> PublishedHead:
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
