"""The life of a round: every step safe to repeat, no step out of order."""

import dataclasses

import pytest

from foltr.storage.queries import get_round
from foltr.storage.records import NewModel
from foltr.storage.rounds import count_updates, find_round, stream_completed

from .conftest import at

POLICY = {"selection_seed": b"s" * 32, "selection_cutoff": b"\0\xff" * 4, "n_selected": 15, "n_eligible": 400}
POLICY |= {"pacing": "buffered", "staleness_limit": 12, "staleness_exponent": 0.25}


async def test_a_round_keeps_its_policy_and_its_selection(stored) -> None:
    """To the byte: a restarted federator asks the same clients and weighs stragglers alike; nothing is drawn anew."""
    opening = stored.opening(1, **POLICY)
    for _ in range(2):
        await stored.open_round(opening)
    found, _ = await stored.load_open_round()
    assert dataclasses.asdict(opening).items() <= dataclasses.asdict(found).items()
    shown = await get_round(stored.db, "web", 1)
    expected = (opening.pacing, opening.n_selected, opening.n_eligible)
    assert (shown.pacing, shown.n_selected, shown.n_eligible) == expected
    async with stored.refuses(match="opened before, differently"):
        await stored.open_round(dataclasses.replace(opening, selection_seed=b"t" * 32))


async def test_no_step_out_of_order(stored) -> None:
    """A step the stored round does not allow raises and changes nothing; so does a model of the wrong length."""
    async with stored.refuses(match="has no round 1"):
        await stored.begin_aggregation(1)
    await stored.open(1)
    async with stored.refuses(match="collecting, not aggregating"):
        await stored.complete_round(1, NewModel(1, stored.weights), at(60))
    await stored.begin_aggregation(1)
    async with stored.refuses(match="weights_length"):
        await stored.complete_round(1, NewModel(1, stored.weights[:-1]), at(60), stored.opening(2))
    await stored.complete_round(1, NewModel(1, stored.weights), at(60))
    async with stored.refuses(match="completed, not aggregating"):
        await stored.complete_round(1, NewModel(2, stored.weights), at(60))
    async with stored.refuses(match="completed and cannot be abandoned"):
        await stored.abandon_round(1, "late", at(60))
    async with stored.refuses(match="completed, not collecting"):
        await stored.begin_aggregation(1)


@pytest.mark.parametrize("batch", [1, 2, 256])
async def test_completed_rounds_stream_in_order(learned, batch: int) -> None:
    """Abandoned and open ones are left out, and both ends count."""
    found = [row async for row in stream_completed(learned.db, "web", 1, 9, batch=batch)]
    assert [(row.number, row.base_version, row.model_version) for row in found] == [(1, 0, 1), (2, 1, 2), (4, 2, 3)]
    assert [row.number async for row in stream_completed(learned.db, "web", 2, 2, batch=batch)] == [2]
    assert await find_round(learned.db, "web", 2) == found[1]
    assert await find_round(learned.db, "web", 9) is None


async def test_the_updates_of_a_round_are_counted_with_and_without_bodies(learned) -> None:
    """An erased client's have no row, thinned ones no body."""
    assert await count_updates(learned.db, "web", 2) == (3, 3)
    await learned.erase_with_key("c")
    assert await count_updates(learned.db, "web", 2) == (2, 2)
    await learned.delete_old_bodies(before_round=3, interval=10)
    assert await count_updates(learned.db, "web", 2) == (2, 0)
    assert await count_updates(learned.db, "web", 99) == (0, 0)
