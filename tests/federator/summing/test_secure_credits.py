"""Rounds whose sums have credits: what is stored and announced of them, when clients lie or leave, or rounds fail."""

import math

import numpy as np
import pytest
from support.norm_proof_rounds import faults, forget, order, refused
from support.secure_federation import QUIET
from support.voting_devices import Shown

from foltr.core.learning.credits import Credits, CreditSum, summed
from foltr.core.protocol.policies import SecureEvaluation, SecureVotes
from foltr.core.protocol.states import RoundState
from foltr.core.protocol.topics import ClientTopic
from foltr.core.secure.message_proof import MessageShape, prove_message
from foltr.core.secure.norm_proof import proof_shape
from foltr.federator.closing.collected_updates import load_recipes
from foltr.federator.closing.replay import replay_round
from foltr.storage.evaluations import list_credit_sums
from foltr.storage.queries import get_round
from foltr.storage.sums import load_sums

WEIGHT = 64
EVALUATION = SecureEvaluation(weight=32, credit_weight=WEIGHT)
VOTES = SecureVotes(weight=64)
PLAN = {"evaluation": True}
CREDITED = [1.0, 1.0, -1.0, 1.0, 0.0]


async def started(secure, n_clients=5, *, votes=None, evaluation=EVALUATION, **changed):
    plan = PLAN | changed.pop("plan", {})
    return await secure(n_clients, proofs=True, votes=votes, evaluation=evaluation, plan=plan, **{**QUIET, **changed})


async def play(rounds, credited=CREDITED, clients=None, **changed):
    """One round; returns its row once it has ended."""
    number, clients = rounds.number, rounds.clients if clients is None else clients
    for client, each in zip(clients, credited, strict=True):
        rounds.send(client, participation=number, earned=(1.0, 1.0, 0.0), credited=each, **changed)
    await rounds.served.turn()
    rounds.served.clock.at += rounds.served.plan.policy.min_time_s
    await rounds.served.turn()
    return await rounds.until_closed(number)


async def stored(rounds, since=0):
    return [
        (each.n_updates, round(each.credit_total)) for each in await list_credit_sums(rounds.served.db, "mail", since)
    ]


def shown(rounds):
    """What is announced now."""
    found = Shown()
    rounds.served.actor.attach(found)
    return found


def announced(rounds):
    request = shown(rounds).evaluation
    return Credits(request.credit_total, request.credit_squares)


@pytest.mark.parametrize("votes", [None, VOTES], ids=["alone", "with votes"])
@pytest.mark.parametrize("cohorts", [1, 2])
async def test_a_round_stores_its_credits_with_the_noise_and_announces_what_they_say(secure, votes, cohorts) -> None:
    """Of all cohorts together, beside the means; the next federator announces the same, and a replay agrees."""
    n = 5 * cohorts
    size = {"cohorts": cohorts, "n_min": 2} if cohorts > 1 else {}
    rounds = await started(secure, n, votes=votes, **size)
    assert announced(rounds) == Credits()
    for _ in range(2):
        row = await play(rounds, [1.0] * n)
        assert row.state is RoundState.COMPLETED, row.reason
    found = await list_credit_sums(rounds.served.db, "mail", 0)
    noises = len(await load_sums(rounds.served.db, "mail", 1)) * 2
    assert [(each.n_updates, each.credit_deviation) for each in found] == [(n, math.sqrt(noises) / WEIGHT)] * 2
    assert [each.credit_total for each in found] == pytest.approx([n] * 2, abs=8 * math.sqrt(noises) / WEIGHT)
    assert (await get_round(rounds.served.db, "mail", 1)).reward == pytest.approx(1.0, abs=0.2)
    expected = (n - 1) / math.sqrt(n)
    assert announced(rounds) == pytest.approx((2 * expected, 2.0), abs=0.3)
    before = announced(rounds)
    await rounds.restart()
    assert announced(rounds) == before == summed(found)
    recipes = await load_recipes(rounds.served.db, "mail")
    assert (await replay_round(rounds.served.db, recipes, 2)).differs == ()


async def test_credits_against_the_model_or_of_too_few_say_nothing_for_it(secure) -> None:
    rounds = await started(secure)
    await play(rounds, [-1.0] * 5)
    await play(rounds, [1.0, -1.0, 0.0, 0.0, 0.0])
    assert await stored(rounds) == [(5, -5), (5, 0)]
    assert announced(rounds).score < -2.0


@pytest.mark.parametrize("proof", ["as a device would make it", "of an honest one"])
@pytest.mark.parametrize("lie", [2 * WEIGHT, -2 * WEIGHT, 1, 1000 * WEIGHT], ids=["two", "minus two", "a bit", "many"])
async def test_whoever_claims_more_than_one_costs_only_itself(secure, proof, lie) -> None:
    rounds = await started(secure, votes=VOTES)
    liar, *others = rounds.clients
    for client in others:
        rounds.send(client, earned=(1.0, 0.0, 1.0), credited=-1.0)
    shape = MessageShape(proof_shape(3, 256), 64, 32, WEIGHT)
    honest = np.array([3, -4, 5, 64, 0, 32, 0, 0, WEIGHT])
    made = prove_message(honest, shape, np.random.default_rng(2).bytes) if proof == "of an honest one" else None
    rounds.send(liar, vector=honest[:3], votes=(64, 0, 32, 0, 0, lie), proof=made)
    await rounds.served.turn()
    row = await rounds.until_closed()
    assert row.state is RoundState.COMPLETED, row.reason
    assert (await faults(rounds), await refused(rounds)) == (["norm_proof_failed"], [liar.name])
    assert await stored(rounds) == [(4, -4)]


@pytest.mark.parametrize("sends", [SecureEvaluation(weight=32), EVALUATION], ids=["without", "with"])
async def test_an_update_with_other_numbers_than_the_policys_is_refused_and_told_why(secure, sends) -> None:
    """As a device sends it that has missed the newer policy: the update names the other one."""
    asks = EVALUATION if sends.credit_weight is None else SecureEvaluation(weight=32)
    rounds = await started(secure, 3, evaluation=asks)
    other = rounds.federation.issue(version=2, n_interactions=1, proofs=True, evaluation=sends, **QUIET)
    client = rounds.clients[0]
    told = rounds.update(client, policy=other, policy_hash=rounds.federation.policy.hash)
    rounds.served.receive(rounds.device(client), ClientTopic.UPDATES, told)
    await rounds.served.turn()
    receipt = rounds.served.receipts.sent[-1]
    assert (receipt.code, "the round's policy asks for" in receipt.detail) == ("wrong_shape", True)


async def test_a_newer_policy_may_weigh_them_otherwise_or_have_none(secure) -> None:
    """What earlier ones have found stays: each sum has its own noise."""
    rounds = await started(secure)
    await play(rounds, [1.0] * 5)

    async def publish(version, evaluation):
        more = {"n_interactions": 1, "proofs": True, **QUIET}
        rounds.publish(rounds.federation.issue(version=version, evaluation=evaluation, **more))
        await rounds.served.turn()

    await publish(2, SecureEvaluation(weight=32))
    await play(rounds)
    await play(rounds)
    await publish(3, SecureEvaluation(weight=32, credit_weight=8))
    await play(rounds, [1.0] * 5)
    await play(rounds, [1.0] * 5)
    found = await list_credit_sums(rounds.served.db, "mail", 0)
    assert [(each.n_updates, round(each.credit_deviation * WEIGHT / math.sqrt(2))) for each in found] == [
        *((5, 1), (5, 1), (5, 8))
    ]
    assert announced(rounds) == summed(found)


async def test_an_abandoned_round_says_nothing(secure) -> None:
    rounds = await started(secure)
    for client in rounds.clients:
        rounds.send(client, credited=1.0)
    await rounds.served.turn()
    await rounds.until(RoundState.OPENING)
    rounds.served.clock.at += 1000.0
    await rounds.served.turn()
    assert (await get_round(rounds.served.db, "mail", 1)).state is RoundState.ABANDONED
    assert (await stored(rounds), announced(rounds)) == ([], Credits())


async def test_credits_of_models_that_were_taken_back_count_no_more(secure) -> None:
    rounds = await started(secure, votes=VOTES, plan={"anchor": True})
    for _ in range(8):
        await play(rounds, [1.0] * 5, opinion=-1)
        if rounds.served.actor.state.restored:
            break
    version = rounds.served.actor.state.model_version
    assert rounds.served.actor.state.restored
    assert (shown(rounds).evaluation.credits_since, announced(rounds)) == (version, Credits())
    await play(rounds, [1.0] * 5)
    assert await stored(rounds, version) == [(5, 5)]
    assert announced(rounds).total > 1.0


async def test_credits_begin_again_when_a_client_that_was_in_them_is_erased(secure) -> None:
    """Before the next round ends: the noised sum cannot be taken apart."""
    rounds = await started(secure, rounds={"min_clients": 4, "max_clients": 5, "min_time_s": 50.0})
    gone, *others = rounds.clients
    await play(rounds, [1.0] * 4, clients=others)
    await play(rounds, [1.0] * 5)
    assert announced(rounds).squares == 2.0
    await forget(rounds, gone)
    assert (await stored(rounds), announced(rounds)) == ([], Credits())


@pytest.mark.parametrize("kind", ["quarantine", "revoke"])
async def test_a_client_that_has_to_leave_stays_in_the_sums_that_it_was_in(secure, kind) -> None:
    """And is in none that follow."""
    rounds = await started(secure, rounds={"min_clients": 4, "max_clients": 5, "min_time_s": 50.0})
    await play(rounds, [1.0] * 5)
    gone, *others = rounds.clients
    order(rounds, kind, gone.name)
    await rounds.served.turn()
    await play(rounds, [1.0] * 4, clients=others)
    assert await stored(rounds) == [(5, 5), (4, 4)]


async def test_a_federation_that_keeps_no_evaluation_announces_no_credits(secure) -> None:
    rounds = await started(secure, plan={"evaluation": False})
    await play(rounds)
    assert (await stored(rounds), shown(rounds).evaluation) == ([], None)
    assert summed([CreditSum(1, 1.0, 1.0)]).total == 0.0, "one client may be the liar"
