"""Who is enrolled is let in at the broker that was configured with the operator's folder, and the broker is told."""

from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from foltr.cli.operator.access import access_to, broker_record, redirect
from foltr.errors import SettingsError
from foltr.operator.credentials import OPERATOR_USER, BrokerAccess

if TYPE_CHECKING:
    from foltr.operator.authority import Authority

RELOAD = "The broker was not told (is it on another machine?): restart it or send it SIGHUP."


def admit(
    authority: "Authority", names: Collection[str], broker: str | None, *, are_helpers: bool = False
) -> dict[str, BrokerAccess]:
    """How each device or helper reaches the broker, which is told of them where it knows its users."""
    if broker_record(authority.folder) is not None:
        from broker.listed_users import provision_helper
        from broker.provision import provision_users

        redirect(authority.operator.broker, broker)  # an address that cannot be is refused before anybody is let in
        folder = authority.folder
        users = (
            {each: provision_helper(folder, each) for each in names} if are_helpers else provision_users(folder, names)
        )
        return {name: redirect(BrokerAccess(**asdict(user)), broker) for name, user in users.items()}
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
    from broker.broker_records import Mode
    from broker.provision import reload_broker

    record = broker_record(folder)
    reads = (Mode.PASSWORDS, Mode.MTLS) if lists_changed else (Mode.PASSWORDS,)
    return record is None or record.mode not in reads or reload_broker(folder)
