"""Credits in secure sums: listed of the present line of models, and begun again when a client that was in them goes."""

import pytest
from sqlalchemy import update
from sqlalchemy.exc import IntegrityError
from support.rounds_of_sums import end

from foltr.core.aggregation.vote_result import RoundEvaluation
from foltr.core.learning.credits import CreditSum
from foltr.storage.database import Database
from foltr.storage.evaluations import list_credit_sums
from foltr.storage.records import Batch, QuarantineChange
from foltr.storage.sum_tables import round_evaluations


def said(n: int, credits_: float | None, deviation: float | None = 2.0) -> RoundEvaluation:
    deviation = None if credits_ is None else deviation
    return RoundEvaluation(n, 1.0, 1.0, 1.0, 0.5, credits_, deviation)


async def listed(db: Database, since: int = 0) -> list[float]:
    return [each.credit_total for each in await list_credit_sums(db, "web", since)]


async def test_they_are_listed_in_order_and_only_of_the_present_line_of_models(summing) -> None:
    """A round on an older model does not count, and one under a policy without them has none."""
    for number, credits_ in enumerate((3.0, None, -1.0, 2.0), 1):
        await end(summing, number, "abcd", evaluation=said(4, credits_))
    assert await list_credit_sums(summing.db, "web", 0) == [CreditSum(4, each, 2.0) for each in (3.0, -1.0, 2.0)]
    assert [await listed(summing.db, since) for since in (1, 3, 4)] == [[-1.0, 2.0], [2.0], []]


async def test_they_begin_again_after_the_newest_round_of_an_erased_client(summing) -> None:
    """Also those of rounds without it: it must not choose which of them count."""
    for number, names in enumerate(("bcd", "abcd", "bcd", "abcd", "bcd"), 1):
        await end(summing, number, names, evaluation=said(len(names), float(number)))
    await summing.erase("a")
    assert await listed(summing.db) == [5.0]
    await summing.erase("b")
    assert await listed(summing.db) == []


async def test_one_whose_ticket_was_refused_takes_none_with_it(summing) -> None:
    await end(summing, 1, "abcd", evaluation=said(4, 1.0))
    await end(summing, 2, "abcd", left_out="a", evaluation=said(3, 2.0))
    await summing.erase("a")
    assert await listed(summing.db) == [2.0]


async def test_a_client_in_quarantine_stays_in_the_sums_that_it_was_in(summing) -> None:
    """It is one of the tenth that may have lied; a sum cannot be taken apart."""
    await end(summing, 1, "abcd", evaluation=said(4, 1.0))
    change = QuarantineChange("a", summing.opening(1).closes_at, "it lies")
    await summing.commit(Batch(quarantines=[change]))
    assert await listed(summing.db) == [1.0]


@pytest.mark.parametrize("changed", [{"credit_total": None}, {"credit_deviation": None}, {"credit_deviation": 0.0}])
async def test_a_total_has_the_deviation_of_its_noise(summing, changed) -> None:
    await end(summing, 1, "abcd", evaluation=said(4, 1.0))
    with pytest.raises(IntegrityError):
        async with summing.db.transaction() as connection:
            await connection.execute(update(round_evaluations).values(**changed))
