"""The life of a round: every step safe to repeat, no step out of order."""

import dataclasses

import pytest

from foltr.core.errors import ProtocolViolationError
from foltr.storage.queries import get_round
from foltr.storage.records import NewModel
from foltr.storage.rounds import (
    abandon_round,
    begin_aggregation,
    complete_round,
    count_updates,
    find_round,
    stream_completed,
)


@pytest.mark.parametrize(
    "policy",
    [
        {"selection_seed": b"s" * 32, "selection_cutoff": b"\0\xff" * 4, "n_selected": 15, "n_eligible": 400},
        {"pacing": "buffered", "staleness_limit": 12, "staleness_exponent": 0.25},
    ],
)
async def test_a_round_keeps_its_policy_and_its_selection(stored, policy) -> None:
    """To the byte: a restarted federator asks the same clients and weighs stragglers alike; nothing is drawn anew."""
    opening = dataclasses.replace(stored.opening(1), **policy)
    for _ in range(2):
        await stored.open_round(opening)
    found = await stored.load_open_round()
    assert dataclasses.asdict(opening).items() <= dataclasses.asdict(found[0]).items()
    shown = await get_round(stored.db, "web", 1)
    assert (shown.pacing, shown.n_selected, shown.n_eligible) == (
        opening.pacing, opening.n_selected, opening.n_eligible,
    )  # fmt: skip
    with pytest.raises(ProtocolViolationError, match="opened before, differently"):
        await stored.open_round(dataclasses.replace(opening, selection_seed=b"t" * 32))


async def test_abandoning_says_why_and_opens_the_next(stored) -> None:
    """From collecting or from aggregating, and the same again when its answer was lost."""
    await stored.open(1)
    closed_at = stored.at(60)
    for _ in range(2):
        await stored.abandon_round(1, "too_few", closed_at, stored.opening(2))
    await stored.begin_aggregation(2)
    await stored.abandon_round(2, "x" * 9999, closed_at)
    first, second = (await stored.dump())["rounds"]
    assert first[2] == "abandoned"
    assert first[10:15] == (closed_at, "too_few", 0, 0, None)
    assert second[11] == "x" * 500
    assert await stored.load_open_round() is None


async def test_no_step_out_of_order(stored) -> None:
    """A step the stored round does not allow raises and changes nothing."""
    now = stored.at(60)
    db, epoch = stored.db, stored.epoch
    with pytest.raises(ProtocolViolationError, match="has no round 1"):
        await begin_aggregation(db, "web", epoch, 1)
    await stored.open(1)
    with pytest.raises(ProtocolViolationError, match="collecting, not aggregating"):
        await complete_round(db, "web", epoch, 1, NewModel(1, stored.weights), now)
    await begin_aggregation(db, "web", epoch, 1)
    await complete_round(db, "web", epoch, 1, NewModel(1, stored.weights), now)
    before = await stored.dump()
    with pytest.raises(ProtocolViolationError, match="completed, not aggregating"):
        await complete_round(db, "web", epoch, 1, NewModel(2, stored.weights), now)
    with pytest.raises(ProtocolViolationError, match="completed and cannot be abandoned"):
        await abandon_round(db, "web", epoch, 1, "late", now)
    with pytest.raises(ProtocolViolationError, match="completed, not collecting"):
        await begin_aggregation(db, "web", epoch, 1)
    assert await stored.dump() == before


async def test_a_model_of_the_wrong_length_closes_nothing(stored) -> None:
    """The round stays aggregating when its model is refused."""
    await stored.open(1)
    await stored.begin_aggregation(1)
    before = await stored.dump()
    with pytest.raises(ProtocolViolationError, match="weights_length"):
        await stored.complete_round(1, NewModel(1, stored.weights[:-1]), stored.at(60), stored.opening(2))
    assert await stored.dump() == before


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
