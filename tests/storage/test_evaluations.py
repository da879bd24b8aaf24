"""What updates say of how the ranker does is stored with them, and shown of their round; both go with their client."""

import pytest
from sqlalchemy import delete
from support.long_histories import steps_of
from support.rounds_of_sums import end

from foltr.core.aggregation.vote_result import RoundEvaluation, RoundTally
from foltr.core.protocol.evaluations import Evaluation
from foltr.storage.model_tables import models
from foltr.storage.queries import get_round, list_rounds
from foltr.storage.records import Batch, MembershipChange, QuarantineChange
from foltr.storage.restored_records import Restoration

from .conftest import at

GOOD = Evaluation(clicked=1.0, reward=0.75, base_reward=0.5)
FAIR = Evaluation(clicked=0.5, reward=0.25, base_reward=0.5)


def shown(row) -> tuple[float | None, ...]:
    return row.n_evaluations, row.clicked, row.reward, row.base_reward, row.evaluation_deviation


async def test_a_round_shows_the_means_over_the_updates_that_say_something(stored) -> None:
    """Each counts once, whatever it has learned from; who says nothing is not in them."""
    await stored.join(*"abcd")
    await stored.open(1)
    for n_interactions, (name, told) in enumerate({"a": GOOD, "b": FAIR, "c": None}.items(), 1):
        await stored.send(name, evaluation=told, n_interactions=n_interactions)
    assert shown(await get_round(stored.db, "web", 1)) == (2, 0.75, 0.5, 0.5, None)
    await stored.erase("a")
    [row] = await list_rounds(stored.db, "web")
    assert shown(row) == (1, 0.5, 0.25, 0.5, None)
    await stored.erase("b")
    assert shown(await get_round(stored.db, "web", 1)) == (0, None, None, None, None)


async def test_what_sums_say_goes_with_whoever_was_in_them(summing) -> None:
    """Means over all updates in the sums, with their noise, and tallies; those that nobody erased is in stay."""
    evaluation = RoundEvaluation(4, clicked=3.0, reward=-0.5, base_reward=1.0, deviation=2.0)
    await end(summing, 1, "abcd", evaluation=evaluation, tally=tally(1))
    await end(summing, 2, "bcd", evaluation=RoundEvaluation(3, 3.0, 1.5, 0.0, 1.5), tally=tally(2))
    await end(summing, 3, "abcd", left_out="a", evaluation=None, tally=tally(3))
    none, second = (0, None, None, None, None), (3, 1.0, 0.5, 0.0, 0.5)
    found = [shown(row) for row in await list_rounds(summing.db, "web")]
    assert found == [(4, 0.75, -0.125, 0.25, 0.5), second, none, none]
    await summing.erase("a")
    assert [shown(row) for row in await list_rounds(summing.db, "web")] == [none, second, none, none]
    assert await worse(summing, 0) == [3.25, 2.25]
    assert (await get_round(summing.db, "web", 1)).tally_worse is None


async def test_credits_are_listed_by_client_and_only_where_they_count(stored) -> None:
    """Of completed rounds and of models since one, from members; not of clients in quarantine or erased."""
    await stored.join(*"abcdef")
    said = Evaluation(clicked=1.0, reward=1.0, base_reward=1.0, credit_total=-0.5, credit_squares=0.25)
    await stored.open(1)
    await stored.send(*"abcdef", evaluation=said)
    assert await stored.list_credits(0) == [], "the open round does not count"
    await stored.end(1)
    await stored.send(*"abc", number=2, base_version=1, evaluation=said)
    await stored.send("d", number=2, base_version=1, evaluation=GOOD)  # it credits neither
    assert len(await stored.list_credits(0)) == 6
    await stored.end(2)
    assert sorted(await stored.list_credits(0)) == sorted([(-1.0, 0.5)] * 3 + [(-0.5, 0.25)] * 3)
    assert await stored.list_credits(1) == [(-0.5, 0.25)] * 3
    assert await stored.list_credits(2) == []
    await stored.erase("a")
    changes = [MembershipChange("f", "left", at(300))]
    await stored.commit(Batch(membership=changes, quarantines=[QuarantineChange("b", at(300), "it lies")]))
    assert sorted(await stored.list_credits(0)) == sorted([(-1.0, 0.5)] + [(-0.5, 0.25)] * 2)
    without = frozenset("de") | {f"away-{i}" for i in range(40_000)}  # more than a statement has parameters
    assert await stored.list_credits(0, without) == [(-1.0, 0.5)]


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
    assert (row.anchor_version, row.tally_n_updates, row.tally_deviation) == (0, 4, 1.5)
    assert (row.tally_worse, row.tally_better) == (3.25, -3.5)
    assert (await get_round(summing.db, "web", 2)).tally_worse is None


@pytest.mark.parametrize("migrated_url", ["sqlite"], indirect=True)
async def test_rounds_before_a_restored_anchor_are_not_looked_through(summing) -> None:
    """However many there were: a round's end and a look at the federation take no longer for them."""
    steps = []
    for number in range(1, 41):
        await end(summing, number, "abcd", tally=tally(number))
        if number not in (4, 39):
            continue
        version = number + 1
        await summing.restore_anchor(Restoration(version, 0, at(60), "taken back"))
        found, n_steps = await steps_of(summing.db, lambda _, version=version: worse(summing, version), every=1)
        assert found == []
        steps.append(n_steps)
        await summing.write(delete(models).where(models.c.version == version))
    assert steps[1] < 1.5 * steps[0]
