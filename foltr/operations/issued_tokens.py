"""Makes one-time enrolment tokens and admits them at the broker. `foltr.operations.enrolment_desk` redeems them."""

import re
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from foltr.broker.users import provision_tokens, withdraw_tokens
from foltr.core.errors import SettingsError
from foltr.core.operator.authority import Authority
from foltr.core.operator.credentials import BrokerAccess, write_secret
from foltr.core.operator.one_time_tokens import OneTimeToken
from foltr.core.operator.token_log import TokenState
from foltr.core.protocol.signing import key_to_text
from foltr.operations.operator_access import access_without_users, broker_record, redirect, tell_broker

TOKEN_ENDING = ".token"  # noqa: S105 (a file ending)
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


@dataclass(frozen=True)
class IssuedToken:
    """A token as `foltr device enrol --token` reports it. ``expires_at`` is in UTC."""

    client_id: str
    token: str
    expires_at: datetime
    file: str


def read_duration(text: str) -> float:
    """Parse a duration like ``30m``, ``1h`` or ``7d`` into seconds. Raises SettingsError for anything else."""
    matched = re.fullmatch(r"([0-9]{1,6})([smhd])", text)
    if matched is None:
        raise SettingsError(f"expires: {text!r} is not a time; give a number and s, m, h or d, e.g. 1h")
    return int(matched[1]) * _UNITS_S[matched[2]]


def issue_tokens(
    authority: "Authority", files: Mapping[str, Path], lasts_s: float, broker: str | None, *, replace: bool
) -> tuple[list[IssuedToken], bool]:
    """Make a one-time token for each name, and write it to its file.

    Returns:
        the tokens, and whether the broker has been updated.

    Raises:
        SettingsError: a name is enrolled or has an open token, and ``replace`` is not given.
    """
    authority.register.check_enrollable(files, replace=replace)
    now = time.time()
    open_tokens = authority.tokens.open_of(files, now)
    if open_tokens and not replace:
        raise SettingsError(
            f"client: {open_tokens[0].client_id} has an open token, {open_tokens[0].token}; to replace it: --replace"
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
    """Withdraw unusable tokens at the broker. Return whether the broker has to reload its files."""
    authority.tokens.prune(now)
    if broker_record(authority.folder) is None:
        return False

    records = authority.tokens.records()
    let_in = [record.token for record in records if record.is_admitted(now)]
    revoked = [record.token for record in records if record.state is TokenState.REVOKED]
    return withdraw_tokens(authority.folder, revoked, let_in)


def _access_of(
    tokens: Collection[str], authority: "Authority", lasts_s: float, broker: str | None
) -> dict[str, BrokerAccess]:
    """Return how the holder of each token reaches the broker."""
    if broker_record(authority.folder) is None:
        return dict.fromkeys(tokens, access_without_users(authority, broker))

    redirect(authority.operator.broker, broker)
    users = provision_tokens(authority.folder, tokens, timedelta(seconds=lasts_s))
    return {token: redirect(access, broker) for token, access in users.items()}
