"""What updates say of how the ranker does is stored with them, and shown of their round; both go with their client."""

from datetime import UTC, datetime

from support.rounds_of_sums import end

from foltr.core.aggregation.vote_result import RoundEvaluation
from foltr.core.protocol.evaluations import Evaluation
from foltr.storage.queries import get_round, list_rounds
from foltr.storage.records import Batch, MembershipChange, NewModel, QuarantineChange

AT = datetime(2026, 1, 2, 3, 10, tzinfo=UTC)
GOOD, FAIR = (
    Evaluation(clicked=1.0, reward=0.75, base_reward=0.5),
    Evaluation(clicked=0.5, reward=0.25, base_reward=0.5),
)


def shown(row) -> tuple[float | None, ...]:
    return row.n_evaluations, row.clicked, row.reward, row.base_reward, row.evaluation_deviation


async def test_a_round_shows_the_means_over_the_updates_that_say_something(stored) -> None:
    """Each counts once, whatever it has learned from; who says nothing is not in them."""
    await stored.join(*"abcd")
    await stored.open(1)
    told = {"a": GOOD, "b": FAIR, "c": None}
    new = [
        stored.update(name, f"{name}1", evaluation=each, n_interactions=i)
        for i, (name, each) in enumerate(told.items(), 1)
    ]
    await stored.commit(Batch(updates=new))
    assert shown(await get_round(stored.db, "web", 1)) == (2, 0.75, 0.5, 0.5, None)
    await stored.erase_client(stored.request("a"))
    [row] = await list_rounds(stored.db, "web")
    assert shown(row) == (1, 0.5, 0.25, 0.5, None)
    await stored.erase_client(stored.request("b"))
    assert shown(await get_round(stored.db, "web", 1)) == (0, None, None, None, None)


async def test_what_sums_say_goes_with_whoever_was_in_them(summing) -> None:
    """Means over all updates in the sums, with their noise; those of other rounds stay."""
    evaluation = RoundEvaluation(4, clicked=3.0, reward=-0.5, base_reward=1.0, deviation=2.0)
    await end(summing, 1, "abcd", evaluation=evaluation)
    await end(summing, 2, "bcd", evaluation=RoundEvaluation(3, 3.0, 1.5, 0.0, 1.5))
    await end(summing, 3, "abcd", evaluation=None)
    assert [shown(row) for row in await list_rounds(summing.db, "web")] == [
        (4, 0.75, -0.125, 0.25, 0.5),
        (3, 1.0, 0.5, 0.0, 0.5),
        (0, None, None, None, None),
        (0, None, None, None, None),
    ]
    await summing.erase("a")
    first, second, *_ = await list_rounds(summing.db, "web")
    assert shown(first) == (0, None, None, None, None)
    assert shown(second) == (3, 1.0, 0.5, 0.0, 0.5)


async def test_credits_are_listed_by_client_and_only_where_they_count(stored) -> None:
    """Of completed rounds and of models since one, from members; not of clients in quarantine or erased."""
    await stored.join(*"abcdef")
    said = Evaluation(clicked=1.0, reward=1.0, base_reward=1.0, credit_total=-0.5, credit_squares=0.25)
    for number in (1, 2):
        await stored.open(number, number - 1)
        names = "abcdef"[: 6 if number == 1 else 3]
        new = [
            stored.update(name, f"{name}{number}", number, base_version=number - 1, evaluation=said) for name in names
        ]
        if number == 2:
            new.append(stored.update("d", "d2", 2, base_version=1, evaluation=GOOD))  # it credits neither
        await stored.commit(Batch(updates=new))
        assert len(await stored.list_credits(0)) == (0 if number == 1 else 6), "the open round does not count"
        await stored.begin_aggregation(number)
        await stored.complete_round(number, NewModel(number, stored.weights), AT, None)
    assert sorted(await stored.list_credits(0)) == sorted([(-1.0, 0.5)] * 3 + [(-0.5, 0.25)] * 3)
    assert await stored.list_credits(1) == [(-0.5, 0.25)] * 3
    assert await stored.list_credits(2) == []
    await stored.erase_client(stored.request("a"))
    changes = [MembershipChange("f", "left", AT)]
    await stored.commit(Batch(membership=changes, quarantines=[QuarantineChange("b", AT, "it lies")]))
    assert sorted(await stored.list_credits(0)) == sorted([(-1.0, 0.5)] + [(-0.5, 0.25)] * 2)
