"""The register of an operator's folder: what was signed so far, in a file that only the operator can read."""

import base64
import secrets
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from foltr.core.errors import SettingsError
from foltr.core.operator.credentials import Credentials, write_secret
from foltr.core.protocol.enrolment import issue_enrolment
from foltr.core.protocol.fields import Name, possible_names
from foltr.core.protocol.policies import HelperKeys
from foltr.core.protocol.roster import Revocation, Roster
from foltr.core.protocol.signing import SigningKey, key_from_text, key_to_text
from foltr.core.protocol.states import Privacy
from foltr.core.protocol.tombstones import SALT_BYTES, tombstone_of
from foltr.core.protocol.topics import check_name
from foltr.core.user_files import FileKind, ReadableByOthersError, read_private_file

REGISTER_NAME = "register.json"


class EnrolledDevice(BaseModel):
    """The newest enrolment of a client. ``issued_at`` is seconds since the epoch; ``secure`` is the pin."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    serial: int
    public_key: str
    issued_at: float
    secure: bool = False


class Register(BaseModel):
    """What this operator has signed so far.

    Attributes:
        privacy: what the federation was made for; devices of a secure one are pinned to it.
        roster_version: rises with every change of the roster, so that no two rosters share a version.
        roster_through: the newest order when it last rose.
        published_roster: the version of the roster that the broker has, and ``published_key`` the sequence of the
            federator's key.
        policy_to_publish: the version of the policy that the operator wants retained, 0 without one, and
            ``published_policy`` the one that the broker has.
        schema_to_publish, published_schema: likewise of the feature schema.
        published_authorities: the version of the list of authorities that the broker has.
        published_succession: how many rotations of the enrolment key the broker has.
        n_roster_chunks: the most chunks that a published roster had.
        through: the newest order that is applied here.
        enrolled: by client, without revoked ones.
        revoked: by client, the serial below which its enrolments are void; a client enrolled again is in both.
        helpers: by name, the public key, base64, that signs a helper's answers.
        salt: of the tombstones, base64.
        forgotten: the tombstones of clients that were forgotten by order, as hex digits.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    federation: Name
    privacy: Privacy
    next_serial: int = 1
    roster_version: int = 1
    roster_through: int = 0
    published_roster: int = 1
    published_key: int = 0
    policy_to_publish: int = 0
    published_policy: int = 0
    schema_to_publish: int = 0
    published_schema: int = 0
    published_authorities: int = 0
    published_succession: int = 0
    n_roster_chunks: int = 0
    through: int = 0
    enrolled: dict[Name, EnrolledDevice] = {}
    revoked: dict[Name, int] = {}
    helpers: dict[Name, str] = {}
    salt: str
    forgotten: list[str] = []

    @property
    def is_new(self) -> bool:
        """Whether nothing was signed yet."""
        return self.next_serial == 1 and not self.helpers

    def tombstone(self, client_id: str) -> str:
        """Return the tombstone of this name."""
        return tombstone_of(base64.b64decode(self.salt), client_id).hex()

    def is_forgotten(self, client_id: str) -> bool:
        return self.tombstone(client_id) in self.forgotten

    def check_enrollable(self, client_ids: Iterable[str], *, replace: bool) -> None:
        """SettingsError if one of these clients may not be enrolled; see `Authority.enrol_all`."""
        for client_id in client_ids:
            check_name("client", client_id)
            if self.is_forgotten(client_id):
                raise SettingsError(
                    f"client: {client_id} was forgotten, and its name is not used again; take another name"
                )
            if replace:
                continue
            if client_id in self.enrolled:
                raise SettingsError(
                    f"client: {client_id} is enrolled; to give it a new key, which voids the old one: --replace"
                )
            if client_id in self.revoked:
                raise SettingsError(f"client: {client_id} was revoked; to enrol it again with a new key: --replace")

    def check_privacy(self, folder: Path, privacy: Privacy) -> None:
        """SettingsError if this folder was made for a federation of the other kind."""
        if self.privacy is not privacy:
            raise SettingsError(
                f"privacy: {folder} was made for a {self.privacy} federation, and its devices are enrolled for "
                f"that. For another federation make a new folder: foltr device enrol NAME --privacy {privacy} "
                "--operator FOLDER"
            )

    def refuse_names(self, reason: str, client_id: str) -> None:
        """SettingsError if a reason names this client, or an enrolled one."""
        if named := sorted(possible_names(reason) & {client_id, *self.enrolled}):
            raise SettingsError(
                f"reason: {named[0]!r} is the name of a client. A name is stored in one place, so that it can be "
                "forgotten: say why without naming anybody"
            )

    def check_helper(self, name: str, *, replace: bool) -> None:
        """SettingsError if this helper may not be enrolled."""
        check_name("helper", name)
        if name in self.helpers and not replace:
            raise SettingsError(
                f"helper: {name} is enrolled; to give it a new key, which the next policy must name: --replace"
            )

    def refuse_other_keys(self, helpers: Iterable[HelperKeys]) -> None:
        """SettingsError if an enrolled helper has another signing key than it was enrolled with."""
        for helper in helpers:
            if self.helpers.get(helper.name, key := key_to_text(helper.signing_key)) != key:
                raise SettingsError(
                    f"helper: these are not the keys of the {helper.name} that was enrolled here; its keys come from "
                    "`foltr helper keys`, with the credentials that `foltr helper enrol` wrote"
                )

    def roster(self) -> Roster:
        """The roster that says who is revoked and who was forgotten."""
        return Roster(
            federation=self.federation,
            version=self.roster_version,
            through=self.roster_through,
            revoked=[
                Revocation(client_id=client_id, void_below=serial) for client_id, serial in sorted(self.revoked.items())
            ],
            salt=base64.b64decode(self.salt),
            forgotten=[bytes.fromhex(tombstone) for tombstone in self.forgotten],
        )


def new_register(federation: str, privacy: Privacy) -> Register:
    """Return the register of a folder without signatures yet."""
    return Register(
        federation=federation, privacy=privacy, salt=base64.b64encode(secrets.token_bytes(SALT_BYTES)).decode()
    )


def with_enrolment(credentials: Credentials, key: SigningKey, device: EnrolledDevice) -> Credentials:
    """Return a device's credentials with its enrolment signed by ``key``: every time the same bytes."""
    public_key = key_from_text("public_key", device.public_key)
    of_device = credentials.federation, credentials.name, public_key, device.serial, device.issued_at
    enrolment = issue_enrolment(key, *of_device, secure=device.secure)
    return credentials.model_copy(update={"enrolment": base64.b64encode(enrolment).decode()})


def read_register(folder: Path, federation: str | None) -> Register:
    path = folder / REGISTER_NAME
    try:
        register = Register.model_validate_json(read_private(path))
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"])) or "it is not JSON"
        raise SettingsError(f"operator: {path} is damaged ({where}); restore it from a backup") from None
    if federation is not None and register.federation != federation:
        raise SettingsError(
            f"federation: {folder} is the operator's folder of {register.federation!r}, not of {federation!r}; "
            "name another folder with --operator"
        )
    return register


def read_private(path: Path) -> str:
    try:
        return read_private_file(path, FileKind.REGISTER)
    except ReadableByOthersError as error:
        raise SettingsError(f"{path} {error.strerror}") from error
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}; restore it from a backup") from error


def write_register(folder: Path, register: Register) -> None:
    write_secret(folder / REGISTER_NAME, register.model_dump_json(indent=1) + "\n", replace=True)


def read_enrolment_key(folder: Path) -> SigningKey:
    """Read the private enrolment key of an operator's folder; SettingsError if it is missing or unreadable."""
    try:
        return SigningKey.from_text(read_private(folder / "enrolment.key"))
    except SettingsError as error:
        raise SettingsError(f"operator: {folder / 'enrolment.key'}: {error}") from None
