"""The leader's findings: replaced as a whole, by the leader alone, and without a name."""

import pytest
from sqlalchemy import select, update
from support.waiting import PATIENCE_S

from foltr.core.protocol.verdicts import Finding, Reason
from foltr.storage.findings import load_findings, store_findings
from foltr.storage.lease_tables import leader_findings
from foltr.storage.leases import give_up_lease, take_lease
from foltr.storage.tables import clients

from .conftest import NOW, at

LOW = Finding(Reason.DISK_LOW, "/data has 3 % left.", "/data", NOW)
AWAY = Finding(Reason.BROKER_UNREACHABLE, "it has not answered since 03:04:05 UTC.", "mqtt://north:1883", NOW)


@pytest.fixture(autouse=True)
def _no_lease_ends_by_itself(monkeypatch) -> None:
    """However long a busy machine takes."""
    monkeypatch.setattr("foltr.storage.leases.LEASE_S", PATIENCE_S)


async def test_only_the_leader_stores_them_while_there_is_one(stored) -> None:
    """As a whole, so what is no longer found is gone; one that has lost the lease is not heard."""
    assert await take_lease(stored.db, "web", "a")
    for findings in ([LOW, AWAY], [AWAY], [], [LOW]):
        await store_findings(stored.db, "web", "a", findings)
        assert sorted(await load_findings(stored.db, "web"), key=str) == sorted(findings, key=str)
    await store_findings(stored.db, "web", "b", [AWAY])
    assert await load_findings(stored.db, "web") == [LOW]
    await give_up_lease(stored.db, "web", "a")
    await store_findings(stored.db, "web", "b", [AWAY])  # one that waits to lead says why
    assert await load_findings(stored.db, "web") == [AWAY]


async def test_a_client_stands_there_by_its_key(learned) -> None:
    """Its name is read beside it, and goes with its row: an erasure need not look here."""
    assert await take_lease(learned.db, "web", "a")
    assert await learned.clients_without_key() == []
    learned.db.keys.destroy("web", "c")
    (culprit,) = await learned.clients_without_key()
    await store_findings(learned.db, "web", "a", [Finding(Reason.KEY_MISSING, "Forget it again.", culprit, NOW)])
    assert await learned.read(select(leader_findings.c.culprit)) == [(culprit,)]
    assert culprit.startswith("client ")
    assert [each.culprit for each in await load_findings(learned.db, "web")] == ["c"]
    await learned.write(update(clients).where(clients.c.client_id == "c").values(client_id="another"))
    assert [each.culprit for each in await load_findings(learned.db, "web")] == ["another"]


async def test_a_long_text_is_cut_and_not_refused(stored) -> None:
    """A path may be longer than a column."""
    assert await take_lease(stored.db, "web", "a")
    for length in (128, 300):
        long = Finding(Reason.DISK_FULL, "x" * 600, "/" * length, at(1))
        await store_findings(stored.db, "web", "a", [long])
        (found,) = await load_findings(stored.db, "web")
        assert (len(found.culprit), len(found.detail), found.since) == (128, 500, long.since)
