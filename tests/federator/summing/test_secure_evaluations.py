"""Rounds whose sums say what lists have earned: what is stored of them, whoever lies, leaves, is erased or dies."""

import numpy as np
import pytest
from support.deaths import dying_at
from support.norm_proof_rounds import faults, mean_of, model_of, refused
from support.secure_federation import QUIET

from foltr.core.failpoints import Failpoint
from foltr.core.protocol.policies import NEW_POLICY, SecureEvaluation, SecureVotes
from foltr.core.protocol.states import RoundState
from foltr.federator.closing.collected_updates import load_recipes
from foltr.federator.closing.replay import replay_round
from foltr.storage.anchors import list_tallies
from foltr.storage.queries import get_round
from foltr.storage.sums import load_sums

WEIGHT = 32
EVALUATION = SecureEvaluation(weight=WEIGHT)
VOTES = SecureVotes(weight=64)
PLAN = {"evaluation": True}
# What each of five users' lists have earned: one is not clicked at all.
EARNED = [(1.0, 1.0, 0.0), (1.0, 1.0, 1.0), (1.0, 0.0, 1.0), (1.0, 1.0, 0.0), (0.0, 0.0, 0.0)]


async def started(secure, n_clients=5, *, votes=None, **changed):
    """A federation whose updates say what lists have earned."""
    plan = PLAN | changed.pop("plan", {})
    return await secure(n_clients, proofs=True, votes=votes, evaluation=EVALUATION, plan=plan, **{**QUIET, **changed})


async def play(rounds, earned=EARNED, clients=None, **changed):
    """One round; returns its row once it has ended."""
    number, clients = rounds.number, rounds.clients if clients is None else clients
    for client, each in zip(clients, earned, strict=True):
        rounds.send(client, participation=number, earned=each, **changed)
    await rounds.served.turn()
    rounds.served.clock.at += rounds.served.plan.policy.min_time_s
    await rounds.served.turn()
    return await rounds.until_closed(number)


async def shown(rounds, number):
    """How many say so, and the three means, as the history tells them; noise is 1 of 32 steps or so."""
    row = await get_round(rounds.served.db, "mail", number)
    means = (row.clicked, row.reward, row.base_reward)
    return row.n_evaluations, *(None if mean is None else round(mean, 1) for mean in means)


async def replays(rounds, *numbers) -> bool:
    recipes = await load_recipes(rounds.served.db, "mail")
    return all([(await replay_round(rounds.served.db, recipes, number)).differs == () for number in numbers])


@pytest.mark.parametrize("votes", [None, VOTES], ids=["alone", "with votes"])
@pytest.mark.parametrize("cohorts", [1, 2])
async def test_a_round_tells_what_lists_have_earned(secure, votes, cohorts) -> None:
    """Of all cohorts together, behind the model, with the deviation of the noise; and the sum has the updates' mean."""
    n = 5 * cohorts
    size = {"cohorts": cohorts, "n_min": 2} if cohorts > 1 else {}
    rounds = await started(secure, n, votes=votes, **size)
    row = await play(rounds, EARNED * cohorts)
    assert row.state is RoundState.COMPLETED, row.reason
    assert await shown(rounds, 1) == (n, 0.8, 0.6, 0.4)
    stored = await get_round(rounds.served.db, "mail", 1)
    noises = len(await load_sums(rounds.served.db, "mail", 1)) * 2
    assert stored.evaluation_deviation == pytest.approx(np.sqrt(noises) / WEIGHT / n)
    if cohorts == 1:
        np.testing.assert_allclose(await model_of(rounds), mean_of(rounds, rounds.clients), atol=0.05)
    assert await replays(rounds, 1)


async def test_votes_and_evaluations_do_not_mix(secure) -> None:
    """All find the newest model worse, and nobody has earned anything; then the other way round."""
    rounds = await started(secure, votes=VOTES, plan={"anchor": True, **PLAN})
    await play(rounds, [(0.0,) * 3] * 5, opinion=-1)
    await play(rounds, [(1.0,) * 3] * 5, opinion=1)
    second, first = await list_tallies(rounds.served.db, "mail", 0, 50)
    assert [(round(each.worse), round(each.better)) for each in (first, second)] == [(5, 0), (0, 5)]
    assert [await shown(rounds, number) for number in (1, 2)] == [(5, 0.0, 0.0, 0.0), (5, 1.0, 1.0, 1.0)]


@pytest.mark.parametrize("votes", [None, VOTES], ids=["alone", "with votes"])
async def test_whoever_says_more_than_all_costs_only_itself(secure, votes) -> None:
    """As with votes: its update is in no sum, and what the others' lists have earned is; other lies are in core."""
    rounds = await started(secure, votes=votes)
    liar, *others = rounds.clients
    for client in others:
        rounds.send(client, earned=(1.0, 0.0, 1.0))
    rounds.send(liar, votes=(*((64, 0) if votes else ()), 2 * WEIGHT, 0, 0))
    await rounds.served.turn()
    row = await rounds.until_closed()
    assert row.state is RoundState.COMPLETED, row.reason
    assert (await faults(rounds), await refused(rounds)) == (["norm_proof_failed"], [liar.name])
    assert await shown(rounds, 1) == (4, 1.0, 0.0, 1.0)


async def test_a_newer_policy_may_weigh_them_otherwise_or_have_none(secure) -> None:
    """Means are means; and a round under a policy without has none, as one that was opened before there were any."""
    rounds = await started(secure)
    await play(rounds)

    async def publish(version, **changed):
        issued = rounds.federation.issue(version=version, n_interactions=1, proofs=True, **{**QUIET, **changed})
        rounds.publish(issued)
        await rounds.served.turn()

    await publish(2, evaluation=SecureEvaluation(weight=8))
    await play(rounds)
    await play(rounds)
    await publish(3, evaluation=None)
    await play(rounds)
    await play(rounds)
    await publish(4, evaluation=EVALUATION)
    await play(rounds)
    await play(rounds)
    found = [await shown(rounds, number) for number in range(1, 8)]
    assert [one[0] for one in found] == [5, 5, 5, 5, 0, 0, 5]
    assert found[0] == found[1] == found[6] == (5, 0.8, 0.6, 0.4)
    assert found[4] == (0, None, None, None)
    first, third = [await get_round(rounds.served.db, "mail", number) for number in (1, 3)]
    assert third.evaluation_deviation == pytest.approx(4 * first.evaluation_deviation)
    assert await replays(rounds, 1, 3, 5, 7)
    plan = rounds.served.plan
    under = rounds.federation.issue(version=9, proofs=True, evaluation=None, **QUIET).policy
    assert plan.no_evaluation_because(under).endswith(f"for one that does: {NEW_POLICY} --evaluation")


@pytest.mark.parametrize(
    ("module", "dies_at"),
    [
        pytest.param("federator.summing.driver", Failpoint.SETS_STORED, marks=pytest.mark.nightly),
        ("federator.summing.driver", Failpoint.SUMS_STORED),
        pytest.param("federator.rounds", Failpoint.AGGREGATED, marks=pytest.mark.nightly),
        ("storage.rounds", Failpoint.IN_ROUND_TRANSACTION),
        pytest.param("federator.rounds", Failpoint.ROUND_COMPLETED, marks=pytest.mark.nightly),
    ],
)
async def test_a_federator_that_dies_tells_the_same(secure, module, dies_at) -> None:
    """Once, whenever it died: with the model, or not at all."""
    rounds = await started(secure)
    with dying_at(dies_at, module):
        await play(rounds)
    await rounds.restart()
    assert (await rounds.until_closed(1)).state is RoundState.COMPLETED
    assert await shown(rounds, 1) == (5, 0.8, 0.6, 0.4)


async def test_who_does_not_ask_stores_nothing(secure) -> None:
    """The sum has the numbers, as the policy says; a federator that is started without keeps none of them."""
    plan = {"evaluation": False}
    rounds = await started(secure, plan=plan)
    assert (await play(rounds)).state is RoundState.COMPLETED
    assert await shown(rounds, 1) == (0, None, None, None)
