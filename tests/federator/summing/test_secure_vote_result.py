"""Votes in secure sums decide on the newest model: what dies, leaves, or changes meanwhile changes no verdict."""

import numpy as np
import pytest
from support.backups import back_up, restore
from support.deaths import dying_at
from support.norm_proof_rounds import faults, refused
from support.secure_federation import QUIET

from foltr.core.failpoints import Failpoint
from foltr.core.protocol.policies import SecureVotes
from foltr.core.protocol.states import RoundState
from foltr.federator.closing.collected_updates import load_recipes
from foltr.federator.closing.replay import replay_round
from foltr.storage.anchors import list_tallies
from foltr.storage.models import list_models
from foltr.storage.queries import list_events
from foltr.storage.rounds import latest_round
from foltr.storage.sums import load_sums

VOTES = SecureVotes(weight=64)
WORSE = "-----"


@pytest.fixture
def voting(secure):
    """Starts a federation of five under a policy with votes; ``plan`` may be changed before a restart."""

    async def start(n_clients=5, *, plan=None, **changed):
        plan = {"anchor": True} if plan is None else plan
        rounds = {"min_clients": 4, "max_clients": 5} | changed.pop("rounds", {})
        return await secure(n_clients, proofs=True, votes=VOTES, plan=plan, rounds=rounds, **{**QUIET, **changed})

    return start


async def play(rounds, opinions="", *, clients=None, until=None):
    """One round, in which clients vote: - worse, 0 none, + better; returns its row."""
    number, clients = rounds.number, rounds.clients if clients is None else clients
    for client, opinion in zip(clients, opinions.ljust(len(clients), "0"), strict=True):
        rounds.send(client, participation=number, vector=[64, 0, 0], opinion="-0+".index(opinion) - 1)
    await rounds.served.turn()
    if until is not None:
        return await rounds.until(until)
    return await rounds.until_closed(number)


async def origins(rounds):
    """Of each model its version, its base, and the one that it was restored from."""
    return [
        (row.version, row.base_version, row.restored_version) for row in await list_models(rounds.served.db, "mail")
    ]


async def tallies(rounds, anchor):
    return [round(each.worse) for each in await list_tallies(rounds.served.db, "mail", anchor, 50)]


async def publish(rounds, version, **changed):
    """Have a newer policy taken up, with the round after the open one."""
    rounds.publish(rounds.federation.issue(version=version, n_interactions=1, **{"proofs": True, **QUIET, **changed}))
    await rounds.served.turn()


def anchor_of(rounds):
    anchor = rounds.served.actor.state.anchor
    return None if anchor is None else anchor.version


TAKEN_BACK = [(0, None, None), *((n, n - 1, None) for n in range(1, 5)), (5, 0, 0)]


@pytest.mark.parametrize("cohorts", [pytest.param(1, marks=pytest.mark.nightly), 2])
async def test_a_model_that_most_find_worse_is_taken_back(voting, cohorts) -> None:
    """With the fifth round that says so: the anchor takes its place, nothing of the round stays, and others replay."""
    n = 8 * cohorts
    rounds = await voting(n, cohorts=cohorts, n_min=2, rounds={"min_clients": 4, "max_clients": n})
    assert anchor_of(rounds) == 0
    await play(rounds)
    for _ in range(3):
        assert (await play(rounds, "-" * (n - 1))).state is RoundState.COMPLETED
    assert await tallies(rounds, 0) == [n - 1] * 3 + [0]
    row = await play(rounds, "-" * (n - 1))
    assert (row.state, row.reason) == (RoundState.ABANDONED, "model_rolled_back")
    assert await origins(rounds) == TAKEN_BACK
    assert await load_sums(rounds.served.db, "mail", 5) == []
    (event,) = await list_events(rounds.served.db, "mail", kind="model_rolled_back")
    assert f"of {5 * n} updates in 5 rounds, {4 * (n - 1)} found it worse and 0 better" in event.detail.replace(
        "-0", "0"
    )
    assert (rounds.number, anchor_of(rounds)) == (6, 5)
    assert await tallies(rounds, 5) == []
    assert (await play(rounds, "-" * n)).state is RoundState.COMPLETED
    recipes = await load_recipes(rounds.served.db, "mail")
    for number in (1, 4, 6):
        assert (await replay_round(rounds.served.db, recipes, number)).differs == ()


async def test_the_anchor_moves_to_the_model_that_was_voted_on(voting) -> None:
    """And tallies of the one before count no more."""
    rounds = await voting()
    await play(rounds)
    for _ in range(4):
        assert (await play(rounds, "++++-")).state is RoundState.COMPLETED
    assert (anchor_of(rounds), (await latest_round(rounds.served.db, "mail")).anchor_version) == (4, 4)
    (event,) = await list_events(rounds.served.db, "mail", kind="anchor_moved")
    assert event.detail.startswith("model 4 replaces model 0 as the anchor: of 25 updates in 5 rounds")
    assert (await play(rounds, WORSE)).state is RoundState.COMPLETED
    assert await tallies(rounds, 4) == [5]


async def test_who_votes_both_ways_and_who_is_left_out(voting) -> None:
    """Two votes are two votes; of a message whose proof fails nothing is counted."""
    rounds = await voting()
    both, liar, *others = rounds.clients
    rounds.send(both, votes=(64, 64))
    rounds.send(liar, votes=(6400, 0))
    await rounds.send_all(others)
    await rounds.until_closed()
    assert (await faults(rounds), await refused(rounds)) == (["norm_proof_failed"], [liar.name])
    (tally,) = await list_tallies(rounds.served.db, "mail", 0, 50)
    assert (tally.n_updates, round(tally.worse), round(tally.better)) == (4, 1, 1)
    assert tally.deviation == pytest.approx(np.sqrt(2) / 64)


@pytest.mark.parametrize(
    ("module", "dies_at"),
    [
        ("storage.sums", Failpoint.IN_SETS_TRANSACTION),
        pytest.param("federator.summing.driver", Failpoint.SETS_STORED, marks=pytest.mark.nightly),
        pytest.param("federator.summing.driver", Failpoint.ANSWERS_STORED, marks=pytest.mark.nightly),
        pytest.param("storage.sums", Failpoint.IN_SUMS_TRANSACTION, marks=pytest.mark.nightly),
        ("federator.summing.driver", Failpoint.SUMS_STORED),
        pytest.param("storage.anchors", Failpoint.IN_RESTORATION_TRANSACTION, marks=pytest.mark.nightly),
        ("federator.rounds", Failpoint.MODEL_ROLLED_BACK),
    ],
)
async def test_the_next_federator_takes_back_all_the_same(voting, module, dies_at) -> None:
    """From what is stored: once, and whatever was there of the round."""
    rounds = await voting()
    await play(rounds)
    for _ in range(3):
        await play(rounds, WORSE)
    with dying_at(dies_at, module):
        await play(rounds, WORSE)
    await rounds.restart()
    row = await rounds.until_closed(5)
    assert (row.state, row.reason) == (RoundState.ABANDONED, "model_rolled_back")
    assert await origins(rounds) == TAKEN_BACK
    assert (rounds.number, anchor_of(rounds)) == (6, 5)
    assert len(await list_events(rounds.served.db, "mail", kind="model_rolled_back")) == 1


@pytest.mark.parametrize(
    ("module", "dies_at"),
    [
        ("federator.rounds", Failpoint.AGGREGATED),
        pytest.param("storage.rounds", Failpoint.IN_ROUND_TRANSACTION, marks=pytest.mark.nightly),
        ("federator.rounds", Failpoint.ROUND_COMPLETED),
    ],
)
async def test_a_death_loses_no_tally_and_counts_none_twice(voting, module, dies_at) -> None:
    """It is stored with the model, or not at all."""
    rounds = await voting()
    await play(rounds)
    with dying_at(dies_at, module):
        await play(rounds, "---00")
    await rounds.restart()
    await rounds.until_closed(2)
    assert await tallies(rounds, 0) == [3, 0]


async def test_a_copy_from_before_is_put_back(voting) -> None:
    """The tallies are those of the copy, and count on."""
    rounds = await voting()
    await play(rounds)
    await play(rounds, WORSE)
    await play(rounds, WORSE)
    copy = await back_up(rounds.served.db)
    await play(rounds, "+++++")
    await restore(rounds.served.db, copy)
    await rounds.restart()
    assert await tallies(rounds, 0) == [5, 5, 0]
    assert (await play(rounds, WORSE)).state is RoundState.ABANDONED, "helpers know that they have opened this round"
    assert (await play(rounds, WORSE)).state is RoundState.COMPLETED
    assert await tallies(rounds, 0) == [5, 5, 5, 0]


async def test_under_a_policy_without_votes_there_is_no_anchor(voting) -> None:
    """From its first round on; where a later one has votes again the newest model becomes it."""
    rounds = await voting()
    for _ in range(3):
        await play(rounds, WORSE)
    await publish(rounds, 2)
    assert anchor_of(rounds) == 0
    assert (await play(rounds, WORSE)).state is RoundState.COMPLETED
    assert await tallies(rounds, 0) == [5] * 4
    assert (anchor_of(rounds), (await latest_round(rounds.served.db, "mail")).anchor_version) == (None, None)
    await rounds.restart()
    assert (await play(rounds)).state is RoundState.COMPLETED
    await publish(rounds, 3, votes=VOTES)
    assert (await play(rounds)).state is RoundState.COMPLETED
    assert anchor_of(rounds) == 6
    recipes = await load_recipes(rounds.served.db, "mail")
    for number in (4, 5, 6):
        assert (await replay_round(rounds.served.db, recipes, number)).differs == ()


@pytest.mark.parametrize("restarts", [False, True])
async def test_the_last_round_with_votes_decides_still(voting, restarts) -> None:
    """The operator's policy without votes is known: what is restored is no anchor any more."""
    rounds = await voting()
    for _ in range(4):
        await play(rounds, WORSE)
    await play(rounds, WORSE, until=RoundState.CHECKING)
    await publish(rounds, 2)
    if restarts:
        await rounds.restart()
    assert (await rounds.until_closed(5)).reason == "model_rolled_back"
    assert await origins(rounds) == TAKEN_BACK
    assert (anchor_of(rounds), (await latest_round(rounds.served.db, "mail")).anchor_version) == (None, None)
    assert (await play(rounds)).state is RoundState.COMPLETED
