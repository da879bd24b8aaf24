"""Rounds are held back after most norm proofs of one have failed: each costs its devices a participation."""

import time

import pytest
from support.norm_proof_rounds import alter, started, zeros
from support.secure_federation import QUIET

from foltr.core.protocol.states import AbandonReason
from foltr.operations.reading import read_situation
from foltr.operations.why import explain
from foltr.storage.rounds import find_round


class Heard:
    """What devices hear of rounds."""

    def __init__(self) -> None:
        self.open: dict[int, bool] = {}

    def announce(self, _model, announced, _anchor, _pace=None) -> None:
        self.open[announced.round] = announced.open


async def disagreed(secure, **changed):
    """A federation in which most proofs fail as long as its second helper lies, and what devices hear."""
    rounds = await started(secure, **changed)
    alter(rounds, zeros)
    heard = Heard()
    rounds.served.actor.attach(heard)
    await rounds.send_all()
    await rounds.until_closed()
    return rounds, heard


async def pass_s(rounds, seconds) -> None:
    rounds.served.clock.at += seconds
    await rounds.served.turn()
    await rounds.served.turn()


async def test_rounds_after_a_disagreement_are_held_back_for_ever_longer(secure) -> None:
    """A minute, then two, four: each would cost each device a participation. A round that is completed ends that."""
    rounds, heard = await disagreed(secure, rounds={"max_time_s": 10_000.0})
    for number, minutes in ((2, 1), (3, 2), (4, 4)):
        assert not heard.open[number]
        await pass_s(rounds, 60.0 * minutes - 1.0)
        assert not heard.open[number]
        if number == 4:
            rounds.helpers[1].n_left = 0
        await pass_s(rounds, 1.0)
        assert heard.open[number]
        await rounds.send_all()
        await rounds.until_closed(number)
    assert heard.open[5]


async def test_it_is_told_for_how_long_a_round_is_held_back(secure) -> None:
    """``foltr rounds why`` reads it from the database."""
    rounds = await started(secure)
    alter(rounds, zeros)
    await rounds.send_all()
    rounds.served.clock.at = time.time()
    await rounds.restart()
    await rounds.until_closed()
    standing = await read_situation(rounds.served.db, "mail")
    assert standing.failed.n_rounds == 1
    assert standing.held_until is not None
    assert 30 < (standing.held_until - standing.at).total_seconds() <= 60
    assert "the newest as verifiers_disagree: 5 of 5 norm proofs of cohort 0 fail" in " ".join(explain(standing))


async def test_a_federator_that_starts_again_holds_back_as_long(secure) -> None:
    """It is stored how rounds have ended; also rounds that nobody heard of are passed over."""
    rounds, _ = await disagreed(secure, rounds={"max_time_s": 10.0})
    await pass_s(rounds, 30.0)
    assert rounds.number > 2
    await rounds.restart()
    heard = Heard()
    rounds.served.actor.attach(heard)
    await rounds.served.turn()
    assert not heard.open[rounds.number]
    await pass_s(rounds, 31.0)
    assert heard.open[rounds.number]


async def test_a_newer_policy_is_held_back_by_nothing(secure) -> None:
    """Its helpers may be others."""
    rounds, heard = await disagreed(secure, rounds={"max_time_s": 10.0})
    rounds.publish(rounds.federation.issue(version=2, n_interactions=1, n_max=100, **QUIET))
    await pass_s(rounds, 0.0)
    assert not heard.open[2]
    await pass_s(rounds, 10.0)
    assert heard.open[3]


async def test_an_update_to_a_round_that_is_held_back_lets_nothing_go(secure) -> None:
    """One device that sends all the same makes a round that few have heard of, which says nothing of verifiers."""
    rounds, heard = await disagreed(secure, rounds={"max_time_s": 10.0})
    await rounds.send_all(rounds.clients[:1])
    await pass_s(rounds, 11.0)
    row = await find_round(rounds.served.db, "mail", 2)
    assert row.reason == AbandonReason.HELD_BACK
    assert not heard.open[3]
    await pass_s(rounds, 50.0)
    assert heard.open[rounds.number]


async def test_a_helper_that_is_silent_in_between_waits_no_shorter(secure) -> None:
    """It lies, is silent, lies again: each end of a round is followed by a longer pause, whatever the reason."""
    rounds, heard = await disagreed(secure, rounds={"max_time_s": 10_000.0})
    await pass_s(rounds, 60.0)
    assert heard.open[2]
    await rounds.send_all()
    rounds.served.clock.at += 61.0
    assert (await rounds.until_closed(2, without=["south"])).reason == AbandonReason.HELPERS_SILENT
    await rounds.answer()
    await pass_s(rounds, 114.0)
    await rounds.answer()
    assert not heard.open[3]
    await pass_s(rounds, 6.0)
    assert heard.open[3]
    await rounds.send_all()
    assert (await rounds.until_closed(3)).reason == AbandonReason.VERIFIERS_DISAGREE
    await pass_s(rounds, 239.0)
    assert not heard.open[4]
    await pass_s(rounds, 1.0)
    assert heard.open[4]


@pytest.mark.parametrize("restarts", [False, True])
async def test_no_device_hears_of_a_round_shortly_before_its_deadline(secure, restarts) -> None:
    """The pause ends 20 s before: who heard of it then would come too late, and have spent a participation."""
    rounds, heard = await disagreed(secure, rounds={"max_time_s": 80.0})
    await pass_s(rounds, 61.0)
    if restarts:
        await rounds.restart()
        rounds.served.actor.attach(heard)
        await rounds.served.turn()
    assert (rounds.number, heard.open[2]) == (2, False)
    await pass_s(rounds, 19.0)
    assert heard.open[3]
