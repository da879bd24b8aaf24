"""The broker lets in who enrols itself: a user for each one-time token, and the operator's desk that answers.

With passwords a token's user has one of its own, and is taken out once the token is of no use. With client certificates
it has one that ends with the token, and is put on the list of those that count no more where the token is revoked.
"""

import math
from collections.abc import Collection
from datetime import timedelta
from pathlib import Path

from foltr.broker import passwords
from foltr.broker.access import PASSWORDS_NAME
from foltr.broker.broker_records import BrokerCredentials, Mode, read_record
from foltr.broker.provision import admit, provision_service
from foltr.broker.revocations import revoke_all_of_each
from foltr.core.errors import UnavailableError
from foltr.core.operator.credentials import DESK_USER
from foltr.core.protocol.topics import TOKEN_USERS, token_user
from foltr.core.user_files import resolve

DESK = "desk"


def provision_desk(operator_dir: Path) -> BrokerCredentials:
    """Let the operator's desk in: ``desk.broker.json``, as before where the broker still takes it.

    Raises:
        SettingsError: there is no broker record in the folder.
        UnavailableError: a file cannot be written.
    """
    return provision_service(operator_dir, DESK, DESK_USER)


def provision_tokens(operator_dir: Path, tokens: Collection[str], lasts: timedelta) -> dict[str, BrokerCredentials]:
    """Let in whoever has one of these tokens, to ask to be enrolled; by token.

    A running broker learns of passwords with `reload_broker`; certificates it takes without.

    Raises:
        SettingsError: as `provision_desk`.
        UnavailableError: the password file cannot be written.
    """
    operator_dir = resolve(operator_dir)
    record = read_record(operator_dir)
    days = max(1, math.ceil(lasts / timedelta(days=1)))
    admitted = admit(operator_dir, record, [token_user(token) for token in tokens], days)
    return {token: admitted[token_user(token)] for token in tokens}


def withdraw_tokens(operator_dir: Path, revoked: Collection[str], open_tokens: Collection[str]) -> bool:
    """Let in no longer who has a token that is of no use; whether there is something for the broker to read.

    Args:
        revoked: their certificates are put on the list.
        open_tokens: those that are still let in by password; all others are not.

    Raises:
        UnavailableError: a file cannot be written.
    """
    operator_dir = resolve(operator_dir)
    record = read_record(operator_dir)
    broker_dir = Path(record.broker_dir)
    try:
        match record.mode:
            case Mode.ANONYMOUS:
                return False
            case Mode.PASSWORDS:
                kept = {token_user(token) for token in open_tokens}
                return passwords.keep_users(broker_dir / PASSWORDS_NAME, TOKEN_USERS, kept)
            case Mode.MTLS:
                return revoke_all_of_each(operator_dir, broker_dir, map(token_user, revoked))
    except OSError as error:
        raise _cannot_write(error) from error


def _cannot_write(error: OSError) -> UnavailableError:
    return UnavailableError(
        f"{error.filename}: {error.strerror or error}. Run this on the broker's machine, as a user who may write there."
    )
