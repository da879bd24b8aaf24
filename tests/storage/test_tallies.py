"""What votes in secure sums come to is stored with the round, and goes with whoever was in it."""

import pytest
from sqlalchemy import delete
from support.rounds_of_sums import end

from foltr.core.aggregation.vote_result import RoundTally
from foltr.storage.model_tables import models
from foltr.storage.queries import get_round
from foltr.storage.restored_records import Restoration


def tally(number: int) -> RoundTally:
    return RoundTally(4, number + 0.25, -number - 0.5, 1.5)


async def worse(stored, anchor: int, n_rounds: int = 50) -> list[float]:
    return [each.worse for each in await stored.list_tallies(anchor, n_rounds)]


async def test_tallies_of_an_anchor_are_listed_the_newest_first(summing) -> None:
    """Of so many rounds; those of another anchor, and rounds without, are passed over."""
    for number, anchor in ((1, 0), (2, 0), (3, 3), (4, 3)):
        await end(summing, number, "abcd", anchor, tally=None if number == 2 else tally(number))
    assert await summing.list_tallies(0, 50) == [tally(3), tally(1)]
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
        await end(summing, number, "abcd", tally=tally(number))
        if number not in (4, 39):
            continue
        at, version = summing.at(60), number + 1
        await summing.restore_anchor(Restoration(version, 0, at, "taken back"))
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
    await end(summing, 1, "abc", tally=tally(1))
    await end(summing, 2, "bcd", tally=tally(2))
    await end(summing, 3, "abcd", left_out="a", tally=tally(3))
    await end(summing, 4, "abcd", tally=tally(4))
    await summing.erase("a")
    assert await worse(summing, 0) == [3.25, 2.25]
    assert (await get_round(summing.db, "web", 1)).tally_worse is None
