"""Rounds whose updates prove their norms: who lies is out, alone, and where most fail nobody is blamed."""

import numpy as np
import pytest
from sqlalchemy import delete, select, update
from support.norm_proof_rounds import SHAPE, TOO_LONG, alter, faults, lie, mean_of, model_of, refused, started
from support.secure_federation import QUIET

from foltr.core.aggregation.rule_spec import read_rule
from foltr.core.errors import DataError, SettingsError
from foltr.core.protocol.states import AbandonReason, RoundState
from foltr.core.protocol.topics import ClientTopic
from foltr.core.secure.message_proof import MessageShape
from foltr.core.secure.norm_proof import prove_norm
from foltr.core.secure.sealing import SealingKey
from foltr.federator.summing import proof_checks
from foltr.federator.summing.verdicts import CheckProofs
from foltr.storage.body_tables import update_bodies
from foltr.storage.queries import list_events
from foltr.storage.rounds import stream_updates
from foltr.storage.sums import load_sums, load_tickets
from foltr.storage.tables import updates


async def test_whoever_keeps_the_bound_is_in_the_sum(secure) -> None:
    """Also one whose vector is exactly as long as it may be; of nobody anything failed."""
    rounds = await started(secure)
    rounds.send(rounds.clients[0], vector=[256, 0, 0])
    sent = rounds.update(rounds.clients[1])
    rounds.served.receive(rounds.device(rounds.clients[1]), ClientTopic.UPDATES, sent)
    await rounds.served.turn()
    stored = [row.body async for row in stream_updates(rounds.served.db, "mail", 1) if row.client_id == "device-1"]
    assert stored == [sent.body.values + sent.body.proof], "what deletes or seals the one does so with the other"
    await rounds.send_all(rounds.clients[2:])
    row = await rounds.until_closed()
    assert (row.state, row.n_updates) == (RoundState.COMPLETED, 5), row.reason
    np.testing.assert_allclose(await model_of(rounds), mean_of(rounds, rounds.clients), atol=0.05)
    (sums,) = await load_sums(rounds.served.db, "mail", 1)
    assert (sums.n_clients, sums.n_norm_proofs_failed) == (5, 0)


@pytest.mark.parametrize("factor", [257 / 256, pytest.param(50, marks=pytest.mark.nightly)])
async def test_a_device_that_sends_too_much_costs_only_itself(secure, factor) -> None:
    """Its participation is spent; the others' mean is theirs alone."""
    rounds = await started(secure)
    liar, *others = rounds.clients
    await rounds.send_all(others)
    lie(rounds, liar, np.array([int(256 * factor), 0, 0]))
    await rounds.served.turn()
    row = await rounds.until_closed()
    assert row.state is RoundState.COMPLETED, row.reason
    np.testing.assert_allclose(await model_of(rounds), mean_of(rounds, others), atol=0.05)
    assert await faults(rounds) == ["norm_proof_failed"]
    assert await refused(rounds) == [liar.name]
    (sums,) = await load_sums(rounds.served.db, "mail", 1)
    assert (sums.n_clients, sums.n_norm_proofs_failed) == (4, 1)
    assert rounds.served.actor.state.members.counted_through(liar.name) == 1


async def test_a_proof_of_an_earlier_round_is_found(secure) -> None:
    """The verdict is about the vector that was sent with it; what else is no proof is in tests/core/secure."""
    rounds = await started(secure)
    liar, *others = rounds.clients
    honest = np.array([3, -4, 5])
    proof = prove_norm(honest, SHAPE)
    for vector, expected in ((honest, []), (TOO_LONG, ["norm_proof_failed"])):
        number = rounds.number
        await rounds.send_all(others)
        rounds.send(liar, vector=vector, proof=proof)
        await rounds.served.turn()
        assert (await rounds.until_closed(number)).state is RoundState.COMPLETED
        assert await faults(rounds) == expected


@pytest.mark.parametrize("n_liars", [1, 2])
async def test_each_cohort_has_verdicts_of_its_own(secure, n_liars) -> None:
    """The median of three sums is that of the honest; a liar of one cohort costs the others nothing."""
    rounds = await started(secure, 24, n_min=2, cohorts=3, rounds={"rule": read_rule("median")})
    liars, others = rounds.clients[:n_liars], rounds.clients[n_liars:]
    for liar in liars:
        lie(rounds, liar)
    await rounds.send_all(others)
    assert (await rounds.until_closed()).state is RoundState.COMPLETED
    sums = await load_sums(rounds.served.db, "mail", 1)
    assert sum(each.n_norm_proofs_failed or 0 for each in sums) == n_liars
    terms = rounds.served.actor.state.current_round.terms
    cohorts = [[c for c in others if terms.cohort_of(1, c.name) == number] for number in range(3)]
    expected = np.median([mean_of(rounds, cohort) for cohort in cohorts], axis=0)
    np.testing.assert_allclose(await model_of(rounds), expected, atol=0.05)


async def test_where_most_proofs_fail_nobody_is_blamed(secure) -> None:
    """The round ends, nothing is released, and no device has a fault or an event."""
    rounds = await started(secure)
    for liar in rounds.clients[:3]:
        lie(rounds, liar)
    await rounds.send_all(rounds.clients[3:])
    row = await rounds.until_closed()
    assert (row.state, row.reason) == (RoundState.ABANDONED, AbandonReason.VERIFIERS_DISAGREE)
    assert (await faults(rounds), await refused(rounds)) == ([], [])
    assert await load_sums(rounds.served.db, "mail", 1) == []
    (event,) = await list_events(rounds.served.db, "mail", kind="round_abandoned")
    assert "3 of 5 norm proofs of cohort 0 fail" in event.detail


async def test_a_helper_that_never_answers_whole_ends_the_round_at_the_deadline(secure) -> None:
    """In words that name it."""
    rounds = await started(secure)
    alter(rounds, lambda _: b"")
    await rounds.send_all()
    for _ in range(12):
        await rounds.answer()
        rounds.served.clock.at += 8.0
        await rounds.served.turn()
    row = await rounds.until_closed()
    assert row.reason == AbandonReason.HELPERS_REFUSED
    (event,) = await list_events(rounds.served.db, "mail", kind="round_abandoned")
    assert event.detail == "south: its answer for a page of tickets is not whole"


async def test_a_helper_to_whom_the_verify_key_is_not_sealed_says_so(secure) -> None:
    """The round ends at once, and what to do is told."""
    rounds = await started(secure)
    proof = rounds.federation.issue(version=2).policy.norm_proof
    swapped = proof.model_copy(update={"helper_seals": proof.helper_seals[::-1]})
    rounds.publish(rounds.federation.issue(version=2, norm_proof=swapped, n_interactions=1, n_max=100, **QUIET))
    rounds.served.clock.at += 60.0
    await rounds.served.turn()
    await rounds.send_all()
    row = await rounds.until_closed(2)
    assert row.reason == AbandonReason.HELPERS_REFUSED
    (event,) = await list_events(rounds.served.db, "mail", kind="round_abandoned")
    assert "verify_key_sealed" in event.detail
    assert "`foltr policy new --helper" in event.detail


async def test_a_federator_without_the_verify_key_does_not_go_on(secure) -> None:
    """One that is started with other sealing keys while helpers are asked; with the right ones the round completes."""
    rounds = await started(secure)
    await rounds.send_all()
    right, rounds.federation.federator_sealing_key = rounds.federation.federator_sealing_key, SealingKey.generate()
    with pytest.raises(SettingsError, match="sealed to none of the keys"):
        await rounds.restart()
    rounds.federation.federator_sealing_key = right
    await rounds.restart()
    assert (await rounds.until_closed()).state is RoundState.COMPLETED


@pytest.mark.parametrize("gone", ["body", "row"])
async def test_what_is_stored_and_cannot_be_read_ends_the_round(secure, gone) -> None:
    """A federator that has lost what a device sent has no verdict on it, and blames nobody."""
    rounds = await started(secure)
    await rounds.send_all()
    async with rounds.served.db.transaction() as connection:
        first = updates.c.position == 0
        if gone == "body":
            of_client = update_bodies.c.client == select(updates.c.client).where(first).scalar_subquery()
            sealed = await connection.scalar(select(update_bodies.c.body).where(of_client))
            await connection.execute(update(update_bodies).where(of_client).values(body=bytes(len(sealed))))
        else:
            of_client = update_bodies.c.client == select(updates.c.client).where(first).scalar_subquery()
            await connection.execute(delete(update_bodies).where(of_client))
            await connection.execute(delete(updates).where(first))
    row = await rounds.until_closed()
    assert (row.reason, await faults(rounds)) == (AbandonReason.AGGREGATION_FAILED, [])
    (event,) = await list_events(rounds.served.db, "mail", kind="round_abandoned")
    assert ("cannot be opened" if gone == "body" else "4 of 5 masked vectors") in event.detail


async def test_a_vector_that_is_not_what_was_taken_is_no_failing_proof(secure) -> None:
    """It is this federator's fault, or its database's."""
    rounds = await started(secure)
    await rounds.send_all()
    (row, *_) = await load_tickets(rounds.served.db, "mail", 1)
    check = CheckProofs(0, (row,), (np.zeros(SHAPE.n_answer, np.uint64),))
    with pytest.raises(DataError, match="the vector at position 0 and its proofs cannot be read"):
        proof_checks.failing_proofs(check, {0: bytes(8)}, bytes(32), MessageShape(SHAPE))
