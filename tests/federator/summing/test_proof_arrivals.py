"""Masked updates with norm proofs as they arrive: what is refused costs its client the round, and nobody else."""

import pytest
from support.secure_federation import QUIET

from foltr.core.protocol.topics import ClientTopic
from foltr.core.secure.field import MODULUS
from foltr.core.secure.norm_proof import proof_shape
from foltr.storage.rounds import stream_updates

N_PROOF = proof_shape(3, 256).n_proof


async def bodies(rounds):
    """What is stored of the open round's updates, unsealed."""
    return [row.body async for row in stream_updates(rounds.served.db, "mail", rounds.number)]


def without_its_last_word(proof):
    return proof[:-8]


def with_a_word_more(proof):
    return proof + bytes(8)


def with_a_word_that_is_no_number(proof):
    return proof[:-8] + MODULUS.to_bytes(8, "little")


def altered(proof):
    return proof[:-1] + bytes([proof[-1] ^ 1])


@pytest.fixture
async def rounds(secure):
    # So many have to come that none of these tests ends the round.
    return await secure(4, proofs=True)


async def test_vector_and_proof_are_stored_as_one_body(rounds) -> None:
    """As they were sent, one behind the other: what deletes or seals the one does so with the other."""
    client = rounds.clients[0]
    sent = rounds.update(client)
    rounds.served.receive(rounds.device(client), ClientTopic.UPDATES, sent)
    await rounds.served.turn()
    assert rounds.served.receipts.codes() == {"accepted": 1}
    assert len(sent.body.proof) == 8 * N_PROOF
    assert await bodies(rounds) == [sent.body.values + sent.body.proof]


@pytest.mark.parametrize(
    ("code", "change"),
    [
        ("malformed", with_a_word_that_is_no_number),
        # What its sender has not signed for is seen before how long it is.
        ("misplaced", lambda _: b""),
        ("misplaced", without_its_last_word),
        ("misplaced", with_a_word_more),
        ("misplaced", altered),
    ],
)
async def test_a_proof_that_is_not_the_signed_one_is_refused(rounds, code, change) -> None:
    """Its client has spent nothing that counts; the others' updates count, and its own does, sent as it was made."""
    hostile, *others = rounds.clients
    sent = rounds.update(hostile)
    body = sent.body.model_copy(update={"proof": change(sent.body.proof)})
    rounds.served.receive(rounds.device(hostile), ClientTopic.UPDATES, sent.model_copy(update={"body": body}))
    await rounds.send_all(others[:2])
    assert rounds.served.receipts.codes() == {code: 1, "accepted": 2}
    assert rounds.served.actor.state.members.counted_through(hostile.name) == 0
    rounds.served.receive(rounds.device(hostile), ClientTopic.UPDATES, sent)
    await rounds.served.turn()
    assert rounds.served.receipts.codes() == {code: 1, "accepted": 3}


async def test_another_clients_proof_is_not_ones_own(rounds) -> None:
    """It is behind other masks, and the ticket is not for it."""
    first, second, *_ = rounds.clients
    stolen, sent = rounds.update(first).body.proof, rounds.update(second)
    body = sent.body.model_copy(update={"proof": stolen})
    rounds.served.receive(rounds.device(second), ClientTopic.UPDATES, sent.model_copy(update={"body": body}))
    await rounds.served.turn()
    assert rounds.served.receipts.codes() == {"misplaced": 1}


@pytest.mark.parametrize("proofs", [False, True])
async def test_what_was_made_under_the_policy_before_is_refused_in_a_round_of_the_newer_one(secure, proofs) -> None:
    """With a proof where none is asked for any more, and without one where it is."""
    rounds = await secure(4, proofs=proofs)
    older = rounds.federation.policy
    rounds.publish(rounds.federation.issue(version=2, proofs=not proofs, n_interactions=1, n_max=100, **QUIET))
    rounds.served.clock.at += 60.0
    await rounds.served.turn()
    assert rounds.number == 2
    rounds.send(rounds.clients[0], policy=older)
    rounds.send(rounds.clients[1])
    await rounds.served.turn()
    assert rounds.served.receipts.codes() == {"misplaced": 1, "accepted": 1}
    assert [len(body) for body in await bodies(rounds)] == [8 * (3 if proofs else 3 + N_PROOF)]
