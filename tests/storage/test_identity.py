"""Keys, sequence numbers, revocations, rosters, orders: what a restarted federator must know to refuse them again."""

import dataclasses

import pytest

from foltr.core.protocol.states import OrderOutcome
from foltr.storage.queries import get_client, list_quarantined, online_members
from foltr.storage.records import Batch, DeadlineChange, MembershipChange, NewOrder, QuarantineChange

from .conftest import at

KEY, OTHER_KEY = b"k" * 32, b"o" * 32


async def tell(stored, *changes, client="a"):
    batch = [MembershipChange(client, kind, **more) for kind, more in changes]
    await stored.commit(Batch(membership=batch))
    return await get_client(stored.db, "web", client)


async def test_revoked_and_back(stored) -> None:
    """A revoked client has left, since when; its newest sequence numbers stay; a join with a new enrolment ends it.

    Who had left before has left when it left. The roster may name devices that never joined.
    """
    assert await tell(stored, ("revoked", {"at": at(0)}), client="nobody") is None
    later = at(5)
    joined = {"at": at(0), "sequence": 2**63 - 1, "public_key": KEY, "enrolment_serial": 1}
    row = await tell(stored, ("joined", joined))
    assert row in await stored.load_clients()
    assert (row.status_sequence, row.revoked_at) == (0, None)
    row = await tell(stored, ("revoked", {"at": later}))
    assert (row.membership, row.online, row.left_at, row.revoked_at) == ("left", False, later, later)
    assert (row.membership_sequence, row.public_key, row.enrolment_serial) == (2**63 - 1, KEY, 1)
    renewed = {"at": at(9), "sequence": 1, "public_key": OTHER_KEY, "enrolment_serial": 2}
    row = await tell(stored, ("joined", renewed))
    assert (row.membership, row.online, row.left_at, row.revoked_at) == ("joined", True, None, None)
    assert row.joined_at == at(9)
    row = await tell(stored, ("left", {"at": at(0), "sequence": 2}), ("revoked", {"at": later}))
    assert (row.left_at, row.revoked_at) == (at(0), later)


@pytest.mark.parametrize("change", ["withdrawal", "deadline"])
async def test_a_decided_round_gives_nothing_back_and_gets_no_other_deadline(stored, change) -> None:
    """Its updates may be in a model already; nothing of such a batch is kept, nor is an order's number used up."""
    await stored.join("a")
    await stored.open(1)
    await stored.send("a")
    await stored.begin_aggregation(1)
    batches = {"withdrawal": Batch(withdrawn=[(1, "a")]), "deadline": Batch(deadline=order(5.0), orders=[given(1)])}
    async with stored.refuses(match=r"not collecting for rounds \[1\]"):
        await stored.commit(batches[change])


async def roster_of(stored):
    federation = await stored.get_federation()
    return federation.roster_version, federation.roster


async def test_an_older_roster_never_replaces_a_newer_one(stored) -> None:
    """In whatever order the batches come."""
    assert await roster_of(stored) == (0, None)
    for version, expected in ((2, 2), (1, 2), (2, 2), (5, 5), (4, 5)):
        await stored.commit(Batch(roster=(version, b"roster %d" % version)))
        assert await roster_of(stored) == (expected, b"roster %d" % expected)


def order(seconds, number=1):
    return DeadlineChange(number, at(0), seconds, at(seconds))


def given(number, **changes):
    order = NewOrder(number, "set_deadline", b"signed", bytes(32), OrderOutcome.OBEYED, at(0))
    return dataclasses.replace(order, **changes)


async def times(stored):
    found, _ = await stored.load_open_round()
    return found.min_time_s, found.max_time_s, (found.closes_at - found.opened_at).total_seconds()


async def test_an_ordered_deadline_is_stored_with_its_order(stored) -> None:
    """Shorter takes the minimum time with it, longer leaves it; the order's row says that it was obeyed."""
    await stored.open(1, min_time_s=30.0)
    await stored.commit(Batch(deadline=order(90.0), orders=[given(1)]))
    assert await times(stored) == (30.0, 90.0, 90.0)
    await stored.commit(Batch(deadline=order(12.5), orders=[given(2)]))
    assert await times(stored) == (12.5, 12.5, 12.5)
    assert (await stored.get_federation()).last_order == 2
    assert sorted(await stored.find_orders([1, 2, 3])) == [1, 2]


async def test_a_deadline_and_the_update_that_fills_the_round_share_a_batch(stored) -> None:
    """The order was given while the round collected; that the same batch fills it is no contradiction."""
    await stored.join("a")
    await stored.open(1)
    await stored.commit(Batch(updates=[stored.update("a")], deadline=order(5.0), stop_collecting=1))
    found = await stored.load_open_round()
    assert (found[0].state, found[0].max_time_s) == ("aggregating", 5.0)


async def test_a_quarantine_is_stored_with_its_order_and_lifted(stored) -> None:
    """Since when and why; the last order stands."""
    await tell(stored, ("joined", {"at": at(0)}))
    first = QuarantineChange("a", at(5), "it flips signs")
    await stored.commit(Batch(quarantines=[first], orders=[given(1)]))
    (row,) = await list_quarantined(stored.db, "web")
    assert (row.client_id, row.quarantined_at, row.quarantine_reason) == ("a", at(5), "it flips signs")
    assert await stored.load_clients() == [row]
    later = [QuarantineChange("a", at(5), "again\0" + "x" * 600), QuarantineChange("a", at(5), None)]
    await stored.commit(Batch(quarantines=later[:1], orders=[given(2)]))
    (row,) = await list_quarantined(stored.db, "web")
    assert row.quarantine_reason == "again?" + "x" * 494
    await stored.commit(Batch(quarantines=later, orders=[given(3)]))
    assert await list_quarantined(stored.db, "web") == []
    (row,) = await stored.load_clients()
    assert (row.quarantined_at, row.quarantine_reason) == (None, None)
    assert (await stored.get_federation()).last_order == 3


async def test_a_quarantine_outlives_leaving_and_joining_anew(stored) -> None:
    """Only the operator ends it: not a leave, not a new enrolment. Nobody waits for such a client."""
    await tell(stored, ("joined", {"at": at(0), "enrolment_serial": 1}))
    await stored.commit(Batch(quarantines=[QuarantineChange("a", at(0), "x")]))
    await tell(
        stored, ("left", {"at": at(0)}), ("revoked", {"at": at(0)}), ("joined", {"at": at(0), "enrolment_serial": 2})
    )
    (row,) = await list_quarantined(stored.db, "web")
    assert (row.membership, row.enrolment_serial, row.quarantine_reason) == ("joined", 2, "x")
    assert await online_members(stored.db, "web") == []


async def test_the_first_seeds_never_change(stored) -> None:
    """Whoever could draw again could choose; a federation from before there were any gets them at its next start."""
    federation = await stored.get_federation()
    assert (federation.selection_seed, federation.aggregation_seed) == (None, None)
    for seeds in ({"selection_seed": b"1" * 32}, {"selection_seed": b"2" * 32, "aggregation_seed": b"3" * 32}):
        await stored.create_federation(3, "linear", stored.weights, at(0), **seeds)
    for _ in range(2):
        federation = await stored.get_federation()
        assert (federation.selection_seed, federation.aggregation_seed) == (b"1" * 32, b"3" * 32)
        await stored.create_federation(3, "linear", stored.weights, at(0), aggregation_seed=b"4" * 32)
