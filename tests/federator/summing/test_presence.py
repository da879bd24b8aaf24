"""No device hears of a round whose helpers are known to be away: it would spend a participation, and learn nothing."""

import pytest
from support.secure_federation import Heard, SecureRounds

from foltr.core.protocol.states import AbandonReason, RoundState
from foltr.core.protocol.verdicts import Reason
from foltr.federator.summing.helper_statuses import helper_findings
from foltr.operations.explanations import explain
from foltr.operations.reading import read_situation
from foltr.storage.rounds import find_round


@pytest.fixture
async def given_up(secure) -> tuple[SecureRounds, Heard]:
    """The first round was given up: south was silent."""
    rounds = await secure(secure={"helper_deadline_s": 30.0})
    heard = Heard(rounds)
    assert heard.newest == (1, True, False)
    await rounds.send_all()
    await wait(rounds, 34, without=["south"])
    row = await find_round(rounds.served.db, "mail", 1)
    assert (row.state, row.reason) == (RoundState.ABANDONED, AbandonReason.HELPERS_SILENT)
    return rounds, heard


async def wait(rounds: SecureRounds, seconds: int, without=()) -> None:
    for _ in range(seconds // 2):
        await rounds.answer(without=without)
        rounds.served.clock.at += 2.0
        await rounds.served.turn()


async def test_a_round_is_announced_once_all_helpers_are_there(given_up) -> None:
    """Until then devices hear that it takes nothing, however often it has to be opened anew, and spend nothing."""
    rounds, heard = given_up
    await wait(rounds, 200, without=["south"])
    number = rounds.number
    assert number > 2
    assert {announced.open for announced in heard.rounds if announced.round > 1} == {False}
    assert not any(announced.last for announced in heard.rounds)
    assert (await find_round(rounds.served.db, "mail", 2)).reason == AbandonReason.NO_UPDATES
    await wait(rounds, 6)
    assert heard.newest == (number, True, False)
    await rounds.send_all()
    assert (await rounds.until_closed(number)).state is RoundState.COMPLETED
    assert heard.newest == (number + 1, True, False)


async def test_helpers_are_asked_ever_again_and_shown_nothing_of_a_client(given_up) -> None:
    """Each every five seconds until it answers; a page with an empty ticket."""
    rounds, _ = given_up
    rounds.served.requests.take()
    asked = []
    for _ in range(20):
        asked += rounds.served.requests.sent
        await rounds.answer(without=["south"])
        rounds.served.clock.at += 1.0
        await rounds.served.turn()
    assert 3 <= sum(request.helper == "south" for request in asked) <= 5
    assert sum(request.helper == "north" for request in asked) <= 1
    assert {(tuple(request.tickets), tuple(request.enrolments)) for request in asked} == {((b"",), (b"",))}


async def test_a_helper_without_the_policy_is_not_there(given_up) -> None:
    """It would open nothing, so nobody spends anything until it has the policy."""
    rounds, heard = given_up
    rounds.helpers[1].lose_policies()
    await wait(rounds, 20)
    assert heard.newest == (2, False, False)
    (found,) = helper_findings([], rounds.served.actor.awaited_helpers)
    assert (found.reason, found.culprit) == (Reason.HELPER_AWAITED, "south")
    assert found.detail.startswith("It refuses: unknown_policy: ")
    assert [each.detail for each in helper_findings(["south"], {})] == ["It has left the broker."]
    rounds.helpers[1].hear(rounds.federation.policy)
    await wait(rounds, 60)
    assert heard.newest == (rounds.number, True, False)


async def test_a_helper_that_has_opened_a_later_round_is_waited_for_at_no_cost(given_up) -> None:
    """The federation went back to a backup, say: rounds end at their deadlines until they are above the helper's."""
    rounds, heard = given_up
    south = rounds.helpers[1]
    south.has_opened(4)
    await wait(rounds, 30)
    assert heard.newest == (2, False, False)
    (found,) = helper_findings([], rounds.served.actor.awaited_helpers)
    assert (found.reason, found.culprit) == (Reason.DATABASE_OLDER, "the database")
    assert found.detail.startswith("south refuses round 2: a set of round 4 was committed to.")
    await wait(rounds, 200)
    assert heard.newest[:2] == (rounds.number, True)
    assert rounds.number >= 5
    assert {announced.round for announced in heard.rounds if announced.open} == {1, rounds.number}


async def test_rounds_wait_for_a_helper_whose_store_is_an_old_copy_and_say_so(secure) -> None:
    """One round costs a participation; those after it cost none, and ``foltr rounds why`` has the reason."""
    rounds = await secure()
    rounds.helpers[1].is_restored()
    heard = Heard(rounds)
    await rounds.send_all()
    await rounds.until_closed()
    assert heard.newest == (2, False, False)
    words = " ".join(explain(await read_situation(rounds.served.db, "mail")))
    assert "south: store_restored: the store of south is an old copy" in words
    await wait(rounds, 20)
    assert heard.newest == (2, False, False)
    rounds.helpers[1].is_restored(restored=False)  # as with another store, new keys and a new policy
    await wait(rounds, 60)
    assert heard.newest == (3, True, False)


async def test_an_answer_of_before_or_of_others_is_no_sign_of_life(given_up) -> None:
    """What answers another question, another round or is signed by somebody else changes nothing."""
    rounds, heard = given_up
    rounds.served.requests.take()
    rounds.served.clock.at += 10.0
    await rounds.served.turn()
    request = next(each for each in rounds.served.requests.take() if each.helper == "south")
    north, south = rounds.helpers
    for late in (
        *south.answer(request.model_copy(update={"round": 1})),
        *south.answer(request.model_copy(update={"tickets": [b"x"]})),
        *north.answer(request),
    ):
        rounds.hear(south.topic, late)
        await rounds.served.turn()
    assert heard.newest == (2, False, False)
