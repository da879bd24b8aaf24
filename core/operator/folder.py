"""Opens or makes an operator's folder; one command uses it at a time. See `foltr.core.operator.authority`."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from foltr.core.errors import SettingsError
from foltr.core.file_locks import lock_within
from foltr.core.operator.authority import Authority
from foltr.core.operator.credentials import (
    FEDERATOR_USER,
    OPERATOR_USER,
    BrokerAccess,
    Credentials,
    write_credentials,
    write_secret,
)
from foltr.core.operator.enrolment_rotation import complete_rotation
from foltr.core.operator.register import Register, new_register, read_enrolment_key, read_register, write_register
from foltr.core.protocol.signing import SigningKey, key_to_text
from foltr.core.protocol.states import Privacy
from foltr.core.protocol.topics import check_name
from foltr.core.secure.sealing import SealingKey

_LOCK_WAIT_S = 30.0


def is_authority(folder: Path) -> bool:
    """Whether ``folder`` is an operator's."""
    return (folder / "register.json").exists()


@contextmanager
def open_authority(
    folder: Path, federation: str | None = None, *, lock_wait_s: float = _LOCK_WAIT_S
) -> Iterator[Authority]:
    """Use an operator's folder, alone, until the ``with`` ends.

    Args:
        federation: which one it must be of; None: any.

    Raises:
        SettingsError: it does not exist, is another federation's, is damaged or others may read it, or another command
            held it for all of ``lock_wait_s``.
    """
    if not is_authority(folder):
        raise SettingsError(
            f"operator: {folder} is not an operator's folder; name it with --operator, or make one: "
            "foltr device enrol NAME"
        )
    with _locked(folder, lock_wait_s):
        yield Authority(folder, complete_rotation(folder, read_register(folder, federation)))


@contextmanager
def create_authority(
    folder: Path,
    federation: str,
    *,
    federator: BrokerAccess,
    operator: BrokerAccess,
    privacy: Privacy = Privacy.TRUSTED,
    lock_wait_s: float = _LOCK_WAIT_S,
) -> Iterator[Authority]:
    """Use an operator's folder as `open_authority` does, making it first if needed.

    Args:
        federator: how the federator reaches the broker; used when the folder is made.
        operator: the same for the operator's commands.
        privacy: what the federation is made for; an existing folder keeps its own.
    """
    check_name("federation", federation)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = folder.stat().st_mode
    except OSError as error:
        raise SettingsError(f"operator: {folder}: {error.strerror}") from error
    if stat.S_IMODE(mode) & 0o077:
        # Not made private unasked: the name may be that of another folder.
        raise SettingsError(
            f"operator: others can enter {folder}; name another one with --operator, or: chmod 700 {folder}"
        )
    with _locked(folder, lock_wait_s):
        if not is_authority(folder):
            if (folder / "enrolment.key").exists():
                # A new register would restart the serials, below those that devices carry.
                raise SettingsError(f"operator: {folder} has lost its register.json; restore it from a backup")
            write_register(folder, new_register(federation, privacy))
        register = read_register(folder, federation)
        if register.is_new:
            _create_keys(folder, register, federator, operator)
        yield Authority(folder, complete_rotation(folder, register))


def _create_keys(folder: Path, register: Register, federator: BrokerAccess, operator: BrokerAccess) -> None:
    """Write the files beside a new register; existing ones are kept, so that an interrupted start is resumed."""
    if not (folder / "enrolment.key").exists():
        write_secret(folder / "enrolment.key", SigningKey.generate().to_text() + "\n")
    enrolment_key = key_to_text(read_enrolment_key(folder).public)
    write_secret(folder / "enrolment.pub", enrolment_key + "\n", replace=True)
    (folder / "enrolment.pub").chmod(0o644)
    if (folder / "operator.json").exists():
        return
    federator_key, sealing_key = SigningKey.generate(), SealingKey.generate()
    private, public = key_to_text(sealing_key.private), key_to_text(sealing_key.public)
    # Last: its presence shows that the others are complete, because opening the folder needs it.
    for role, name, key, access, sealing in (
        ("federator", FEDERATOR_USER, federator_key, federator, {"sealing_keys": (private,)}),
        ("operator", OPERATOR_USER, SigningKey.generate(), operator, {"federator_sealing_key": public}),
    ):
        credentials = Credentials.model_validate(
            {
                "role": role,
                "federation": register.federation,
                "privacy": register.privacy,
                "name": name,
                "broker": access,
                "signing_key": key.to_text(),
                "enrolment_key": enrolment_key,
                "federator_key": key_to_text(federator_key.public),
                **sealing,
            }
        )
        write_credentials(folder / f"{role}.json", credentials)


@contextmanager
def _locked(folder: Path, wait_s: float) -> Iterator[None]:
    try:
        descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SettingsError(f"operator: {folder}: {error.strerror}") from error
    try:
        try:
            lock_within(descriptor, wait_s)
        except TimeoutError:
            raise SettingsError(
                f"operator: {folder} is in use by another foltr command for more than {wait_s:g} s; "
                "try again when it is done"
            ) from None
        yield
    finally:
        os.close(descriptor)
