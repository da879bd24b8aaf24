"""What ``foltr doctor`` says of who leads each federation of a database."""

from datetime import UTC, datetime

import pytest
from databases import open_migrated

from foltr.cli.doctor import checks_database
from foltr.cli.doctor.checks import Finding, State
from storage.federations import create_federation
from storage.leases import LEASE_S, give_up_lease, note_standby, take_lease


@pytest.mark.parametrize("migrated_url", ["sqlite"], indirect=True)
async def test_it_names_the_leader_and_counts_who_stands_by(migrated_url, monkeypatch):
    """Nothing before anybody led; fine while one leads or has stopped; a warning where one is gone and nobody leads."""

    async def leader() -> Finding | None:
        found = {finding.what: finding for finding in await checks_database.look(migrated_url)}
        return found.get("leader")

    async with await open_migrated(migrated_url) as database:
        await create_federation(database, "mail", 3, "linear", bytes(12), datetime.now(UTC))
        assert await leader() is None
        await take_lease(database, "mail", "north:1:00")
        assert await leader() == Finding("leader", State.OK, "mail: north:1:00 leads, no other federator stands by")
        await note_standby(database, "mail", "south:1:00")
        assert await leader() == Finding("leader", State.OK, "mail: north:1:00 leads, 1 stands by")
        await give_up_lease(database, "mail", "north:1:00")
        assert await leader() == Finding("leader", State.OK, "mail: nobody leads since the last one stopped")
        monkeypatch.setattr("storage.leases.LEASE_S", -LEASE_S)
        await take_lease(database, "mail", "north:1:00")
        monkeypatch.undo()
        found = await leader()
    assert found is not None
    assert found.state is State.WARNING
    assert "north:1:00 leads no more, and did not stop in order. Start a federator" in found.detail
