"""``foltr helper``: run a helper of secure sums, and make its keys for the next policy."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import structlog
import typer

from foltr.cli.fields import Option, option
from foltr.cli.metrics_port import metrics_port
from foltr.cli.operator.identities import broker_of, helper_credentials
from foltr.cli.output import configure_logging, console
from foltr.cli.progress import stop_on_signal
from foltr.cli.settings import Settings, load_settings, takes_settings
from foltr.core.alive_file import AliveFile
from foltr.core.operator.credentials import Credentials, write_secret
from foltr.core.operator.helper_keys import helper_keys_text
from foltr.core.protocol.policies import MAX_EPOCHS
from foltr.core.user_files import file_name_of
from foltr.helper.measures import HelperMeasures
from foltr.helper.request_handler import RequestHandler
from foltr.helper.service import HelperService
from foltr.helper.store import HelperStore

log = structlog.get_logger(__name__)

RUN_KEYS = (
    *("credentials", "broker_url", "federation", "store", "give_up_after_s", "alive_file"),
    *("metrics_port", "metrics_host"),
)
KEYS_KEYS = ("credentials", "federation", "store")
_STORE = {"store": Option(text="The helper's store; default: FEDERATION-NAME.helper.sqlite. Never restore an old copy")}


@takes_settings(RUN_KEYS, _STORE)
def run(**flags: Any) -> None:
    """Run a helper until SIGTERM or Ctrl-C: it checks tickets, and opens each cohort's sum of masks once."""
    settings = load_settings(**flags)
    configure_logging(settings.log_level, settings.log_format)
    credentials = helper_credentials(settings)
    store = _open(settings, credentials, exclusive=True)
    try:
        asyncio.run(_serve(settings, credentials, store))
    finally:
        store.close()


@takes_settings(KEYS_KEYS, _STORE)
def keys(
    out: Annotated[Path | None, option("Write them to this file instead of printing them")] = None,
    **flags: Any,
) -> None:
    """Make sealing keys for the next policy, and print the helper's signed public keys for foltr policy new.

    There is a key for each of the policy's 64 epochs, and one for its verify key. The private keys stay in the
    helper's store, which may be in use meanwhile. Each call makes new keys.
    """
    settings = load_settings(**flags)
    credentials = helper_credentials(settings)
    store = _open(settings, credentials, exclusive=False)
    try:
        text = helper_keys_text(credentials.name, credentials.key, *store.make_sealing_keys(MAX_EPOCHS))
    finally:
        store.close()
    if out is None:
        typer.echo(text, nl=False)
        return
    write_secret(out, text)
    console.print(f"wrote {out}: public keys of {credentials.name}, for the operator", soft_wrap=True, highlight=False)
    console.print(
        f"The operator names them in: foltr policy new --helper {out} --helper NAME.keys",
        soft_wrap=True,
        highlight=False,
    )


def _open(settings: Settings, credentials: "Credentials", *, exclusive: bool) -> "HelperStore":
    path = Path(settings.store or file_name_of(f"{credentials.federation}-{credentials.name}", ".helper.sqlite"))
    return HelperStore(path, f"{credentials.federation}/{credentials.name}", exclusive=exclusive)


async def _serve(settings: Settings, credentials: "Credentials", store: "HelperStore") -> None:
    address = broker_of(settings, credentials)
    measures = HelperMeasures(credentials.federation, credentials.name)
    service = HelperService(
        credentials,
        RequestHandler(credentials, store, measures=measures),
        address,
        give_up_after_s=settings.give_up_after_s,
        alive_file=AliveFile(settings.alive_file),
        measures=measures,
    )
    stop_on_signal(service.stop)

    def note_started() -> None:
        log.info("helper_started", federation=credentials.federation, name=credentials.name, broker=str(address))

    with metrics_port(settings.metrics_host, settings.metrics_port, service.read_measures):
        await service.run(on_started=note_started)
    log.info("helper_stopped", federation=credentials.federation, name=credentials.name)
