"""Why a federator ended is stored, and void once one leads again."""

import pytest
from sqlalchemy import update

from foltr.core.errors import DataError, SettingsError, UnavailableError
from foltr.core.protocol.verdicts import Ending
from foltr.federator.deciding.state import KeyReplacedError
from foltr.federator.leading.ending import ending_noted
from foltr.storage.database import Database
from foltr.storage.database_clock import DatabaseNow
from foltr.storage.errors import DataKeysError, MissingKeyError, SchemaNewerError, WriterFencedError
from foltr.storage.lease_tables import leases
from foltr.storage.leases import find_lease, give_up_lease, renew_lease, take_lease


@pytest.fixture
def leads() -> str:
    return "first"


async def ends_with(database: Database, error: Exception) -> tuple[Ending | None, str | None]:
    """Return what is stored after an error."""
    with pytest.raises(type(error)):
        async with ending_noted(database, "mail"):
            raise error
    lease = await find_lease(database, "mail")
    assert lease is not None
    return lease.ended, lease.ended_detail


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (DataKeysError("keys: gone"), Ending.DATA_KEYS_MISSING),
        (MissingKeyError("keys: gone"), Ending.DATA_KEYS_MISSING),
        (KeyReplacedError("mail"), Ending.KEY_REPLACED),
        (WriterFencedError("another leads"), Ending.LEASE_LOST),
        (SchemaNewerError("revision 9"), Ending.SCHEMA_NEWER),
        (SettingsError("n_features: 3"), Ending.SETTINGS_REFUSED),
        (UnavailableError("the broker is away"), Ending.UNAVAILABLE),
        (ValueError("of anna's device"), Ending.FAILED),
    ],
)
async def test_each_error_has_its_reason(database, error, ending) -> None:
    """With its text, unless that may name a client: it would outlive an erasure."""
    detail = type(error).__name__ if isinstance(error, DataError | ValueError) else str(error)
    assert await ends_with(database, error) == (ending, detail)


async def test_it_does_not_say_where_the_database_is(database) -> None:
    """The API shows it to readers who may not know."""
    error = UnavailableError(f"{database.location} cannot be used: its disk is full. Free space there")
    said = "The database cannot be used: its disk is full. Free space there"
    assert await ends_with(database, error) == (Ending.UNAVAILABLE, said)


@pytest.mark.parametrize("goes_on", [renew_lease, give_up_lease, take_lease])
async def test_it_is_void_once_a_process_leads(database, goes_on) -> None:
    """One that leads while another could not start, and so did not end; and the next one to lead."""
    error = SettingsError("n_features: 3")
    assert await ends_with(database, error) == (Ending.SETTINGS_REFUSED, str(error))
    if goes_on is take_lease:
        async with database.transaction() as connection:
            await connection.execute(update(leases).values(expires_at=DatabaseNow(-1.0)))
    await goes_on(database, "mail", "first")
    lease = await find_lease(database, "mail")
    assert lease is not None
    assert (lease.ended, lease.ended_detail) == (None, None)


async def test_a_database_that_does_not_take_it_hides_no_error(database, monkeypatch) -> None:
    """The error itself matters more."""
    monkeypatch.setattr(Database, "transaction", lambda _: (_ for _ in ()).throw(UnavailableError("it is away")))
    with pytest.raises(SettingsError, match="n_features"):
        async with ending_noted(database, "mail"):
            raise SettingsError("n_features: 3")
