"""How commands reach the broker: from a credentials file, an address, or a folder that was configured for one."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foltr.operator.credentials import BrokerAccess

if TYPE_CHECKING:
    from broker.broker_records import BrokerRecord
    from foltr.operator.authority import Authority

OperatorFolder = Annotated[
    Path,
    typer.Option("--operator", help="The operator's folder: the enrolment key and what was signed with it"),
]


def access_to(url: str) -> BrokerAccess:
    """How to reach the broker at ``url``, with the user and the password in fields of their own."""
    from broker.address import BrokerAddress

    address = BrokerAddress.parse(url)
    return BrokerAccess(broker_url=str(address), username=address.username, password=address.password)


def redirect(access: BrokerAccess, url: str | None) -> BrokerAccess:
    """``access`` at another address, if there is one; a user in ``url`` takes the place of the one there was."""
    from broker.address import BrokerAddress

    if url is None:
        return access
    given = access_to(url).model_dump(exclude_none=True)
    other = access.model_copy(update={"username": None, "password": None} if "username" in given else {})
    other = other.model_copy(update=given)
    BrokerAddress.of(other)  # refuses certificates for an address without TLS
    return other


def broker_record(folder: Path) -> "BrokerRecord | None":
    """The broker that was configured together with this operator's folder, if one was."""
    from broker.broker_records import RECORD_NAME, read_record

    return read_record(folder) if (folder / RECORD_NAME).exists() else None


def service_access(folder: Path) -> tuple[BrokerAccess, BrokerAccess]:
    """How the federator and the operator reach the broker that was configured with this folder."""
    from broker.broker_records import read_credentials

    federator, operator = (
        BrokerAccess(**asdict(read_credentials(folder / f"{service}.broker.json")))
        for service in ("federator", "operator")
    )
    return federator, operator


@contextmanager
def open_authority(folder: Path, federation: str | None = None) -> Iterator["Authority"]:
    """An operator's folder whose services know the broker that was configured with it, before or since."""
    from foltr.operator.folder import open_authority

    with open_authority(folder, federation) as authority:
        if broker_record(folder) is not None:
            federator, operator = service_access(folder)
            authority.refresh_access(federator=federator, operator=operator)
        yield authority
