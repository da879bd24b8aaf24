"""What votes in secure sums come to is stored with the round, and goes with whoever was in it."""

from dataclasses import replace

import pytest
from sqlalchemy import delete

from foltr.core.aggregation.vote_result import RoundTally
from foltr.core.protocol.helper_messages import TicketFault
from foltr.storage.anchors import list_tallies, restore_anchor
from foltr.storage.model_tables import models
from foltr.storage.policies import adopt_policy
from foltr.storage.queries import get_round
from foltr.storage.records import Batch, NewModel
from foltr.storage.restored_records import Restoration
from foltr.storage.rounds import complete_round, open_round
from foltr.storage.sum_records import NewAnswer, NewSet, PolicyRecord
from foltr.storage.sums import begin_opening, begin_summing, store_answers

WORDS = b"\1" * 24
POLICY = bytes(32)


def opening(stored, number: int, base: int, anchor: int | None):
    return replace(stored.opening(number, base), policy_hash=POLICY, clip_norm=1.0, anchor_version=anchor)


@pytest.fixture
async def summing(stored):
    """Clients a to d under a policy, and round 1 that is open on model 0, the anchor."""
    await stored.join(*"abcd")
    await adopt_policy(stored.db, "web", stored.epoch, PolicyRecord(POLICY, 1, b"signed", stored.opening(1).opened_at))
    await open_round(stored.db, "web", stored.epoch, opening(stored, 1, 0, 0))
    return stored


async def end(stored, number: int, names: str, tally: RoundTally | None, anchor: int | None, left_out="") -> None:
    """End a round with a sum of these clients; the next one has this anchor."""
    masked = {"encoding": "masked_u64", "body": WORDS, "n_interactions": 1, "cohort": 0}
    sent = [
        stored.update(name, f"{name}{number}", number, position=i, ticket=name.encode(), **masked)
        for i, name in enumerate(names)
    ]
    await stored.commit(Batch(updates=sent, stop_collecting=number))
    faults = dict.fromkeys(left_out, TicketFault.NOT_OPENED)
    sets = [NewSet(0, len(names), len(names) - len(left_out), b"\xf0", bytes(32))]
    await begin_opening(stored.db, "web", stored.epoch, number, sets, faults)
    await store_answers(stored.db, "web", stored.epoch, number, [NewAnswer(0, "first", 0, bytes(32), b"answer")])
    await begin_summing(stored.db, "web", stored.epoch, number, {0: WORDS}, 1)
    model = NewModel(number, bytes([number]) * 12, tally=tally)
    at, following = stored.opening(1).closes_at, opening(stored, number + 1, number, anchor)
    for _ in range(2):  # a federator that lost the answer does it again
        await complete_round(stored.db, "web", stored.epoch, number, model, at, following)


def tally(number: int) -> RoundTally:
    return RoundTally(4, number + 0.25, -number - 0.5, 1.5)


async def worse(stored, anchor: int, n_rounds: int = 50) -> list[float]:
    return [each.worse for each in await list_tallies(stored.db, "web", anchor, n_rounds)]


async def test_tallies_of_an_anchor_are_listed_the_newest_first(summing) -> None:
    """Of so many rounds; those of another anchor, and rounds without, are passed over."""
    for number, anchor in ((1, 0), (2, 0), (3, 3), (4, 3)):
        await end(summing, number, "abcd", None if number == 2 else tally(number), anchor)
    assert await list_tallies(summing.db, "web", 0, 50) == [tally(3), tally(1)]
    assert await worse(summing, 0, n_rounds=1) == [3.25]
    assert await worse(summing, 3) == [4.25]
    assert await worse(summing, 9) == []
    row = await get_round(summing.db, "web", 3)
    shown = row.tally_n_updates, row.tally_worse, row.tally_better, row.tally_deviation
    assert (row.anchor_version, *shown) == (0, 4, 3.25, -3.5, 1.5)
    assert (await get_round(summing.db, "web", 2)).tally_worse is None


@pytest.mark.parametrize("migrated_url", ["sqlite"], indirect=True)
async def test_rounds_before_a_restored_anchor_are_not_looked_through(summing) -> None:
    """However many there were: a round's end and a look at the federation take no longer for them."""
    counted, steps = 0, []

    def count() -> int:
        nonlocal counted
        counted += 1
        return 0

    for number in range(1, 41):
        await end(summing, number, "abcd", tally(number), 0)
        if number not in (4, 39):
            continue
        at, version = summing.opening(1).closes_at, number + 1
        await restore_anchor(summing.db, "web", summing.epoch, Restoration(version, 0, at, "taken back"))
        async with summing.db.reading() as connection:
            driver = (await connection.get_raw_connection()).driver_connection
            await driver.set_progress_handler(count, 1)
        counted = 0
        assert await worse(summing, version) == []
        steps.append(counted)
        async with summing.db.transaction() as connection:
            await connection.execute(delete(models).where(models.c.version == version))
    assert steps[1] < 1.5 * steps[0]


async def test_tallies_go_with_the_sums_that_a_client_is_in(summing) -> None:
    """Those of rounds it was not in, or was left out of, stay; and those that nobody was erased from."""
    await end(summing, 1, "abc", tally(1), 0)
    await end(summing, 2, "bcd", tally(2), 0)
    await end(summing, 3, "abcd", tally(3), 0, left_out="a")
    await end(summing, 4, "abcd", tally(4), 0)
    await summing.erase("a")
    assert await worse(summing, 0) == [3.25, 2.25]
    assert (await get_round(summing.db, "web", 1)).tally_worse is None
