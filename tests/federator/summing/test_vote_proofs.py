"""Rounds whose messages have votes: whoever sends what is no vote is out, alone, and votes both ways are two votes."""

import numpy as np
import pytest
from support.norm_proof_rounds import faults, mean_of, model_of, refused
from support.secure_federation import QUIET

from foltr.core.protocol.policies import SecureVotes
from foltr.core.protocol.states import RoundState
from foltr.core.secure.field import MODULUS
from foltr.core.secure.message_proof import MessageShape, prove_message
from foltr.core.secure.norm_proof import proof_shape
from foltr.storage.sums import load_sums

WEIGHT = 64
VOTES = SecureVotes(weight=WEIGHT)
SHAPE = MessageShape(proof_shape(3, 256), WEIGHT)
A_THIRD = WEIGHT * pow(3, -1, MODULUS) % MODULUS - MODULUS


async def started(secure, n_clients=5, **changed):
    """A federation whose updates have votes."""
    return await secure(n_clients, proofs=True, votes=VOTES, **{**QUIET, **changed})


async def test_an_update_with_any_vote_is_in_the_sum(secure) -> None:
    """Worse, better, neither, and one as long as it may be: nothing fails, and the mean is that of the updates."""
    rounds = await started(secure)
    rounds.send(rounds.clients[0], vector=[256, 0, 0], opinion=-1)
    for client, opinion in zip(rounds.clients[1:], (-1, 0, 1, 0), strict=True):
        rounds.send(client, opinion=opinion)
    await rounds.served.turn()
    row = await rounds.until_closed()
    assert (row.state, row.n_updates) == (RoundState.COMPLETED, 5), row.reason
    np.testing.assert_allclose(await model_of(rounds), mean_of(rounds, rounds.clients), atol=0.05)
    (sums,) = await load_sums(rounds.served.db, "mail", 1)
    assert (sums.n_clients, sums.n_norm_proofs_failed) == (5, 0)


@pytest.mark.parametrize(
    "proof", [pytest.param("as a device would make it", marks=pytest.mark.nightly), "of an honest vote"]
)
@pytest.mark.parametrize(
    "votes",
    [(2 * WEIGHT, 0), (0, 1000 * WEIGHT), (-WEIGHT, 0), (1, 0), (0, WEIGHT - 1), (A_THIRD, 0)],
    ids=["two", "a thousand", "a negative one", "a little", "less", "a third modulo p"],
)
async def test_whoever_sends_what_is_no_vote_costs_only_itself(secure, votes, proof) -> None:
    """As with a norm proof that fails: its participation is spent, and all others are in the sum."""
    rounds = await started(secure)
    liar, *others = rounds.clients
    await rounds.send_all(others)
    honest = np.array([3, -4, 5, WEIGHT, 0])
    made = prove_message(honest, SHAPE, np.random.default_rng(2).bytes) if proof == "of an honest vote" else None
    rounds.send(liar, vector=honest[:3], votes=votes, proof=made)
    await rounds.served.turn()
    row = await rounds.until_closed()
    assert row.state is RoundState.COMPLETED, row.reason
    np.testing.assert_allclose(await model_of(rounds), mean_of(rounds, others), atol=0.05)
    assert await faults(rounds) == ["norm_proof_failed"]
    assert await refused(rounds) == [liar.name]
    assert rounds.served.actor.state.members.counted_through(liar.name) == 1


async def test_a_vector_that_is_too_long_is_found_beside_an_honest_vote(secure) -> None:
    """The two proofs are about different numbers."""
    rounds = await started(secure)
    liar, *others = rounds.clients
    await rounds.send_all(others)
    honest = prove_message(np.array([100, 0, 0, 0, 0]), SHAPE, np.random.default_rng(3).bytes)
    rounds.send(liar, vector=[256 * 50, 0, 0], proof=honest)
    await rounds.served.turn()
    assert (await rounds.until_closed()).state is RoundState.COMPLETED
    assert await faults(rounds) == ["norm_proof_failed"]


@pytest.mark.parametrize("votes", [(), (0,), (0, 0, 0)], ids=len)
async def test_a_message_with_another_number_of_votes_is_refused_at_once(secure, votes) -> None:
    """By a code: one that knows no votes, and one that is malformed; it may send another one."""
    rounds = await started(secure)
    odd = rounds.clients[0]
    honest = prove_message(np.zeros(5, np.int64), SHAPE, np.random.default_rng(4).bytes)
    rounds.send(odd, votes=votes, proof=honest)
    await rounds.served.turn()
    assert rounds.served.receipts.codes() == {"wrong_shape": 1}
    await rounds.send_all()
    row = await rounds.until_closed()
    assert (row.state, row.n_updates) == (RoundState.COMPLETED, 5), row.reason
