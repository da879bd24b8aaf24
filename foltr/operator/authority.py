"""The operator's folder: the enrolment key, and who was enrolled and who was revoked with it.

    enrolment.key     the private enrolment key; whoever has it can enrol devices and void them
    enrolment.pub     its public half
    register.json     what was signed: enrolments, revocations, the next serial, the roster's version
    roster.bin        the signed roster, as it is published
    federator.json    the federator's credentials; may be moved to the machine it runs on
    operator.json     the operator's credentials: access to the broker, and a key that enrols nobody

The register is written before anything signed leaves this module, so that no serial and no roster version is used
twice, whenever a command is interrupted. Every use of the folder holds its lock: two operators take turns.
"""

import base64
import fcntl
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from foltr.errors import SettingsError
from foltr.operator.credentials import (
    FEDERATOR_USER,
    OPERATOR_USER,
    BrokerAccess,
    Credentials,
    read_credentials,
    write_secret,
)
from foltr.protocol.enrolment import issue_enrolment, issue_order, issue_roster
from foltr.protocol.fields import Name, possible_names
from foltr.protocol.orders import ForgetClient, LiftQuarantine, Order, QuarantineClient, SetDeadline
from foltr.protocol.signing import SigningKey, key_to_text
from foltr.protocol.topics import check_name

LOCK_WAIT_S = 30.0
_POLL_S = 0.05


class EnrolledDevice(BaseModel):
    """The newest enrolment of a client. ``issued_at`` is seconds since the epoch."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    serial: int
    public_key: str
    issued_at: float


class Register(BaseModel):
    """A register of what this operator has signed so far.

    Attributes:
        roster_version: rises with every change of the register, so that no two rosters share a version.
        roster_issued_at: when that was; kept, so that a roster signed again has the same bytes.
        enrolled: by client, without those that were revoked.
        revoked: by client, the highest serial that is void; a client enrolled anew is in both.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    federation: Name
    next_serial: int = 1
    roster_version: int = 1
    roster_issued_at: float
    enrolled: dict[Name, EnrolledDevice] = {}
    revoked: dict[Name, int] = {}

    @property
    def is_new(self) -> bool:
        """Whether nothing was signed yet."""
        return self.next_serial == 1


class Authority:
    """An operator's folder while its lock is held; made by `open_authority` and `create_authority`."""

    def __init__(self, folder: Path, register: Register) -> None:
        self.folder = folder
        self._register = register
        self._key = _read_key(folder)
        self._operator = read_credentials(folder / "operator.json", "operator")
        if self._operator.enrolment_public_key != self._key.public:
            raise SettingsError(f"{folder}: enrolment.key and operator.json are not of one operator; restore a backup")

    @property
    def federation(self) -> str:
        return self._register.federation

    @property
    def register(self) -> Register:
        return self._register

    @property
    def operator(self) -> Credentials:
        """Return the access that an operator's command reaches the broker with."""
        return self._operator

    def enrol(self, client_id: str, broker: BrokerAccess, *, replace: bool = False) -> Credentials:
        """Enrol one client; see `enrol_all`."""
        return self.enrol_all({client_id: broker}, replace=replace)[0]

    def enrol_all(self, access: Mapping[str, BrokerAccess], *, replace: bool = False) -> list[Credentials]:
        """Enrol clients, each with a fresh key, all or none of them.

        Args:
            access: how each client reaches the broker.
            replace: enrol also those that have been enrolled before. Their earlier serials are in the roster from
                then on; even without the roster the first join with the new key voids the old one.

        Raises:
            SettingsError: a name is not one, or a client was enrolled before and ``replace`` is not given.
        """
        self.check_enrollable(access, replace=replace)
        now = time.time()
        enrolled, revoked = dict(self._register.enrolled), dict(self._register.revoked)
        credentials = []
        for serial, (client_id, broker) in enumerate(access.items(), start=self._register.next_serial):
            key = SigningKey.generate()
            if client_id in enrolled:
                revoked[client_id] = enrolled[client_id].serial
            enrolled[client_id] = EnrolledDevice(serial=serial, public_key=key_to_text(key.public), issued_at=now)
            enrolment = issue_enrolment(self._key, self.federation, client_id, key.public, serial, now)
            credentials.append(
                Credentials(
                    role="device",
                    federation=self.federation,
                    name=client_id,
                    broker=broker,
                    signing_key=key.to_text(),
                    enrolment_key=self._operator.enrolment_key,
                    federator_key=self._operator.federator_key,
                    enrolment=base64.b64encode(enrolment).decode(),
                )
            )
        self._change(next_serial=self._register.next_serial + len(access), enrolled=enrolled, revoked=revoked)
        return credentials

    def check_enrollable(self, client_ids: Iterable[str], *, replace: bool) -> None:
        """SettingsError if `enrol_all` would refuse these clients."""
        for client_id in client_ids:
            check_name("client", client_id)
            if replace:
                continue
            if client_id in self._register.enrolled:
                raise SettingsError(f"client: {client_id} is enrolled; a new key for it, voiding the old: --replace")
            if client_id in self._register.revoked:
                raise SettingsError(f"client: {client_id} was revoked; to let it in again with a new key: --replace")

    def revoke(self, client_id: str) -> bytes:
        """Void every enrolment of a client; returns the roster that says so. Safe to repeat.

        Raises:
            SettingsError: no such client was enrolled here.
        """
        device = self._register.enrolled.get(client_id)
        if device is None:
            if client_id in self._register.revoked:
                return self.roster()
            raise SettingsError(f"client: {client_id!r:.70} is not enrolled in {self.folder}; see: foltr roster show")
        enrolled = {name: known for name, known in self._register.enrolled.items() if name != client_id}
        self._change(enrolled=enrolled, revoked={**self._register.revoked, client_id: device.serial})
        return self.roster()

    def roster(self) -> bytes:
        """The signed roster; also in ``roster.bin``."""
        register = self._register
        roster = issue_roster(
            self._key,
            register.federation,
            register.roster_version,
            register.roster_issued_at,
            len(register.enrolled),
            register.revoked,
        )
        path = self.folder / "roster.bin"
        if not path.exists() or path.read_bytes() != roster:
            write_secret(path, roster, replace=True)
        return roster

    def deadline(self, round_number: int, max_time_s: float) -> bytes:
        """The signed order to give a round ``max_time_s`` seconds from its opening."""
        return self._order(SetDeadline(federation=self.federation, round=round_number, max_time_s=max_time_s))

    def quarantine(self, client_id: str, reason: str) -> bytes:
        """The signed order to take no update of a client.

        Raises:
            SettingsError: no reason, or one that is too long, not printable, or names a client.
        """
        check_name("client", client_id)
        if named := sorted(possible_names(reason) & {client_id, *self._register.enrolled}):
            raise SettingsError(
                f"reason: {named[0]!r} is the name of a client. A name is stored in one place, so that it can be "
                "forgotten: say why without naming anybody"
            )
        try:
            order = QuarantineClient(federation=self.federation, client_id=client_id, reason=reason)
        except ValidationError as error:
            raise SettingsError("reason: say why, in a line of 1 to 500 printable characters") from error
        return self._order(order)

    def forget(self, client_id: str) -> bytes:
        """The signed order to forget a client; valid whenever it arrives, and however often."""
        check_name("client", client_id)
        return self._order(ForgetClient(federation=self.federation, client_id=client_id))

    def lift_quarantine(self, client_id: str) -> bytes:
        """The signed order to take a client's updates again."""
        check_name("client", client_id)
        return self._order(LiftQuarantine(federation=self.federation, client_id=client_id))

    def _order(self, order: Order) -> bytes:
        return issue_order(self._key, order, time.time_ns())

    def refresh_access(self, *, federator: BrokerAccess, operator: BrokerAccess) -> list[Path]:
        """Replace how the services reach the broker; returns the files that changed.

        ``federator.json`` is passed over where it was moved to the federator's machine.
        """
        changed = []
        path = self.folder / "federator.json"
        if path.exists():
            credentials = read_credentials(path, "federator")
            if credentials.broker != federator:
                _write_credentials(path, credentials.model_copy(update={"broker": federator}))
                changed.append(path)
        if self._operator.broker != operator:
            self._operator = self._operator.model_copy(update={"broker": operator})
            _write_credentials(self.folder / "operator.json", self._operator)
            changed.append(self.folder / "operator.json")
        return changed

    def _change(self, **fields: object) -> None:
        """Store a changed register under the next roster version, then the roster."""
        register = self._register.model_copy(
            update={
                **fields,
                "roster_version": self._register.roster_version + 1,
                "roster_issued_at": time.time(),
            }
        )
        _write_register(self.folder, register)
        self._register = register
        self.roster()

    def __repr__(self) -> str:
        return f"Authority({str(self.folder)!r}, federation={self.federation!r})"


def is_authority(folder: Path) -> bool:
    """Whether ``folder`` is an operator's."""
    return (folder / "register.json").exists()


@contextmanager
def open_authority(
    folder: Path, federation: str | None = None, *, lock_wait_s: float = LOCK_WAIT_S
) -> Iterator[Authority]:
    """Use an operator's folder, alone, until the ``with`` ends.

    Args:
        federation: which one it must be of; None: whichever it is.

    Raises:
        SettingsError: there is none, it is another federation's, it is damaged or others may read it, or another
            command did not let go of it within ``lock_wait_s``.
    """
    if not is_authority(folder):
        raise SettingsError(
            f"operator: {folder} is not an operator's folder; name it with --operator, or make one: foltr enrol"
        )
    with _locked(folder, lock_wait_s):
        yield Authority(folder, _read_register(folder, federation))


@contextmanager
def create_authority(
    folder: Path,
    federation: str,
    *,
    federator: BrokerAccess,
    operator: BrokerAccess,
    lock_wait_s: float = LOCK_WAIT_S,
) -> Iterator[Authority]:
    """Use an operator's folder as `open_authority` does, and make it first where there is none.

    Args:
        federator: how the federator reaches the broker; taken when the folder is made.
        operator: the same for the operator's commands.
    """
    check_name("federation", federation)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = folder.stat().st_mode
    except OSError as error:
        raise SettingsError(f"operator: {folder}: {error.strerror}") from error
    if stat.S_IMODE(mode) & 0o077:
        # Not closed without asking: somebody may have named the folder of something else.
        raise SettingsError(
            f"operator: others can enter {folder}; name another one with --operator, or: chmod 700 {folder}"
        )
    with _locked(folder, lock_wait_s):
        if not is_authority(folder):
            if (folder / "enrolment.key").exists():
                # A new register would start the serials again, below those that devices carry.
                raise SettingsError(f"operator: {folder} has lost its register.json; restore it from a backup")
            _write_register(folder, Register(federation=federation, roster_issued_at=time.time()))
        register = _read_register(folder, federation)
        if register.is_new:
            _create_keys(folder, federation, federator, operator)
        yield Authority(folder, register)


def _create_keys(folder: Path, federation: str, federator: BrokerAccess, operator: BrokerAccess) -> None:
    """The files beside a new register; those that are there are kept, so that an interrupted start is resumed."""
    if not (folder / "enrolment.key").exists():
        write_secret(folder / "enrolment.key", SigningKey.generate().to_text() + "\n")
    enrolment_key = key_to_text(_read_key(folder).public)
    write_secret(folder / "enrolment.pub", enrolment_key + "\n", replace=True)
    (folder / "enrolment.pub").chmod(0o644)
    if (folder / "operator.json").exists():
        return
    federator_key = SigningKey.generate()
    # Last, as it tells that the others are whole: whoever opens the folder needs it.
    for role, name, key, access in (
        ("federator", FEDERATOR_USER, federator_key, federator),
        ("operator", OPERATOR_USER, SigningKey.generate(), operator),
    ):
        credentials = Credentials.model_validate(
            {
                "role": role,
                "federation": federation,
                "name": name,
                "broker": access,
                "signing_key": key.to_text(),
                "enrolment_key": enrolment_key,
                "federator_key": key_to_text(federator_key.public),
            }
        )
        _write_credentials(folder / f"{role}.json", credentials)


@contextmanager
def _locked(folder: Path, wait_s: float) -> Iterator[None]:
    try:
        descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SettingsError(f"operator: {folder}: {error.strerror}") from error
    try:
        give_up_at = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= give_up_at:
                    raise SettingsError(
                        f"operator: {folder} is in use by another foltr command for more than {wait_s:g} s; "
                        "try again when it is done"
                    ) from None
                time.sleep(_POLL_S)
        yield
    finally:
        # Closing lets go of the lock. The file stays: removing it would let two processes lock two files.
        os.close(descriptor)


def _read_key(folder: Path) -> SigningKey:
    try:
        return SigningKey.from_text(_read_private(folder / "enrolment.key"))
    except SettingsError as error:
        raise SettingsError(f"operator: {folder / 'enrolment.key'}: {error}") from None


def _read_register(folder: Path, federation: str | None) -> Register:
    path = folder / "register.json"
    try:
        register = Register.model_validate_json(_read_private(path))
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"])) or "it is not JSON"
        raise SettingsError(f"operator: {path} is damaged ({where}); restore it from a backup") from None
    if federation is not None and register.federation != federation:
        raise SettingsError(
            f"federation: {folder} is the operator's folder of {register.federation!r}, not of {federation!r}; "
            "name another folder with --operator"
        )
    return register


def _read_private(path: Path) -> str:
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        cause = getattr(error, "strerror", None) or "it is not text"
        raise SettingsError(f"{path}: {cause}; restore it from a backup") from error
    if stat.S_IMODE(mode) & 0o077:
        raise SettingsError(f"{path} can be read by others; run: chmod 600 {path}")
    return text


def _write_register(folder: Path, register: Register) -> None:
    write_secret(folder / "register.json", register.model_dump_json(indent=1) + "\n", replace=True)


def _write_credentials(path: Path, credentials: Credentials) -> None:
    write_secret(path, credentials.model_dump_json(indent=1) + "\n", replace=True)
