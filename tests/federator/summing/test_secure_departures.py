"""Federators that die, clients that leave and newer policies in the middle of a round with a secure sum."""

import numpy as np
import pytest
from support.helpers_by_hand import TOPICS
from support.norm_proof_rounds import forget, mean_of, model_of, order
from support.secure_federation import QUIET

from foltr.core.erasure.receipt import verify_receipt
from foltr.core.errors import DataError
from foltr.core.protocol.helper_messages import OpenRequest
from foltr.core.protocol.signed_policies import issue_policy
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.states import AbandonReason, RoundState
from foltr.federator.closing.collected_updates import load_recipes
from foltr.federator.closing.replay import replay_round
from foltr.federator.job import UnlearningPolicy
from foltr.storage.erasure.erasures import list_erasures
from foltr.storage.queries import list_events
from foltr.storage.rounds import find_round
from foltr.storage.sums import load_answers, load_sums


@pytest.mark.parametrize("n_answered", [0, 3, *(pytest.param(n, marks=pytest.mark.nightly) for n in (1, 2, 4))])
async def test_a_federator_that_starts_again_goes_on_in_every_state(secure, n_answered) -> None:
    """It repeats the checks, or uses the stored sets; in both cases it asks each helper for one set."""
    rounds = await secure(4)
    await rounds.send_all()
    asked = set()
    for _ in range(n_answered):
        asked |= _questions(rounds)
        await rounds.answer(without=["south"] if n_answered == 3 else ())
    await rounds.restart()
    for _ in range(6):
        asked |= _questions(rounds)
        await rounds.answer()
    assert len(asked) <= 1
    row = await find_round(rounds.served.db, "mail", 1)
    assert row.state is RoundState.COMPLETED
    np.testing.assert_allclose(await model_of(rounds), mean_of(rounds, rounds.clients), atol=0.05)
    assert rounds.number == 2


def _questions(rounds) -> set[bytes]:
    return {request.digest for request in rounds.served.requests.sent if isinstance(request, OpenRequest)}


async def test_an_answer_that_is_stored_is_not_asked_for_again(secure) -> None:
    """After a restart only the helper that has not answered is asked for its sum; all commit themselves again."""
    rounds = await secure()
    await rounds.send_all()
    await rounds.answer()
    await rounds.answer()
    await rounds.answer(without=["south"])
    assert rounds.state is RoundState.OPENING
    await rounds.restart()
    assert [(request.helper, request.commitments) for request in rounds.served.requests.sent] == [
        ("north", []),
        ("south", []),
    ]
    await rounds.answer()
    (asked,) = [request for request in rounds.served.requests.sent if request.commitments]
    assert asked.helper == "south"
    assert (await rounds.until_closed()).state is RoundState.COMPLETED


async def test_a_client_forgotten_while_sums_are_opened_ends_the_round(secure) -> None:
    """Of a set that helpers were asked for nobody can be taken: nothing is released of anybody."""
    rounds = await secure(4)
    await rounds.send_all()
    await rounds.answer()
    await rounds.answer(without=["south"])
    assert rounds.state is RoundState.OPENING
    await forget(rounds, rounds.clients[0])
    row = await find_round(rounds.served.db, "mail", 1)
    assert (row.state, row.reason) == (RoundState.ABANDONED, AbandonReason.CLIENT_WITHDRAWN)
    assert await load_sums(rounds.served.db, "mail", 1) == []
    await rounds.answer()  # what was on its way
    await rounds.send_all(rounds.clients[1:])
    rounds.served.clock.at += 60.0
    await rounds.served.turn()
    assert rounds.number == 3  # the second had three of the four clients it needs


async def test_a_client_forgotten_later_takes_the_model_back_to_before_it(secure) -> None:
    """Nothing is relearned, sums with it are deleted, and a replay of its round finds no difference."""
    at_once = UnlearningPolicy(every_s=0.0, swap_every_s=0.0)
    rounds = await secure(4, rounds={"min_clients": 3, "max_clients": 3}, plan={"unlearning": at_once})
    late, *early = rounds.clients
    models = []
    for number in (1, 2):
        await rounds.send_all(early)
        await rounds.until_closed(number)
        models.append(await model_of(rounds))
    await rounds.send_all([late, *early[:2]])
    await rounds.until_closed(3)
    await forget(rounds, late)
    for _ in range(5):
        rounds.served.clock.at += 10.0
        await rounds.served.turn()
    np.testing.assert_array_equal(await model_of(rounds), models[1])
    assert [each.masked_sum is None for n in (1, 2, 3) for each in await load_sums(rounds.served.db, "mail", n)] == [
        False,
        False,
        True,
    ]
    assert await load_answers(rounds.served.db, "mail", 3) == []
    assert await list_events(rounds.served.db, "mail", kind="unlearning_done")
    (erasure,) = await list_erasures(rounds.served.db, "mail")
    receipt = verify_receipt(erasure.receipt, rounds.federation.federator.public)
    assert (receipt.strategy, receipt.rounds_replayed, receipt.n_rounds) == ("rollback", 0, 1)
    with pytest.raises(DataError, match="erased clients were in it"):
        await replay_round(rounds.served.db, await load_recipes(rounds.served.db, "mail"), 3)


@pytest.mark.parametrize("kind", ["quarantine", "revoke", "forget"])
@pytest.mark.parametrize("n_answered", [0, 1])
async def test_a_client_that_goes_leaves_the_set_or_ends_the_round(secure, kind, n_answered) -> None:
    """While tickets are checked it leaves, and positions stay; once a sum was asked for the round ends."""
    rounds = await secure(4)
    await rounds.send_all()
    for _ in range(n_answered):
        await rounds.answer()
    if kind == "forget":
        await forget(rounds, rounds.clients[0])
    else:
        order(rounds, kind, rounds.clients[0].name)
        await rounds.served.turn()
    if n_answered:
        row = await find_round(rounds.served.db, "mail", 1)
        assert (row.state, row.reason) == (RoundState.ABANDONED, AbandonReason.CLIENT_WITHDRAWN)
        await rounds.restart()
        assert rounds.number == 2
    else:
        await rounds.restart()
        row = await rounds.until_closed()
        assert (row.state, row.n_updates) == (RoundState.COMPLETED, 3), row.reason
        np.testing.assert_allclose(await model_of(rounds), mean_of(rounds, rounds.clients[1:]), atol=0.05)


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("replayed", {"version": 1, "n_max": 50}),
        ("bad_signature", {"version": 2, "federation": "web"}),
        ("wrong_shape", {"version": 2, "n_min": 4}),
        ("bad_signature", {"version": 2}),
    ],
)
async def test_a_policy_that_is_older_or_does_not_fit_is_refused(secure, code, changes) -> None:
    """It is an event that says why; rounds go on under the one that is known."""
    rounds = await secure()
    policy = rounds.federation.issue(**{"n_min": 3, "n_interactions": 1} | QUIET | changes)
    signed = policy.signed
    if "federation" not in changes and code == "bad_signature":
        signed = issue_policy(SigningKey.generate(), policy.policy).signed
    rounds.hear(TOPICS.policy, signed)
    await rounds.served.turn()
    found = [event for event in await list_events(rounds.served.db, "mail") if event.kind == "policy_refused"]
    assert [event.code for event in found] == [code]
    assert rounds.served.actor.state.policy.hash == rounds.federation.policy.hash
