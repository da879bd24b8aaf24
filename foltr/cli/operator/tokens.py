"""One-time tokens, as the operator makes, lists and revokes them; `foltr operator desk` answers who has one."""

import re
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from foltr.cli import options
from foltr.cli.operator.access import OperatorFolder, broker_record, open_authority, redirect
from foltr.cli.operator.admission import RELOAD, access_without_users, tell_broker
from foltr.cli.output import print_json, print_rows, report, say
from foltr.errors import SettingsError
from foltr.operator.credentials import BrokerAccess, write_secret
from foltr.operator.next_commands import DEFAULT_OPERATOR_FOLDER, command_in
from foltr.operator.one_time_tokens import OneTimeToken
from foltr.operator.token_log import TokenRecord
from foltr.protocol.signing import key_to_text

if TYPE_CHECKING:
    from foltr.operator.authority import Authority

TOKEN_ENDING = ".token"  # noqa: S105 (of files)
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


@dataclass(frozen=True)
class IssuedToken:
    """A token as `foltr device enrol --token` says it was made; ``expires_at`` in UTC."""

    client_id: str
    token: str
    expires_at: datetime
    file: str


class TokenRow(NamedTuple):
    """A token as ``foltr device tokens`` prints it; times in UTC."""

    token: str
    client_id: str
    state: str
    issued_at: datetime
    expires_at: datetime


def read_duration(text: str) -> float:
    """Seconds of ``30m``, ``1h`` or ``7d``; SettingsError where it is none of these."""
    matched = re.fullmatch(r"([0-9]{1,6})([smhd])", text)
    if matched is None:
        raise SettingsError(f"expires: {text!r} is no time; give a number and s, m, h or d, e.g. 1h")
    return int(matched[1]) * _UNITS_S[matched[2]]


def issue_tokens(
    authority: "Authority", files: Mapping[str, Path], lasts_s: float, broker: str | None, *, replace: bool
) -> tuple[list[IssuedToken], bool]:
    """Make a one-time token for each name, and write it to its file.

    Returns:
        the tokens, and whether the broker knows of them.

    Raises:
        SettingsError: a name is enrolled, or has a token that is open, and ``replace`` is not given.
    """
    authority.register.check_enrollable(files, replace=replace)
    now = time.time()
    open_tokens = authority.tokens.open_of(files, now)
    if open_tokens and not replace:
        raise SettingsError(
            f"client: {open_tokens[0].client_id} has a token that is open, {open_tokens[0].token}; another in its "
            "place: --replace"
        )
    authority.tokens.revoke(open_tokens)
    issued = authority.tokens.issue(files, authority.register, lasts_s, now)
    access = _access_of([record.token for record, _ in issued.values()], authority, lasts_s, broker)
    made = []
    for client_id, (record, key) in issued.items():
        token = OneTimeToken(
            federation=authority.federation,
            client_id=client_id,
            token=record.token,
            token_key=key.to_text(),
            enrolment_key=key_to_text(authority.operator.enrolment_public_key),
            broker=access[record.token],
            expires_at=record.expires_at,
        )
        write_secret(files[client_id], token.model_dump_json(indent=1) + "\n", replace=True)
        expires_at = datetime.fromtimestamp(record.expires_at, UTC)
        made.append(IssuedToken(client_id, record.token, expires_at, str(files[client_id])))
    withdraw_useless(authority, now)
    return made, tell_broker(authority.folder)


def withdraw_useless(authority: "Authority", now: float) -> bool:
    """Have the broker let nobody in with a token that is of no use; whether it has to read something for that."""
    authority.tokens.prune(now)
    if broker_record(authority.folder) is None:
        return False
    from broker.token_users import withdraw_tokens

    records = authority.tokens.records()
    let_in = [record.token for record in records if record.is_let_in(now)]
    return withdraw_tokens(authority.folder, _revoked(records), let_in)


def _revoked(records: Collection[TokenRecord]) -> list[str]:
    from foltr.operator.token_log import TokenState

    return [record.token for record in records if record.state is TokenState.REVOKED]


def _access_of(
    tokens: Collection[str], authority: "Authority", lasts_s: float, broker: str | None
) -> dict[str, BrokerAccess]:
    """How whoever has a token reaches the broker."""
    if broker_record(authority.folder) is None:
        return dict.fromkeys(tokens, access_without_users(authority, broker))
    from broker.token_users import provision_tokens

    redirect(authority.operator.broker, broker)
    users = provision_tokens(authority.folder, tokens, timedelta(seconds=lasts_s))
    return {token: redirect(BrokerAccess(**asdict(user)), broker) for token, user in users.items()}


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
