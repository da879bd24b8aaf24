"""Thinning: bodies of older rounds go, all but those that unlearning replays; what is said of them stays."""

import pytest

from foltr.core.errors import DataError
from foltr.storage import retention
from foltr.storage.errors import WriterFencedError
from foltr.storage.federations import claim_federation
from foltr.storage.queries import get_aggregation, get_round, list_contributions


async def thin_all(stored, before_round: int, interval: int, **options: int) -> int:
    """As the federator does it, call after call; how many bodies went."""
    n_deleted, first = 0, 1
    while first < before_round:
        thinned = await stored.delete_old_bodies(before_round, interval, first_round=first, **options)
        assert thinned.n_deleted or thinned.next_round > first
        n_deleted, first = n_deleted + thinned.n_deleted, thinned.next_round
    assert first == before_round
    return n_deleted


async def bodies(stored) -> dict[tuple[int, str], str]:
    return {(row.round, row.client_id): row.body for row in await list_contributions(stored.db, "web")}


async def test_every_interval_th_round_keeps_its_updates(learned) -> None:
    """Rounds 1 and 4 of 1 to 4 with an interval of 3; 3 was abandoned, 5 is open."""
    before = await learned.dump()
    assert await thin_all(learned, before_round=6, interval=3) == 4
    after = await bodies(learned)
    assert {number for (number, _), body in after.items() if body == "deleted"} == {2, 3}
    assert {number for (number, _), body in after.items() if body == "sealed"} == {1, 4, 5}
    assert list(await learned.sent(4)) == ["a", "b", "c"]
    dumped = await learned.dump()
    assert [number for _, number in before["stored_rounds"]] == [1, 2, 4]
    assert [number for _, number in dumped["stored_rounds"]] == [1, 4]
    assert dumped | {"update_bodies": [], "stored_rounds": []} == before | {"update_bodies": [], "stored_rounds": []}
    assert {row[1] for row in dumped["update_bodies"]} == {1, 4, 5}
    thinned = await get_round(learned.db, "web", 2)
    made = await get_aggregation(learned.db, "web", 2)
    assert (thinned.n_updates, thinned.n_interactions, made.n_kept) == (3, 15, 3)
    with pytest.raises(DataError, match=r"update a2 of round 2.*was deleted when its round was thinned"):
        await learned.sent(2)


async def test_newer_rounds_stay_whole(learned) -> None:
    """An interval of 1 keeps every round that made a model; a coarser one takes more, and nothing is counted twice."""
    assert await thin_all(learned, before_round=2, interval=10) == 0
    assert await thin_all(learned, before_round=9, interval=1) == 1
    assert {key for key, body in (await bodies(learned)).items() if body == "deleted"} == {(3, "b")}
    assert [await thin_all(learned, before_round=5, interval=interval) for interval in (3, 3, 10, 10)] == [3, 0, 3, 0]


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
async def test_each_call_takes_a_few(learned, limit) -> None:
    """Never more than it may, in the middle of a round if it must; together they take what one call would."""
    whole = await learned.delete_old_bodies(6, 3, limit=limit)
    assert whole.n_deleted <= limit
    assert whole.n_deleted + await thin_all(learned, 6, 3, limit=limit) == 4
    assert {number for (number, _), body in (await bodies(learned)).items() if body == "deleted"} == {2, 3}


@pytest.mark.parametrize("bound", ["_ROUNDS_AT_ONCE", "_ROUNDS_PASSED"])
async def test_many_rounds_are_looked_at_in_several_calls(stored, monkeypatch, bound) -> None:
    """None of them reads all rounds."""
    monkeypatch.setattr(retention, bound, 3)
    await stored.join("a")
    await stored.open(1)
    for number in range(1, 9):
        await stored.send("a", number=number)
        await stored.abandon_round(number, "x", stored.at(60), stored.opening(number + 1))
        stored.give_back("a", f"a{number}")
    first = await stored.delete_old_bodies(before_round=9, interval=1)
    assert (first.n_deleted, first.next_round) == (3, 4)
    assert await thin_all(stored, before_round=9, interval=1) == 5


async def test_only_the_writer_thins(learned) -> None:
    """A fenced federator deletes nothing; nobody keeps every zeroth round."""
    with pytest.raises(ValueError, match="interval 0, limit 500"):
        await learned.delete_old_bodies(before_round=5, interval=0)
    await claim_federation(learned.db, "web", 0.0)
    with pytest.raises(WriterFencedError):
        await learned.delete_old_bodies(before_round=5, interval=10)
    assert "deleted" not in (await bodies(learned)).values()
