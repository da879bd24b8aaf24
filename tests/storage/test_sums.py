"""What is stored of secure sums."""

import hashlib

import pytest
from sqlalchemy import select

from foltr.errors import ProtocolViolationError, SettingsError
from foltr.protocol.states import Privacy
from storage.federations import create_federation, get_federation
from storage.records import Batch, MembershipChange
from storage.sum_records import NewPolicy
from storage.sums import adopt_policy, load_policies
from storage.tables import clients


def policy(stored, version: int, signed: bytes = b"signed") -> NewPolicy:
    return NewPolicy(hashlib.sha256(signed).digest(), version, signed, stored.opening(1).opened_at)


async def test_policies_are_kept_by_version(stored) -> None:
    """One that the federator was started with, and one that came since; the same again changes nothing."""
    for _ in range(2):
        await adopt_policy(stored.db, "web", stored.epoch, policy(stored, 1))
    await stored.commit(Batch(policy=policy(stored, 2, b"newer")))
    assert [(row.version, row.signed) for row in await load_policies(stored.db, "web")] == [
        (1, b"signed"),
        (2, b"newer"),
    ]
    assert await load_policies(stored.db, "mail") == []


async def test_a_version_is_of_one_policy(stored) -> None:
    """An operator's folder that was restored could issue another one under its number."""
    await adopt_policy(stored.db, "web", stored.epoch, policy(stored, 1))
    with pytest.raises(ProtocolViolationError, match="another policy with version 1"):
        await adopt_policy(stored.db, "web", stored.epoch, policy(stored, 1, b"other"))
    assert [row.signed for row in await load_policies(stored.db, "web")] == [b"signed"]


async def test_a_federation_stays_trusted_or_secure(stored) -> None:
    """No federator can show a secure federation's clients a trusted round by another setting."""
    first = stored.opening(1).opened_at
    for privacy, other in ((Privacy.SECURE, Privacy.TRUSTED), (Privacy.TRUSTED, Privacy.SECURE)):
        name = f"{privacy}-one"
        await create_federation(stored.db, name, 1, "linear", bytes(4), first, privacy=privacy)
        with pytest.raises(SettingsError, match=f"privacy = '{privacy}', .* say .*privacy = '{other}'"):
            await create_federation(stored.db, name, 1, "linear", bytes(4), first, privacy=other)
        found = await get_federation(stored.db, name)
        assert found is not None
        assert found.privacy is privacy


async def test_the_enrolment_that_a_client_joined_with_is_kept(stored) -> None:
    """Helpers are shown it; the newest replaces the one before."""
    for enrolment in (b"first", b"second"):
        change = MembershipChange("a", "joined", stored.opening(1).opened_at, enrolment=enrolment)
        await stored.commit(Batch(membership=[change]))
        async with stored.db.reading() as connection:
            assert await connection.scalar(select(clients.c.enrolment)) == enrolment
