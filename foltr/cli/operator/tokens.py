"""``foltr device tokens``: one-time tokens, and what became of each; `foltr operator desk` answers who has one."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from foltr.cli import options
from foltr.cli.operator.access import OperatorFolder
from foltr.cli.output import print_json, print_rows, report, say
from foltr.core.errors import SettingsError
from foltr.core.operator.authority import Authority
from foltr.core.operator.next_commands import DEFAULT_OPERATOR_FOLDER, command_in
from foltr.operations.issued_tokens import IssuedToken, withdraw_useless
from foltr.operations.operator_access import RELOAD, open_authority, tell_broker


class TokenRow(NamedTuple):
    """A token as ``foltr device tokens`` prints it; times in UTC."""

    token: str
    client_id: str
    state: str
    issued_at: datetime
    expires_at: datetime


def say_issued(operator: Path, federation: str, made: list[IssuedToken], *, told: bool, json: bool) -> None:
    """Print what `issue_tokens` has made with the folder ``operator``."""
    files = made[0].file if len(made) == 1 else f"{made[0].file} to {made[-1].file}"
    what = f"a token for {made[0].client_id}" if len(made) == 1 else f"{len(made)} tokens"
    desk = command_in(operator, "foltr operator desk")
    report(
        json,
        {"federation": federation, "tokens": made, "broker_to_reload": not told},
        f"made {what} in {federation}, good once and until {made[0].expires_at:%Y-%m-%d %H:%M} UTC: {files}",
        f"On the device: foltr client enrol --token {Path(made[0].file).name}; meanwhile here: {desk}",
        "" if told else RELOAD,
    )


def tokens(
    revoked: Annotated[
        list[str] | None,
        typer.Option("--revoke", metavar="TOKEN|CLIENT", help="Revoke a token that nobody has used; may be repeated"),
    ] = None,
    operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER,
    show_all: options.All = False,
    json: options.Json = False,
) -> None:
    """The one-time tokens of an operator's folder, and what became of each.

    With --revoke: a token that nobody has used enrols nobody any more. Who has used one: foltr device revoke CLIENT.
    """
    now = time.time()
    with open_authority(operator) as authority:
        if revoked:
            _revoke(authority, set(revoked), now)
            return
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
    print_rows(rows, title=title, all_with=None if show_all else command_in(operator, "foltr device tokens --all"))


def _revoke(authority: "Authority", names: set[str], now: float) -> None:
    chosen = [record for record in authority.tokens.records() if {record.token, record.client_id} & names]
    if unknown := names - {name for record in chosen for name in (record.token, record.client_id)}:
        listed = command_in(authority.folder, "foltr device tokens")
        raise SettingsError(f"token: {min(unknown)!r:.70} is none, nor is one for it; see: {listed}")
    n_revoked = authority.tokens.revoke(chosen)
    told = not withdraw_useless(authority, now) or tell_broker(authority.folder, lists_changed=True)
    say(f"revoked {n_revoked} of {len(chosen)} tokens; the others were used or revoked before")
    if not told:
        say(RELOAD)
