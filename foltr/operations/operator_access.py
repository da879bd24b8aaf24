"""An operator's folder and its broker: reach it, let users in, and have it read its files again."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from foltr.broker.address import BrokerAddress
from foltr.broker.broker_records import RECORD_NAME, BrokerRecord, Mode, read_access, read_record
from foltr.broker.listed_users import provision_helper
from foltr.broker.provision import reload_broker
from foltr.broker.users import provision_users
from foltr.core.errors import SettingsError
from foltr.core.operator.authority import Authority
from foltr.core.operator.credentials import OPERATOR_USER, BrokerAccess

RELOAD = "The broker was not told (is it on another machine?): restart it or send it SIGHUP."


def access_to(url: str) -> BrokerAccess:
    """How to reach the broker at ``url``, with the user and the password in fields of their own."""
    address = BrokerAddress.parse(url)
    return BrokerAccess(broker_url=str(address), username=address.username, password=address.password)


def redirect(access: BrokerAccess, url: str | None) -> BrokerAccess:
    """``access`` at another address, if there is one; a user in ``url`` takes the place of the one there was."""
    if url is None:
        return access
    given = access_to(url).model_dump(exclude_none=True)
    other = access.model_copy(update={"username": None, "password": None} if "username" in given else {})
    other = other.model_copy(update=given)
    BrokerAddress.of(other)  # refuses certificates for an address without TLS
    return other


def broker_record(folder: Path) -> "BrokerRecord | None":
    """The broker that was configured together with this operator's folder, if one was."""
    return read_record(folder) if (folder / RECORD_NAME).exists() else None


def service_access(folder: Path) -> tuple[BrokerAccess, BrokerAccess]:
    """How the federator and the operator reach the broker that was configured with this folder."""
    return read_access(folder / "federator.broker.json"), read_access(folder / "operator.broker.json")


@contextmanager
def open_authority(folder: Path, federation: str | None = None) -> Iterator["Authority"]:
    """An operator's folder whose services know the broker that was configured with it, before or since."""
    from foltr.core.operator.folder import open_authority

    with open_authority(folder, federation) as authority:
        if broker_record(folder) is not None:
            federator, operator = service_access(folder)
            authority.refresh_access(federator=federator, operator=operator)
        yield authority


def admit(
    authority: "Authority", names: Collection[str], broker: str | None, *, are_helpers: bool = False
) -> dict[str, BrokerAccess]:
    """How each device or helper reaches the broker, which is told of them where it knows its users."""
    if broker_record(authority.folder) is not None:
        redirect(authority.operator.broker, broker)  # an address that cannot be is refused before anybody is let in
        folder = authority.folder
        users = (
            {each: provision_helper(folder, each) for each in names} if are_helpers else provision_users(folder, names)
        )
        return {name: redirect(access, broker) for name, access in users.items()}
    return dict.fromkeys(names, access_without_users(authority, broker))


def access_without_users(authority: "Authority", broker: str | None) -> BrokerAccess:
    """How everybody reaches a broker that was not configured with the operator's folder."""
    access = authority.operator.broker if broker is None else access_to(broker)
    if access.username == OPERATOR_USER:
        # The folder has lost its broker.json: a device must not get the operator's own password.
        raise SettingsError(f"broker: {authority.folder} does not say how devices get in; see: foltr broker config")
    return access


def tell_broker(folder: Path, *, lists_changed: bool = False) -> bool:
    """Whether the broker knows its users as they are now: by their passwords, or as its access list has them."""
    record = broker_record(folder)
    is_to_read = record is not None and (lists_changed or record.mode is Mode.PASSWORDS)
    return not is_to_read or reload_broker(folder)
