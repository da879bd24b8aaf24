"""Connects an operator's folder and its broker: reach it, admit users, make it reload its files."""

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

RELOAD = "The broker has not reloaded its files (is it on another machine?): restart it or send it SIGHUP."


def access_to(url: str) -> BrokerAccess:
    """Parse ``url`` into a broker address with user and password as separate fields."""
    address = BrokerAddress.parse(url)
    return BrokerAccess(broker_url=str(address), username=address.username, password=address.password)


def redirect(access: BrokerAccess, url: str | None) -> BrokerAccess:
    """Return ``access`` at another address, if one is given. A user in ``url`` replaces the former one."""
    if url is None:
        return access
    given = access_to(url).model_dump(exclude_none=True)
    other = access.model_copy(update={"username": None, "password": None} if "username" in given else {})
    other = other.model_copy(update=given)
    BrokerAddress.of(other)  # raises for certificates with an address without TLS
    return other


def broker_record(folder: Path) -> "BrokerRecord | None":
    """Return the record of the broker that was configured with this folder, if any."""
    return read_record(folder) if (folder / RECORD_NAME).exists() else None


def service_access(folder: Path) -> tuple[BrokerAccess, BrokerAccess]:
    """Return how the federator and the operator reach the broker that was configured with this folder."""
    return read_access(folder / "federator.broker.json"), read_access(folder / "operator.broker.json")


@contextmanager
def open_authority(folder: Path, federation: str | None = None) -> Iterator["Authority"]:
    """Open an operator's folder and give its services access to the broker configured with it, before or after."""
    from foltr.core.operator.folder import open_authority

    with open_authority(folder, federation) as authority:
        if broker_record(folder) is not None:
            federator, operator = service_access(folder)
            authority.refresh_access(federator=federator, operator=operator)
        yield authority


def admit(
    authority: "Authority", names: Collection[str], broker: str | None, *, are_helpers: bool = False
) -> dict[str, BrokerAccess]:
    """Return how each device or helper reaches the broker, and add them to its users if it has any."""
    if broker_record(authority.folder) is not None:
        redirect(authority.operator.broker, broker)  # checks the address before anybody is admitted
        folder = authority.folder
        users = (
            {each: provision_helper(folder, each) for each in names} if are_helpers else provision_users(folder, names)
        )
        return {name: redirect(access, broker) for name, access in users.items()}
    return dict.fromkeys(names, access_without_users(authority, broker))


def access_without_users(authority: "Authority", broker: str | None) -> BrokerAccess:
    """Return the access shared by all at a broker that was not configured with the operator's folder."""
    access = authority.operator.broker if broker is None else access_to(broker)
    if access.username == OPERATOR_USER:
        # The folder has lost its broker.json: a device must not get the operator's own password.
        raise SettingsError(f"broker: {authority.folder} has no settings of a broker; see: foltr broker config")
    return access


def tell_broker(folder: Path, *, lists_changed: bool = False) -> bool:
    """Make the broker reload changed files: passwords, or also the access list. False if it still has to be done."""
    record = broker_record(folder)
    is_to_read = record is not None and (lists_changed or record.mode is Mode.PASSWORDS)
    return not is_to_read or reload_broker(folder)
