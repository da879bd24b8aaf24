"""Replicas of one container are separate devices that keep their identity across restarts.

A shared folder has a *slot* for each device: a folder named after it, with its store and, in a federation with
identities, its credentials, which the first replica may get with a one-time token. A replica takes the first slot that
no other process has locked; the lock ends with the process. So twenty replicas that are scaled to five and back are the
same twenty devices, with their clicks. The slot of a forgotten device is never used again.
"""

import asyncio
import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import structlog

from foltr.cli.fields import option
from foltr.cli.output import configure_logging, console
from foltr.cli.settings import Settings, load_settings, takes_settings
from foltr.core.errors import SettingsError
from foltr.core.operator.one_time_tokens import OneTimeToken, read_token
from foltr.core.protocol.topics import check_name
from foltr.core.user_files import file_name_of
from foltr.edge_client.enrolling import TokenRefusedError, enrol_device
from foltr.operations.operator_access import redirect

CREDENTIALS_NAME = "credentials.json"
STORE_NAME = "store.sqlite"
_LOCK_NAME = "slot.lock"
_FORGOTTEN_NAME = "forgotten"
_MOST_SLOTS = 10_000


log = structlog.get_logger(__name__)
WAIT_S = 120.0


@dataclass(frozen=True)
class Slot:
    """A device's folder, named after it. This process holds its lock until it ends or releases it."""

    folder: Path
    lock: int

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def store(self) -> Path:
        return self.folder / STORE_NAME

    @property
    def credentials(self) -> Path:
        return self.folder / CREDENTIALS_NAME

    def release(self) -> None:
        """Let another process take the slot."""
        os.close(self.lock)

    def close_for_ever(self) -> None:
        """Mark the slot as unusable: its device was forgotten."""
        self.credentials.unlink(missing_ok=True)
        (self.folder / _FORGOTTEN_NAME).touch()


def take_new_slot(slots: Path, prefix: str) -> Slot:
    """Take the first free slot of PREFIX-0001, PREFIX-0002 and on, creating it if needed.

    Raises:
        SettingsError: ``prefix`` is not a valid name, or the folder cannot be written.
    """
    check_name("client", prefix)
    for number in range(1, _MOST_SLOTS + 1):
        slot = take_slot(slots / f"{prefix}-{number:04d}")
        if slot is not None:
            return slot
    raise SettingsError(f"slots: all {_MOST_SLOTS} of {slots} are taken")


def take_enrolled_slot(slots: Path) -> Slot | None:
    """Take the first free slot with credentials. None if no slot has them."""
    try:
        enrolled = sorted(path.parent for path in slots.glob(f"*/{CREDENTIALS_NAME}"))
    except OSError as error:
        raise SettingsError(f"slots: {slots}: {error.strerror}") from error
    taken = (take_slot(folder) for folder in enrolled)
    return next((slot for slot in taken if slot is not None), None)


def take_slot(folder: Path) -> Slot | None:
    """Take one slot. None if another process has it or its device was forgotten.

    Raises:
        SettingsError: the folder cannot be written.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder / _LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SettingsError(f"slots: {folder}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    if (folder / _FORGOTTEN_NAME).exists():
        os.close(descriptor)
        return None
    # The descriptor stays open: the lock ends with this process, even if it crashes.
    return Slot(folder, descriptor)


@takes_settings(("broker_url",))
def enrol(
    token: Annotated[Path, option("The file that foltr device enrol --token wrote for this device")],
    out: Annotated[Path | None, option("The credentials file; default: CLIENT.json")] = None,
    wait: Annotated[float, option("Seconds to wait for the operator's desk", min=1.0, max=30 * 86_400)] = WAIT_S,
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
    """Take the first free slot that a token is for, and enrol its device. None if none is free.

    Raises:
        SettingsError: the folders cannot be read or written.
        UnavailableError: the broker or the operator's desk does not answer.
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
        # Another replica may have enrolled it and ended since the first look.
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
