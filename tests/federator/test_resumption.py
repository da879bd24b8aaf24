"""A federator continues what its database has; if the broker knows of later rounds, the database is an older copy."""

import pytest

from foltr.federator.round import RoundPolicy
from foltr.operations.overview import read_overview
from foltr.operations.verdict import judge
from foltr.storage.queries import list_events

POLICY = RoundPolicy(1, 1, 0.0, 60.0)


async def found(served) -> list[str]:
    return [each.reason for each in judge(await read_overview(served.db, "mail")).findings]


@pytest.mark.parametrize(("announced", "is_older"), [(0, False), (1, False), (2, True), (9, True)])
async def test_a_later_round_at_the_broker_shows_an_older_database(serve, announced: int, is_older: bool):
    """Not the round that is open, which a federator announces once it is stored."""
    served = await serve(POLICY)
    await served.actor.start(announced_round=announced)
    reported = [(event.kind, event.round) for event in await list_events(served.db, "mail", kind="database_older")]
    assert reported == ([("database_older", announced)] if is_older else [])
    assert ("database_older" in await found(served)) is is_older


async def test_the_finding_says_how_far_rounds_are_and_ends_with_the_round_that_was_announced(serve, unsigned):
    """The latest that was announced; it does not return with a start that hears of an earlier one."""
    served = await serve(POLICY)
    for announced in (3, 2):
        await served.actor.start(announced_round=announced)
    alice = unsigned("alice")
    await served.join([alice])
    for number in (1, 2, 3):
        found_now = (await read_overview(served.db, "mail")).database_older
        assert found_now.detail == f"round 3 was announced, and the newest round of the database is {number}"
        served.update(alice, number, number - 1)
        await served.turn()
    assert "database_older" not in await found(served)
    await served.actor.start(announced_round=4)
    assert "database_older" not in await found(served)
