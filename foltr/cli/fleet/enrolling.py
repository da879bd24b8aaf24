"""``foltr client enrol``, and replicas of a device service that enrol themselves, each with a token nobody has."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import structlog
import typer

from foltr.cli.fleet.slots import Slot, take_slot
from foltr.cli.output import configure_logging, console
from foltr.cli.settings import Settings, load_settings, takes_settings
from foltr.core.errors import SettingsError
from foltr.core.operator.one_time_tokens import OneTimeToken, read_token
from foltr.core.user_files import file_name_of
from foltr.edge_client.enrolling import TokenRefusedError, enrol_device
from foltr.operations.operator_access import redirect

log = structlog.get_logger(__name__)

WAIT_S = 120.0


@takes_settings(("broker_url",))
def enrol(
    token: Annotated[
        Path, typer.Option("--token", help="The file that foltr device enrol --token wrote for this device")
    ],
    out: Annotated[Path | None, typer.Option("--out", help="The credentials file; default: CLIENT.json")] = None,
    wait: Annotated[
        float, typer.Option("--wait", min=1.0, max=30 * 86_400, help="Seconds to wait for the operator's desk")
    ] = WAIT_S,
    **flags: Any,
) -> None:
    """Enrol this device with a one-time token: it makes its own key, and gets its credentials."""
    settings = load_settings(**flags)
    configure_logging(settings.log_level, settings.log_format)
    read = read_token(token)
    out = out or Path(file_name_of(read.client_id, ".json"))
    if out.exists():
        raise SettingsError(f"out: {out} exists; name another file with --out, or remove it if it is no longer needed")
    _enrol(read, out, settings, wait)
    console.print(f"enrolled {read.client_id} in {read.federation}: {out}", soft_wrap=True, highlight=False)


def enrol_in_slot(slots: Path, tokens: Path, settings: Settings) -> Slot | None:
    """Take the first free slot of those that tokens are for, and enrol its device; None where there is none.

    Raises:
        SettingsError: the folders cannot be read or written.
        UnavailableError: the broker, or the operator's desk, does not answer.
    """
    if not tokens.is_dir():
        raise SettingsError(
            f"tokens: {tokens} is no folder; `foltr device enrol --token --out-dir` writes tokens into one"
        )
    for path in sorted(tokens.glob("*.token")):
        token = read_token(path)
        slot = take_slot(slots / token.client_id)
        if slot is None:
            continue
        # Another replica may have enrolled it, and ended, since this one looked.
        if slot.credentials.exists():
            return slot
        try:
            _enrol(token, slot.credentials, settings, WAIT_S)
        except TokenRefusedError as error:
            slot.release()
            log.warning("token_refused", token=token.token, cause=str(error))
            continue
        return slot
    return None


def _enrol(token: "OneTimeToken", out: Path, settings: Settings, wait_s: float) -> None:

    url = settings.broker_url if "broker_url" in settings.model_fields_set else None
    asyncio.run(enrol_device(token, out, wait_s=wait_s, broker=redirect(token.broker, url)))
    log.info("enrolled", token=token.token)
