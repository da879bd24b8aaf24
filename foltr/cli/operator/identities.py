"""The identity of this process, from credentials if it has any."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from foltr.broker.address import BrokerAddress
from foltr.cli.settings import Settings
from foltr.core.errors import SettingsError
from foltr.core.operator.credentials import Credentials, Role, read_credentials
from foltr.core.protocol.operator_keys import TrustedOperatorKey
from foltr.core.protocol.policies import NEW_POLICY
from foltr.core.protocol.signed_policies import SignedPolicy
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.states import Privacy
from foltr.core.secure.sealing import SealingKey
from foltr.core.user_files import FileKind, file_name_of, read_json_file

if TYPE_CHECKING:
    from foltr.federator.secure_terms import SecureSettings


@dataclass(frozen=True)
class FederatorIdentity:
    """The federator's signing key and trusted keys. Without keys it signs nothing and trusts anyone."""

    federation: str
    address: "BrokerAddress"
    key: SigningKey | None = None
    enrolment_key: TrustedOperatorKey | None = None
    key_sequence: int = 0
    policy: SignedPolicy | None = None
    sealing_keys: tuple[SealingKey, ...] = ()
    privacy: Privacy | None = None


def federator_identity(settings: Settings) -> FederatorIdentity:
    """Return the federator's identity. Raises SettingsError without credentials, unless unsigned is allowed."""
    if settings.credentials is None:
        if not settings.allow_unsigned:
            raise SettingsError(
                "credentials: none are given. `foltr device enrol CLIENT` writes federator.json into the "
                "operator's folder; name it with --credentials. To accept any client under any name, on a machine "
                "or a network that is all yours, add --allow-unsigned"
            )
        return FederatorIdentity(settings.federation, BrokerAddress.parse(settings.broker_url))
    if settings.allow_unsigned:
        raise SettingsError("allow_unsigned: it contradicts credentials; leave one of the two out")
    credentials = read_credentials(Path(settings.credentials), "federator")
    require_same_federation(settings, credentials)
    return FederatorIdentity(
        credentials.federation,
        broker_of(settings, credentials),
        credentials.key,
        _operator_of(credentials),
        credentials.federator_key_sequence,
        credentials.signed_policy,
        credentials.opened_sealing_keys,
        credentials.privacy,
    )


def _operator_of(credentials: Credentials) -> TrustedOperatorKey:
    """Return the operator's key, with the earlier ones if it was rotated."""
    return credentials.enrolment_public_key if credentials.succession is None else credentials.operator_keys


def choose_privacy(settings: Settings, identity: FederatorIdentity) -> "SecureSettings | None":
    """Return the settings of secure sums. None for a trusted federation.

    Raises:
        SettingsError: the setting contradicts the credentials, or these contain no policy.
    """
    from foltr.federator.secure_terms import SecureSettings

    chosen, made_for = settings.privacy.privacy, identity.privacy
    if chosen is not None and made_for is not None and chosen is not made_for:
        raise SettingsError(
            f"privacy: {chosen} was given, but {settings.credentials} belongs to a federation that its operator "
            f"made {made_for}; leave --privacy out, or start with the credentials of a {chosen} federation: foltr "
            f"device enrol NAME --privacy {chosen} --operator FOLDER"
        )
    if (chosen or made_for or Privacy.TRUSTED) is Privacy.TRUSTED:
        return None
    if identity.policy is None:
        raise SettingsError(
            "privacy: secure needs the operator's policy, but the federator's credentials have none; "
            f"`{NEW_POLICY}` makes one and writes it into them"
        )
    return SecureSettings(identity.policy, sealing_keys=identity.sealing_keys)


def broker_of(settings: Settings, credentials: Credentials) -> "BrokerAddress":
    """Return the broker's address from the settings or credentials, with the credentials' user and certificates."""
    access = credentials.broker
    if "broker_url" in settings.model_fields_set:
        access = access.model_copy(update={"broker_url": settings.broker_url})
    return BrokerAddress.of(access)


def read_any_credentials(path: Path) -> Credentials:
    """Read a credentials file of any role. A file without a role fails as a device's does."""
    try:
        role = read_json_file(path, FileKind.CREDENTIALS)["role"]
    except (OSError, ValueError, KeyError, TypeError):
        role = "device"
    return read_credentials(path, role if role in get_args(Role) else "device")


def device_files(settings: Settings, names: list[str]) -> dict[str, Path]:
    """Return the credentials files of these devices. Empty if none are set."""
    if settings.credentials is None:
        return {}
    path = Path(settings.credentials)
    if path.is_dir():
        return {name: path / file_name_of(name, ".json") for name in names}
    if len(names) == 1:
        return {names[0]: path}
    raise SettingsError(f"credentials: {path} is not a folder; several devices need one, with NAME.json for each")


def device_credentials(settings: Settings, names: list[str]) -> dict[str, Credentials]:
    """Return the credentials of these devices: one from a file, several from a folder. Empty if none are set."""
    found = {name: read_credentials(path, "device") for name, path in device_files(settings, names).items()}
    for credentials in found.values():
        require_same_federation(settings, credentials)
    return found


def helper_credentials(settings: Settings) -> Credentials:
    """Read a helper's credentials. Raises SettingsError without any."""
    if settings.credentials is None:
        raise SettingsError("credentials: none are given; `foltr helper enrol NAME` writes NAME.json")
    credentials = read_credentials(Path(settings.credentials), "helper")
    require_same_federation(settings, credentials)
    return credentials


def require_same_federation(settings: Settings, credentials: Credentials) -> None:
    """Raise SettingsError if the settings and these credentials name different federations."""
    if "federation" in settings.model_fields_set and settings.federation != credentials.federation:
        raise SettingsError(
            f"federation: {settings.federation!r} was given, but the credentials are for {credentials.federation!r}; "
            "leave one out"
        )
