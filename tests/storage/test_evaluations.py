"""What updates say of how the ranker does is stored with them, and shown of their round; both go with their client."""

from dataclasses import replace

import pytest

from foltr.core.aggregation.effectiveness import RoundEvaluation
from foltr.core.protocol.evaluations import Evaluation
from foltr.storage.erasure.erasures import erase_client
from foltr.storage.evaluations import list_rewards
from foltr.storage.policies import adopt_policy
from foltr.storage.queries import get_round, list_rounds
from foltr.storage.records import Batch, NewModel, QuarantineChange
from foltr.storage.rounds import abandon_round, begin_aggregation, complete_round, open_round
from foltr.storage.sum_records import NewAnswer, NewPolicy, NewSet
from foltr.storage.sums import begin_opening, begin_summing, store_answers

WORDS, POLICY = b"\1" * 40, bytes(32)
GOOD, FAIR = (
    Evaluation(clicked=1.0, reward=0.75, base_reward=0.5),
    Evaluation(clicked=0.5, reward=0.25, base_reward=0.5),
)


def opening(stored, number: int, base: int):
    return replace(stored.opening(number, base), policy_hash=POLICY, clip_norm=1.0)


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
    await erase_client(stored.db, "web", stored.epoch, stored.request("a"))
    [row] = await list_rounds(stored.db, "web")
    assert shown(row) == (1, 0.5, 0.25, 0.5, None)
    await erase_client(stored.db, "web", stored.epoch, stored.request("b"))
    assert shown(await get_round(stored.db, "web", 1)) == (0, None, None, None, None)


@pytest.fixture
async def summing(stored):
    """Clients a to d under a policy, and round 1 that is open on model 0."""
    await stored.join(*"abcd")
    await adopt_policy(stored.db, "web", stored.epoch, NewPolicy(POLICY, 1, b"signed", stored.opening(1).opened_at))
    await open_round(stored.db, "web", stored.epoch, opening(stored, 1, 0))
    return stored


async def end(stored, number: int, names: str, evaluation: RoundEvaluation | None) -> None:
    """End a round with a sum of these clients."""
    masked = {"encoding": "masked_u64", "body": WORDS, "n_interactions": 1, "cohort": 0}
    sent = [
        stored.update(name, f"{name}{number}", number, position=i, ticket=name.encode(), **masked)
        for i, name in enumerate(names)
    ]
    await stored.commit(Batch(updates=sent, stop_collecting=number))
    await begin_opening(
        stored.db, "web", stored.epoch, number, [NewSet(0, len(names), len(names), b"\xf0", bytes(32))], {}
    )
    await store_answers(stored.db, "web", stored.epoch, number, [NewAnswer(0, "first", 0, bytes(32), b"answer")])
    await begin_summing(stored.db, "web", stored.epoch, number, {0: WORDS}, 1)
    model = NewModel(number, bytes([number]) * 12, evaluation=evaluation)
    for _ in range(2):  # a federator that lost the answer does it again
        at, following = stored.opening(1).closes_at, opening(stored, number + 1, number)
        await complete_round(stored.db, "web", stored.epoch, number, model, at, following)


async def test_what_sums_say_goes_with_whoever_was_in_them(summing) -> None:
    """Means over all updates in the sums, with their noise; those of other rounds stay."""
    evaluation = RoundEvaluation(4, clicked=3.0, reward=-0.5, base_reward=1.0, deviation=2.0)
    await end(summing, 1, "abcd", evaluation)
    await end(summing, 2, "bcd", RoundEvaluation(3, 3.0, 1.5, 0.0, 1.5))
    await end(summing, 3, "abcd", None)
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


async def test_rewards_are_of_rounds_that_completed_and_of_the_one_that_ends(stored) -> None:
    """The oldest first, since a model; with too few updates, or abandoned, they are none. Quarantine leaves out."""
    await stored.join(*"abcde")
    version = 0
    await stored.open(1)
    for number, names in enumerate(["abcde", "abc", "abcde", "abcd", "abcde"], 1):
        told = [stored.update(name, f"{name}{number}", number, evaluation=GOOD) for name in names[1:]]
        told.append(stored.update("a", f"a{number}", number, evaluation=FAIR))
        await stored.commit(Batch(updates=told))
        if number == 5:
            break
        await begin_aggregation(stored.db, "web", stored.epoch, number)
        following, at = stored.opening(number + 1, version + (number != 3)), stored.opening(1).closes_at
        if number == 3:
            await abandon_round(stored.db, "web", stored.epoch, number, "too_few", at, following)
            for name in names:
                stored.take_back(name, f"{name}{number}")
            continue
        version += 1
        model = NewModel(version, bytes([number]) * 12)
        await complete_round(stored.db, "web", stored.epoch, number, model, at, following)
    assert [(each.base_version, each.n_updates) for each in await list_rewards(stored.db, "web", 0, 5)] == [
        (0, 5),
        (2, 4),
        (3, 5),
    ]
    first, *_, last = await list_rewards(stored.db, "web", 2, 5)
    assert (first.base_version, last.mean) == (2, pytest.approx(0.65))
    assert last.standard_error == pytest.approx(0.1)  # four of 0.75 and one of 0.25: variance 0.05, of five
    quarantine = QuarantineChange("a", stored.opening(1).closes_at, "?")
    await stored.commit(Batch(quarantines=[quarantine]))
    assert [(each.base_version, each.mean) for each in await list_rewards(stored.db, "web", 0, 5)] == [
        (0, 0.75),
        (3, 0.75),
    ]


async def test_rewards_of_sums_have_the_noise_in_their_error(summing) -> None:
    """The round that ends is not among them: its sums are stored as it does."""
    await end(summing, 1, "abcd", RoundEvaluation(100, 90.0, 50.0, 40.0, 3.0))
    await end(summing, 2, "abcd", RoundEvaluation(3, 3.0, 1.5, 0.0, 1.5))
    (found,) = await list_rewards(summing.db, "web", 0, 3)
    assert (found.base_version, found.n_updates, found.mean) == (0, 100, 0.5)
    assert found.standard_error == pytest.approx((0.0025 + 0.0009) ** 0.5)
