"""``foltr desk``: answer devices that enrol themselves with a one-time token, and look at the tokens."""

import asyncio
import signal
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import structlog
import typer

from foltr.alive_file import AliveFile
from foltr.cli import options
from foltr.cli.listed import print_some
from foltr.cli.operator.access import OperatorFolder, broker_record, open_authority, redirect
from foltr.cli.operator.admission import RELOAD, tell_broker
from foltr.cli.operator.tokens import withdraw_useless
from foltr.cli.output import configure_logging, print_json, say
from foltr.cli.settings import Settings, load_settings, takes_settings
from foltr.errors import SettingsError
from foltr.file_locks import lock_store
from foltr.operator.credentials import BrokerAccess
from foltr.operator.next_commands import DEFAULT_OPERATOR_FOLDER, command_in

log = structlog.get_logger(__name__)

app = typer.Typer(
    help="Answer devices that enrol themselves with a one-time token, and look at the tokens.", no_args_is_help=True
)
RUN_KEYS = ("broker_url", "give_up_after_s", "alive_file")


@dataclass(frozen=True)
class TokenRow:
    """A token as ``foltr desk tokens`` prints it; times in UTC."""

    token: str
    client_id: str
    state: str
    issued_at: datetime
    expires_at: datetime


@app.command("run")
@takes_settings(RUN_KEYS)
def run(operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER, **flags: Any) -> None:
    """Enrol who asks with a one-time token, until SIGTERM or Ctrl-C.

    It connects to the broker and listens nowhere, but it uses the enrolment key: run it on the operator's machine, and
    only as long as devices are to enrol themselves.
    """
    from broker.address import BrokerAddress
    from foltr.cli.operator.desk_service import DeskService

    settings = load_settings(**flags)
    configure_logging(settings.log_level, settings.log_format)
    with open_authority(operator) as authority:
        federation, keys = authority.federation, authority.operator.operator_keys
        access = authority.operator.broker
    if broker_record(operator) is not None:
        from broker.token_users import provision_desk

        access = BrokerAccess(**asdict(provision_desk(operator)))
        tell_broker(operator)
    address = BrokerAddress.of(redirect(access, _url_of(settings)))
    # For as long as this process lives.
    lock_store(operator / "desk", "desk", "Two desks of one folder would throw each other out at the broker.")
    service = DeskService(
        operator,
        federation,
        keys,
        address,
        give_up_after_s=settings.give_up_after_s,
        alive_file=AliveFile(settings.alive_file),
    )
    asyncio.run(_serve(service))


def _url_of(settings: Settings) -> str | None:
    return settings.broker_url if "broker_url" in settings.model_fields_set else None


async def _serve(service: Any) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, service.stop)
    await service.run()
    log.info("desk_stopped")


@app.command("tokens")
def tokens(
    operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER, show_all: options.All = False, json: options.Json = False
) -> None:
    """The one-time tokens of an operator's folder, and what became of each."""
    now = time.time()
    with open_authority(operator) as authority:
        federation, records = authority.federation, authority.tokens.records()
    rows = [
        TokenRow(
            record.token,
            record.client_id,
            "expired" if record.has_expired(now) else str(record.state),
            datetime.fromtimestamp(record.issued_at, UTC),
            datetime.fromtimestamp(record.expires_at, UTC),
        )
        for record in records
    ]
    if json:
        print_json({"federation": federation, "tokens": rows})
        return
    n_open = sum(row.state == "open" for row in rows)
    title = f"One-time tokens of {federation}: {len(rows)}, {n_open} of them open"
    columns = ("token", "client_id", "state", "issued_at", "expires_at")
    print_some(rows, columns, title=title, option=command_in(operator, "foltr desk tokens --all"), show_all=show_all)


@app.command("revoke")
def revoke(
    names: Annotated[list[str], typer.Argument(metavar="TOKEN|CLIENT...", help="Tokens, or whom they are for")],
    operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER,
) -> None:
    """Revoke tokens that nobody has used: they enrol nobody any more. Who has used one: foltr revoke CLIENT."""
    now = time.time()
    with open_authority(operator) as authority:
        records = authority.tokens.records()
        chosen = [record for record in records if {record.token, record.client_id} & set(names)]
        if unknown := set(names) - {name for record in chosen for name in (record.token, record.client_id)}:
            tokens = command_in(operator, "foltr desk tokens")
            raise SettingsError(f"token: {min(unknown)!r:.70} is none, nor is one for it; see: {tokens}")
        n_revoked = authority.tokens.revoke(chosen)
        told = not withdraw_useless(authority, now) or tell_broker(operator, lists_changed=True)
    say(f"revoked {n_revoked} of {len(chosen)} tokens; the others were used or revoked before")
    if not told:
        say(RELOAD)
