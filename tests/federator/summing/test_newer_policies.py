"""What a newer policy of the operator does to the round that is open."""

from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs
from support.secure_federation import QUIET, Heard

from foltr.core.protocol.states import AbandonReason, RoundState
from foltr.core.protocol.verify_keys import seal_verify_key
from foltr.core.secure.sealing import SealingKey
from foltr.federator.clock import to_datetime
from foltr.federator.deciding.policies import UNDER_WAY_S
from foltr.storage.queries import list_events
from foltr.storage.rounds import find_round
from foltr.storage.sums import load_sums


async def test_the_open_round_does_not_wait_for_devices_that_are_under_the_newer_policy(secure) -> None:
    """They send nothing to it. What was under way counts; then the next round opens, long before the deadline."""
    rounds = await secure(4, rounds={"min_clients": 3, "min_time_s": 300.0, "max_time_s": 600.0})
    rounds.send(rounds.clients[0])
    await rounds.served.turn()
    newer = rounds.federation.issue(version=2, n_interactions=1, n_max=50, **QUIET)
    rounds.publish(newer)
    await rounds.served.turn()
    await rounds.send_all(rounds.clients[1:3])
    assert rounds.state is RoundState.COLLECTING
    assert (await find_round(rounds.served.db, "mail", 1)).closes_at == to_datetime(1_000.0 + UNDER_WAY_S)
    rounds.served.clock.at += UNDER_WAY_S
    await rounds.served.turn()
    assert (await rounds.until_closed(1)).n_updates == 3
    assert rounds.served.actor.state.current_round.terms.policy.hash == newer.hash


async def test_a_round_that_ends_sooner_keeps_its_deadline(secure) -> None:
    """A newer policy makes no round longer."""
    rounds = await secure(rounds={"max_time_s": 5.0})
    rounds.publish(rounds.federation.issue(version=2, n_interactions=1, **QUIET))
    await rounds.served.turn()
    assert (await find_round(rounds.served.db, "mail", 1)).closes_at == to_datetime(1_005.0)


async def test_a_policy_whose_verify_key_cannot_be_opened_is_not_taken_up(secure) -> None:
    """An event says so and what to do; rounds go on under the policy that is known."""
    rounds = await secure()
    helpers = [helper.public for helper in rounds.federation.helpers]
    sealed = seal_verify_key(bytes(32), "mail", 2, helpers, SealingKey.generate().public)
    rounds.publish(rounds.federation.issue(version=2, n_interactions=1, norm_proof=sealed, **QUIET))
    await rounds.served.turn()
    (event,) = [event for event in await list_events(rounds.served.db, "mail") if event.kind == "policy_refused"]
    assert event.detail.startswith("policy 2: privacy: policy 2 asks for norm proofs, and its verify key is sealed to")
    assert "foltr policy new" in event.detail
    assert rounds.served.actor.state.policy.hash == rounds.federation.policy.hash
    await rounds.send_all()
    assert (await rounds.until_closed(1)).state is RoundState.COMPLETED


async def test_norm_proofs_come_and_go_with_policies(secure) -> None:
    """Without, with, and without again; each round is under the policy it opened with, also after a restart."""
    rounds = await secure()
    for version, proofs in enumerate((False, True, False), start=1):
        if version > 1:
            rounds.publish(rounds.federation.issue(version=version, n_interactions=1, proofs=proofs, **QUIET))
            await rounds.served.turn()
        await rounds.restart()
        await rounds.send_all()
        await rounds.restart()
        assert (await rounds.until_closed(2 * version - 1)).state is RoundState.COMPLETED
        (found,) = await load_sums(rounds.served.db, "mail", 2 * version - 1)
        assert found.n_norm_proofs_failed == (0 if version == 3 else None)
        await rounds.send_all()
        assert (await rounds.until_closed(2 * version)).state is RoundState.COMPLETED
        (found,) = await load_sums(rounds.served.db, "mail", 2 * version)
        assert found.n_norm_proofs_failed == (0 if proofs else None)


async def test_a_round_goes_on_where_the_federator_has_another_key_and_the_former_one(secure) -> None:
    """After a rotation in the midst of it; the next policy is sealed to the other key."""
    options = {}
    rounds = await secure(proofs=True, secure=options)
    await rounds.send_all()
    former, other = rounds.federation.federator_sealing_key, SealingKey.generate()
    options["sealing_keys"] = (other, former)
    await rounds.restart()
    assert (await rounds.until_closed(1)).state is RoundState.COMPLETED
    rounds.federation.federator_sealing_key = other
    rounds.publish(rounds.federation.issue(version=2, n_interactions=1, **QUIET))
    await rounds.served.turn()
    for number in (2, 3):
        await rounds.send_all()
        assert (await rounds.until_closed(number)).state is RoundState.COMPLETED
        assert [one.n_norm_proofs_failed for one in await load_sums(rounds.served.db, "mail", number)] == [0]
    assert rounds.served.actor.state.policy.version == 2


async def test_a_federation_that_is_over_starts_without_the_key_of_its_last_round(secure) -> None:
    """That was sealed to a key which is gone; the newest policy is not, and nothing of the last round is checked."""
    options, plan = {}, {"stop_after_round": 1}
    rounds = await secure(proofs=True, secure=options, plan=plan)
    await rounds.send_all()
    await rounds.until_closed(1)
    rounds.federation.federator_sealing_key = other = SealingKey.generate()
    options["sealing_keys"] = (other,)
    rounds.federation.policy = rounds.federation.issue(version=2, n_interactions=1, **QUIET)
    await rounds.restart()
    assert rounds.served.actor.finished
    plan["stop_after_round"] = 2
    await rounds.restart()
    for helper in rounds.helpers:
        helper.hear(rounds.federation.policy)
    await rounds.send_all()
    assert (await rounds.until_closed(2)).state is RoundState.COMPLETED


@pytest.mark.parametrize("state", [RoundState.COLLECTING, RoundState.CHECKING, RoundState.OPENING])
async def test_a_round_whose_verify_key_is_lost_does_not_keep_the_federation_from_going_on(secure, state) -> None:
    """The operator has made others, and a policy for them: nobody sends to the round that was open."""
    options = {}
    rounds = await secure(proofs=True, secure=options)
    await rounds.send_all(rounds.clients[:2] if state is RoundState.COLLECTING else None)
    await rounds.until(state)
    rounds.federation.federator_sealing_key = other = SealingKey.generate()
    options["sealing_keys"] = (other,)
    rounds.federation.policy = rounds.federation.issue(version=2, n_interactions=1, **QUIET)
    for helper in rounds.helpers:
        helper.hear(rounds.federation.policy)
    await rounds.restart()
    heard = {}
    rounds.served.actor.attach(
        SimpleNamespace(announce=lambda _, told, *_others: heard.update({told.round: told.open}))
    )
    assert not heard[1]
    rounds.served.clock.at += 61.0
    row = await rounds.until_closed(1)
    expected = {
        RoundState.COLLECTING: AbandonReason.HELD_BACK,
        RoundState.CHECKING: AbandonReason.AGGREGATION_FAILED,
        RoundState.OPENING: None,
    }
    assert row.reason == expected[state]
    await rounds.served.turn()
    assert heard[2]
    await rounds.send_all()
    assert (await rounds.until_closed(2)).state is RoundState.COMPLETED


async def test_no_device_hears_of_a_round_after_the_policys_last_epoch(secure) -> None:
    """It is told why, and what to do next; a newer policy ends it."""
    with capture_logs() as logs:
        rounds = await secure(issued_at=0.0, epoch_s=1010)
        heard = Heard(rounds)
        assert heard.open == {1: True}
        rounds.served.clock.at += 70.0
        for _ in range(3):
            await rounds.served.turn()
    assert not heard.rounds[-1].open
    assert [log["event"] for log in logs if log["event"].startswith("policy_end")] == [
        "policy_ends_soon",
        "policy_ended",
    ]
    newer = rounds.federation.issue(version=2, n_min=3, n_max=100, n_interactions=1, **QUIET)
    rounds.publish(newer)
    await rounds.served.turn()
    for _ in range(3):
        rounds.served.clock.at += 70.0
        await rounds.served.turn()
    assert heard.rounds[-1].open
    assert heard.rounds[-1].secure.policy_hash == newer.hash
