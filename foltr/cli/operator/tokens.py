"""``foltr device tokens`` and ``foltr operator desk``: one-time tokens, and the process that redeems them."""

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import structlog

from foltr.broker.address import BrokerAddress
from foltr.broker.users import provision_service
from foltr.cli import options
from foltr.cli.fields import option
from foltr.cli.options import OperatorFolder
from foltr.cli.output import configure_logging, print_json, print_rows, report, say
from foltr.cli.progress import stop_on_signal
from foltr.cli.settings import load_settings, takes_settings
from foltr.core.alive_file import AliveFile
from foltr.core.errors import SettingsError
from foltr.core.file_locks import lock_store
from foltr.core.operator.authority import Authority
from foltr.core.operator.next_commands import DEFAULT_OPERATOR_FOLDER, command_in
from foltr.operations.enrolment_desk import DeskService
from foltr.operations.issued_tokens import IssuedToken, withdraw_useless
from foltr.operations.operator_access import RELOAD, broker_record, open_authority, redirect, tell_broker

log = structlog.get_logger(__name__)
RUN_KEYS = ("broker_url", "give_up_after_s", "alive_file")


def say_issued(operator: Path, federation: str, made: list[IssuedToken], *, told: bool, json: bool) -> None:
    files = made[0].file if len(made) == 1 else f"{made[0].file} to {made[-1].file}"
    what = f"a token for {made[0].client_id}" if len(made) == 1 else f"{len(made)} tokens"
    desk = command_in(operator, "foltr operator desk")
    report(
        json,
        {"federation": federation, "tokens": made, "broker_to_reload": not told},
        f"made {what} in {federation}, valid once and until {made[0].expires_at:%Y-%m-%d %H:%M} UTC: {files}",
        f"On the device: foltr client enrol --token {Path(made[0].file).name}; meanwhile here: {desk}",
        "" if told else RELOAD,
    )


def tokens(
    revoked: Annotated[
        list[str] | None,
        option("Revoke a token that nobody has used; may be repeated", "--revoke", metavar="TOKEN|CLIENT"),
    ] = None,
    operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER,
    show_all: options.All = False,
    json: options.Json = False,
) -> None:
    """List the one-time tokens of an operator's folder, and their state.

    With --revoke, an unused token becomes void. To revoke a device that has used its token: foltr device revoke
    CLIENT.
    """
    now = time.time()
    with open_authority(operator) as authority:
        if revoked:
            _revoke(authority, set(revoked), now)
            return
        federation, records = authority.federation, authority.tokens.records()
    rows = [
        {
            "token": record.token,
            "client_id": record.client_id,
            "state": "expired" if record.has_expired(now) else str(record.state),
            "issued_at": datetime.fromtimestamp(record.issued_at, UTC),
            "expires_at": datetime.fromtimestamp(record.expires_at, UTC),
        }
        for record in records
    ]
    if json:
        print_json({"federation": federation, "tokens": rows})
        return
    n_open = sum(row["state"] == "open" for row in rows)
    title = f"One-time tokens of {federation}: {len(rows)}, {n_open} of them open"
    print_rows(rows, title=title, all_with=None if show_all else command_in(operator, "foltr device tokens --all"))


def _revoke(authority: "Authority", names: set[str], now: float) -> None:
    chosen = [record for record in authority.tokens.records() if {record.token, record.client_id} & names]
    if unknown := names - {name for record in chosen for name in (record.token, record.client_id)}:
        listed = command_in(authority.folder, "foltr device tokens")
        raise SettingsError(f"token: {min(unknown)!r:.70} is neither a token nor a client with one; see: {listed}")
    n_revoked = authority.tokens.revoke(chosen)
    told = not withdraw_useless(authority, now) or tell_broker(authority.folder, lists_changed=True)
    say(f"revoked {n_revoked} of {len(chosen)} tokens; the others were used or revoked before")
    if not told:
        say(RELOAD)


@takes_settings(RUN_KEYS)
def desk(operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER, **flags: Any) -> None:
    """Enrol who asks with a one-time token, until SIGTERM or Ctrl-C.

    It connects to the broker and listens nowhere, but it uses the enrolment key: run it on the operator's machine, and
    only as long as devices are to enrol themselves.
    """
    settings = load_settings(**flags)
    configure_logging(settings.log_level, settings.log_format)
    with open_authority(operator) as authority:
        federation, keys = authority.federation, authority.operator.operator_keys
        access = authority.operator.broker
    if broker_record(operator) is not None:
        access = provision_service(operator, "desk")
        tell_broker(operator)
    url = settings.broker_url if "broker_url" in settings.model_fields_set else None
    address = BrokerAddress.of(redirect(access, url))
    # Held as long as this process lives.
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


async def _serve(service: Any) -> None:
    stop_on_signal(service.stop)
    await service.run()
    log.info("desk_stopped")
