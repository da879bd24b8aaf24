"""Rounds with a secure sum, from the masked updates to the model, as the federator drives them."""

import numpy as np
import pytest
from sqlalchemy import select, update
from support.helpers_by_hand import TOPICS
from support.norm_proof_rounds import mean_of, model_of
from support.secure_federation import CLIP_NORM

from foltr.core.errors import DataError
from foltr.core.protocol.policies import GammaNoise
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.states import AbandonReason, RoundState
from foltr.core.protocol.updates import DenseDelta, MaskedVector
from foltr.core.secure.field import MODULUS
from foltr.federator.closing.collected_updates import load_recipes
from foltr.federator.closing.replay import replay_round
from foltr.storage.bodies import is_body_of
from foltr.storage.body_tables import update_bodies
from foltr.storage.queries import list_events
from foltr.storage.sum_tables import helper_answers
from foltr.storage.sums import load_answers, load_sums
from foltr.storage.tables import updates


async def stored_updates(rounds):
    async with rounds.served.db.reading() as connection:
        columns = update_bodies.c.body, update_bodies.c.ticket, updates.c.fault, updates.c.covers_through
        rows = select(*columns).join_from(updates, update_bodies, is_body_of(), isouter=True)
        return (await connection.execute(rows.order_by(updates.c.client))).all()


async def test_a_round_ends_in_the_mean_of_its_clients_with_the_noise_of_all_helpers(secure) -> None:
    """The federator has the sum alone: of the clients' vectors nothing is left in the database."""
    rounds = await secure(4)
    await rounds.send_all()
    assert rounds.state is RoundState.CHECKING
    assert rounds.served.receipts.codes() == {"accepted": 4}
    assert {request.epoch for request in rounds.served.requests.sent} == {0}, "in which the round was opened"
    row = await rounds.until_closed()
    assert (row.state, row.n_updates, row.clip_norm) == (RoundState.COMPLETED, 4, CLIP_NORM)
    # Noise of variance 2 in steps of a hundredth, over four clients.
    np.testing.assert_allclose(await model_of(rounds), mean_of(rounds, rounds.clients), atol=0.05)
    (sums,) = await load_sums(rounds.served.db, "mail", 1)
    assert (sums.n_clients, sums.n_tickets) == (4, 4)
    assert [row.helper for row in await load_answers(rounds.served.db, "mail", 1)] == ["north", "south"]
    assert all((row.body, row.ticket, row.fault) == (None, None, None) for row in await stored_updates(rounds))


async def test_round_after_round_the_participations_rise_and_may_leave_gaps(secure) -> None:
    """The watermark is the newest participation; one that is not above it is refused, and a gap is not."""
    rounds = await secure()
    await rounds.send_all()
    await rounds.until_closed(1)
    first, second, third = rounds.clients
    rounds.send(first, participation=7)
    rounds.send(second, participation=1)
    await rounds.served.turn()
    assert rounds.served.receipts.codes() == {"accepted": 4, "overlaps": 1}
    rounds.send(second)
    rounds.send(third)
    await rounds.served.turn()
    assert (await rounds.until_closed(2)).state is RoundState.COMPLETED
    members = rounds.served.actor.state.members
    assert [members.counted_through(client.name) for client in rounds.clients] == [7, 2, 2]


MOVED = [
    *({"round": 2}, {"cohort": 1}, {"policy_hash": bytes(32)}, {"update_id": "0" * 32}, {"digest": bytes(32)}),
    *({"seals": [bytes(80)] * 3}, {"participation": 2, "update": {"through": 1}}, {"participation": 21}),
]
REFUSED = [
    *(("misplaced", changes) for changes in MOVED),
    ("client_mismatch", {"client_id": "device-1"}),
    ("client_mismatch", {"federation": "web"}),
    ("bad_signature", {"signed_by": SigningKey.generate()}),
    ("wrong_shape", {"update": {"body": DenseDelta(dim=3, values=bytes(12))}}),
    ("wrong_shape", {"update": {"body": MaskedVector(dim=2, values=bytes(16), ticket=b"ticket")}}),
    *(
        ("malformed", {"update": {"body": MaskedVector(dim=3, ticket=b"ticket", **body)}})
        for body in (
            {"values": MODULUS.to_bytes(8, "little") * 3},
            {"values": bytes(24)},
            {"values": bytes(24), "proof": b"\xff" * 8},
        )
    ),
]


async def test_a_ticket_moved_to_another_place_and_what_is_no_masked_vector_are_refused_on_arrival(secure) -> None:
    """To another round, cohort, client, policy, update or vector: no helper has to be asked, and no cohort is lost."""
    rounds = await secure()
    for code, changes in REFUSED:
        rounds.send(rounds.clients[0], **changes)
        await rounds.served.turn()
        assert rounds.served.receipts.codes() == {code: 1}, changes
        rounds.served.receipts.sent.clear()
    stolen = rounds.update(rounds.clients[0]).body
    rounds.send(rounds.clients[1], update={"body": stolen})
    await rounds.served.turn()
    assert rounds.served.receipts.codes() == {"client_mismatch": 1}
    assert await stored_updates(rounds) == []


async def test_a_client_takes_part_in_one_round_of_its_period(secure) -> None:
    """Else it is answered ``not_selected``: a hostile one gains nothing by sending to all."""
    rounds = await secure(30, n_min=3, rounds={"min_clients": 3, "max_clients": 100}, period=2)
    terms = rounds.served.actor.state.current_round.terms
    turns = sum(terms.is_turn_of(1, client.name) for client in rounds.clients)
    await rounds.send_all()
    assert 3 <= turns < 30
    assert rounds.served.receipts.codes() == {"accepted": turns, "not_selected": 30 - turns}


async def test_a_seal_that_only_one_helper_can_open_costs_its_client_and_nobody_else(secure) -> None:
    """The client is out, and its participation spent; the round completes with the others."""
    rounds = await secure(4)
    bad = rounds.clients[2]
    others = [client for client in rounds.clients if client is not bad]
    await rounds.send_all(others)
    rounds.send(bad, spoiled=[1])
    await rounds.served.turn()
    row = await rounds.until_closed()
    assert row.state is RoundState.COMPLETED
    np.testing.assert_allclose(await model_of(rounds), mean_of(rounds, others), atol=0.05)
    assert sorted(str(row.fault) for row in await stored_updates(rounds)) == ["None", "None", "None", "not_opened"]
    assert len(await list_events(rounds.served.db, "mail", kind="ticket_refused")) == 1
    assert rounds.served.actor.state.members.counted_through(bad.name) == 1


async def test_fewer_than_n_min_after_the_check_release_nothing(secure) -> None:
    """Helpers took one of three out: the sum of two is asked of nobody."""
    rounds = await secure(3)
    rounds.helpers[0].has_counted(rounds.clients[0].name, 20)  # a device that lost its store, and has spent all
    await rounds.send_all()
    row = await rounds.until_closed()
    assert (row.state, row.reason) == (RoundState.ABANDONED, AbandonReason.COHORTS_TOO_SMALL)
    assert all(helper.store.newest_round() is None for helper in rounds.helpers)
    assert await load_sums(rounds.served.db, "mail", 1) == []
    assert all((row.body, row.ticket, row.covers_through) == (None, None, None) for row in await stored_updates(rounds))
    assert rounds.served.receipts.codes() == {"accepted": 3, "round_abandoned": 3}


async def test_what_no_helper_signed_is_no_answer(secure) -> None:
    """Junk, another's signature, another round's answer: the round waits on."""
    rounds = await secure()
    await rounds.send_all()
    (request, *_) = rounds.served.requests.sent
    helper = rounds.helpers[0]
    (genuine,) = helper.answer(request)
    genuine_of_south = rounds.helpers[1].answer(request.model_copy(update={"helper": "south"}))[0]
    forged = genuine_of_south[:-1] + bytes([genuine_of_south[-1] ^ 1])
    for payload in (b"junk", forged):
        rounds.hear(helper.topic, payload)
    rounds.hear(TOPICS.helper_answers("east"), genuine)
    await rounds.served.turn()
    assert rounds.state is RoundState.CHECKING
    assert (await rounds.until_closed()).state is RoundState.COMPLETED
    rounds.hear(helper.topic, genuine)  # late: nobody is asked any more
    await rounds.served.turn()
    assert (rounds.number, rounds.state) == (2, RoundState.COLLECTING)


async def test_devices_are_answered_while_helpers_are_asked(secure) -> None:
    """A join, and an update that comes too late: the writer waits for nobody."""
    rounds = await secure(4, rounds={"min_clients": 3, "max_clients": 3})
    await rounds.send_all(rounds.clients[:3])
    assert rounds.state is RoundState.CHECKING
    newcomer = rounds.federation.client("newcomer")
    rounds.served.receipts.sent.clear()
    await rounds.served.join([rounds.device(newcomer)])
    rounds.send(rounds.clients[3])
    await rounds.served.turn()
    assert rounds.served.receipts.codes() == {"late": 1}
    assert (await rounds.until_closed()).state is RoundState.COMPLETED


async def test_a_cohort_with_too_few_is_dropped_and_the_others_go_on(secure) -> None:
    """Its clients are in no sum; where the rule needs more sums than are left the round ends."""
    rounds = await secure(12, n_min=2, cohorts=3)
    terms = rounds.served.actor.state.current_round.terms
    in_first = [client for client in rounds.clients if terms.cohort_of(1, client.name) == 0]
    for client in in_first[1:]:
        rounds.helpers[1].has_counted(client.name, 20)
    await rounds.send_all()
    assert (await rounds.until_closed()).state is RoundState.COMPLETED
    assert [each.cohort for each in await load_sums(rounds.served.db, "mail", 1)] == [1, 2]


async def test_noise_by_clients_is_under_its_own_mechanism(secure) -> None:
    """The helpers add none; the sum is within the L1 bound and the noise of the clients."""
    noise = GammaNoise(scale=1, n_shares=3)
    rounds = await secure(4, epsilon=1e6, noise=noise)
    for client in rounds.clients:
        rounds.send(client, vector=[100, -100, 50])
    await rounds.served.turn()
    row = await rounds.until_closed()
    assert row.state is RoundState.COMPLETED
    # The clients of this test have drawn none: the sum is exact.
    np.testing.assert_allclose(await model_of(rounds), mean_of(rounds, rounds.clients), atol=1e-6)


async def test_a_round_is_replayed_from_its_sums_and_what_helpers_signed(secure) -> None:
    """To the same bits; an answer that is not signed by its helper is told."""
    rounds = await secure()
    await rounds.send_all()
    await rounds.until_closed()
    recipes = await load_recipes(rounds.served.db, "mail")
    replayed = await replay_round(rounds.served.db, recipes, 1)
    assert replayed.differs == ()
    (answer, _) = await load_answers(rounds.served.db, "mail", 1)
    forged = answer.answer[:-1] + bytes([answer.answer[-1] ^ 1])
    async with rounds.served.db.transaction() as connection:
        which = helper_answers.c.helper == answer.helper
        await connection.execute(update(helper_answers).where(which).values(answer=forged))
    with pytest.raises(DataError, match=r"cohort 0 of round 1"):
        await replay_round(rounds.served.db, recipes, 1)
