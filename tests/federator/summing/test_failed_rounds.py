"""After each round that failed devices hear of the next one only after a pause: each has cost them a participation."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from support.helpers_by_hand import PlayedHelper, turned
from support.norm_proof_rounds import alter, forget, zeros
from support.secure_federation import PAUSE_S, QUIET, Heard
from support.waiting import PATIENCE_S

from foltr.core.protocol.helper_messages import (
    CheckAnswer,
    CheckRequest,
    HelperMessage,
    HelperRefusal,
    HelperRefusalCode,
    OpenAnswer,
    RefusedTicket,
    TicketFault,
)
from foltr.core.protocol.policies import SecureEvaluation
from foltr.core.protocol.states import AFTERMATH, PAUSING, AbandonReason, Aftermath, RoundState
from foltr.federator.round import _ENDS_WITH, RoundEvent
from foltr.operations.explanations import explain
from foltr.operations.reading import read_situation
from foltr.storage.evaluations import list_credit_sums

MINUTE = 60.0
TRIES = 20


class SilentAfterCheck(PlayedHelper):
    """It checks all tickets, and opens nothing."""

    def alter(self, request, message):
        return message if isinstance(request, CheckRequest) else None


class Refusing(PlayedHelper):
    """It checks all tickets, and refuses to open them."""

    def alter(self, request, message):
        if isinstance(request, CheckRequest):
            return message
        about = {name: getattr(request, name) for name in HelperMessage.model_fields}
        return HelperRefusal(**about, digest=request.digest, code=HelperRefusalCode.TOO_FEW, detail="no")


class Excluding(PlayedHelper):
    """It takes out every ticket."""

    def alter(self, request, message):
        if not isinstance(message, CheckAnswer):
            return message
        positions = range(request.first, request.first + len(request.tickets))
        out = [RefusedTicket(position=position, fault=TicketFault.NOT_OPENED) for position in positions]
        return message.model_copy(update={"refused": out, "proofs": b""})


class Distorting(PlayedHelper):
    """What it says is the sum of its masks is not."""

    def alter(self, _request, message):
        if not isinstance(message, OpenAnswer):
            return message
        n_words = len(message.values) // 8
        return message.model_copy(update={"values": (2**63).to_bytes(8, "little") * n_words})


def replace_second(rounds, kind) -> None:
    rounds.helpers[1] = turned(rounds.helpers[1], kind)


FAULTY = {
    AbandonReason.VERIFIERS_DISAGREE: lambda rounds: alter(rounds, zeros),
    AbandonReason.SUM_IMPLAUSIBLE: lambda rounds: replace_second(rounds, Distorting),
    AbandonReason.COHORTS_TOO_SMALL: lambda rounds: replace_second(rounds, Excluding),
    AbandonReason.HELPERS_SILENT: lambda rounds: replace_second(rounds, SilentAfterCheck),
    AbandonReason.HELPERS_REFUSED: lambda rounds: replace_second(rounds, Refusing),
}

# Of each kind of end one is enough where its kind alone matters; all of them are tried at night.
KINDS = {AbandonReason.SUM_IMPLAUSIBLE, AbandonReason.HELPERS_SILENT}
ONE_EACH = [each if each in KINDS else pytest.param(each, marks=pytest.mark.nightly) for each in FAULTY]


async def pass_s(rounds, seconds) -> None:
    """Let time go by, with helpers that answer."""
    rounds.served.clock.at += seconds
    for _ in range(3):
        await rounds.answer()


async def send_all(rounds, participation) -> None:
    """All devices send; what they have spent counts for them and for helpers, whatever the federation takes back."""
    for client in rounds.clients:
        rounds.send(client, participation=participation)
    await rounds.served.turn()


async def spend(rounds, participation=1) -> None:
    """All devices send, and the round that they send to ends."""
    number = rounds.number
    await send_all(rounds, participation)
    async with asyncio.timeout(PATIENCE_S):
        while rounds.number == number:
            await rounds.answer()
            await asyncio.sleep(PAUSE_S)
            if rounds.state is RoundState.OPENING:
                rounds.served.clock.at += 2.0


def test_whatever_ends_a_round_of_which_helpers_are_asked_is_followed_by_a_pause():
    """All but what makes no device spend anything, and what takes back a model by what a sum has said."""
    asked = {RoundEvent.SUMS_FAILED, RoundEvent.AGGREGATION_FAILED}
    ends = {reason for reason in AbandonReason if _ENDS_WITH.get(reason, RoundEvent.DEADLINE_MISSED) in asked}
    assert {AFTERMATH[reason] for reason in ends} == {Aftermath.PAUSE, Aftermath.HELPERS_FIRST}
    others = set(AbandonReason) - ends
    assert {reason for reason in others if reason in PAUSING} == {AbandonReason.TOO_FEW_CLIENTS}


@pytest.mark.parametrize("reason", FAULTY)
async def test_a_faulty_helper_costs_a_device_few_participations(secure, reason) -> None:
    """In 20 tries, a minute and a half apart: five, and not 20; the rounds between are over before it hears of one."""
    rounds = await secure(proofs=True, rounds={"max_time_s": 85.0}, secure={"helper_deadline_s": 30.0})
    FAULTY[reason](rounds)
    heard, n_spent = Heard(rounds), 0
    for _ in range(TRIES):
        if heard.open.get(rounds.number):
            n_spent += 1
            await spend(rounds, n_spent)
        await pass_s(rounds, 90.0)
    assert n_spent <= 5
    why = await read_situation(rounds.served.db, "mail")
    assert (why.failed.reason, why.failed.n_rounds) == (reason, n_spent)
    assert "south" in why.failed_why
    said = explain(replace(why, held_until=why.at + timedelta(seconds=65)))
    assert said[0].startswith(f"Round {rounds.number} has no update; devices hear of it in 65 s")
    assert f"{n_spent} rounds have failed since the last model, the newest as {why.failed_why}." in said[0]


@pytest.mark.parametrize("reason", ONE_EACH)
async def test_a_pause_outlasts_a_restart_and_ends_with_a_helper_that_is_mended(secure, reason) -> None:
    """The next round that devices hear of has a model, and nothing is held back after it."""
    rounds = await secure(proofs=True, rounds={"max_time_s": 10_000.0}, secure={"helper_deadline_s": 30.0})
    sound = rounds.helpers[1]
    FAULTY[reason](rounds)
    await spend(rounds)
    await rounds.restart()
    heard = Heard(rounds)
    await rounds.served.turn()
    assert not heard.open[2]
    rounds.helpers[1] = sound
    await pass_s(rounds, 2 * MINUTE)
    await pass_s(rounds, 5.0)
    assert heard.open[2]
    await send_all(rounds, 2)
    assert (await rounds.until_closed(2)).state is RoundState.COMPLETED
    assert heard.open[3]


@pytest.mark.parametrize("reason", ONE_EACH)
async def test_a_newer_policy_ends_it(secure, reason) -> None:
    """With other helpers, say: of the round after the open one devices hear at once."""
    rounds = await secure(proofs=True, rounds={"max_time_s": 50.0}, secure={"helper_deadline_s": 30.0})
    FAULTY[reason](rounds)
    heard = Heard(rounds)
    await spend(rounds)
    rounds.publish(rounds.federation.issue(version=2, n_interactions=1, n_max=100, **QUIET))
    await pass_s(rounds, 0.0)
    number = rounds.number
    assert not heard.open[number]
    await pass_s(rounds, 51.0)
    assert heard.open[number + 1]


async def test_too_few_clients_hold_back_too_and_for_six_hours_at_most(secure) -> None:
    """Each that did send has spent a participation."""
    rounds = await secure(rounds={"max_time_s": 30.0})
    heard, n_spent = Heard(rounds), 0
    for _ in range(TRIES):
        if heard.open.get(rounds.number):
            await rounds.send_all(rounds.clients[:1])
            n_spent += 1
        await pass_s(rounds, 31.0)
    assert n_spent == 4
    assert rounds.served.actor.state.members.counted_through("device-0") == 0


async def test_one_device_that_sends_all_the_same_holds_back_nobody_for_longer(secure) -> None:
    """The rounds that others did not hear of end as ``held_back``, and are passed over."""
    rounds = await secure(rounds={"max_time_s": 10.0})
    heard = Heard(rounds)
    await rounds.send_all(rounds.clients[:1])
    await pass_s(rounds, 11.0)
    for number in range(2, 8):
        assert (rounds.number, heard.open[number]) == (number, False)
        await rounds.send_all(rounds.clients[:1])
        await pass_s(rounds, 10.0)
        row = await rounds.until_closed(number)
        assert row.reason == AbandonReason.HELD_BACK
    assert heard.open[rounds.number]


async def test_who_is_forgotten_meanwhile_ends_no_pause(secure) -> None:
    """Its erasure replaces the model, and the round that was held back, by others; the rest of the pause stays."""
    rounds = await secure(5, rounds={"min_clients": 3, "max_time_s": 10_000.0})
    await send_all(rounds, 1)
    assert (await rounds.until_closed()).state is RoundState.COMPLETED
    replace_second(rounds, Distorting)
    heard = Heard(rounds)
    number = rounds.number
    await spend(rounds, 2)
    await forget(rounds, rounds.clients[0])
    for _ in range(5):
        await pass_s(rounds, 10.0)
        assert rounds.number > number
        assert not heard.open[rounds.number]
    await pass_s(rounds, 10.0)
    assert heard.open[rounds.number]


class Restored(PlayedHelper):
    """Its store was put back from a copy, and it says so."""

    def answer(self, request):
        self.is_restored()
        return super().answer(request)


@pytest.mark.parametrize("kind", [Refusing, Restored])
async def test_a_round_that_a_helper_refuses_says_nothing_of_the_model(secure, kind) -> None:
    """What others have found stays, and devices have sent their credits: the next round has only new ones."""
    asks = {"evaluation": SecureEvaluation(weight=32, credit_weight=64), "plan": {"evaluation": True}}
    limits = {"rounds": {"max_time_s": 10_000.0}, "secure": {"helper_deadline_s": 30.0}}
    rounds = await secure(5, proofs=True, **asks, **limits, **QUIET)

    async def send(participation, credited) -> None:
        for client in rounds.clients:
            rounds.send(client, participation=participation, earned=(1.0, 1.0, 0.0), credited=credited)
        await rounds.served.turn()

    async def stored() -> list[tuple[int, int]]:
        found = await list_credit_sums(rounds.served.db, "mail", 0)
        return [(each.n_updates, round(each.credit_total)) for each in found]

    await send(1, 1.0)
    assert (await rounds.until_closed()).state is RoundState.COMPLETED
    sound = rounds.helpers[1]
    replace_second(rounds, kind)
    await send(2, -1.0)
    async with asyncio.timeout(PATIENCE_S):
        while rounds.number == 2:
            await rounds.answer()
            await asyncio.sleep(PAUSE_S)
            if rounds.state is RoundState.OPENING:
                rounds.served.clock.at += 2.0
    assert await stored() == [(5, 5)]
    rounds.helpers[1] = sound
    sound.is_restored(restored=False)
    await pass_s(rounds, 2 * MINUTE)
    await pass_s(rounds, 5.0)
    await send(3, 1.0)
    row = await rounds.until_closed(rounds.number)
    assert row.state is RoundState.COMPLETED, row.reason
    assert await stored() == [(5, 5), (5, 5)]
