"""Whoever dies, leaves or comes meanwhile changes no verdict on a norm proof, and nobody waits for one."""

import asyncio
import threading

import numpy as np
import pytest
from support.norm_proof_rounds import faults, forget, lie, mean_of, model_of, order, refused, started
from support.secure_federation import PAUSE_S
from support.waiting import PATIENCE_S, until

from foltr.core.protocol.states import AbandonReason, RoundState
from foltr.federator.summing import proof_checks
from foltr.storage.erasure.erasures import list_erasures
from foltr.storage.errors import WriterFencedError
from foltr.storage.sums import load_sums


@pytest.mark.parametrize("n_answered", [1, *(pytest.param(n, marks=pytest.mark.nightly) for n in (0, 2))])
async def test_a_federator_that_starts_again_comes_to_the_same_verdicts(secure, n_answered) -> None:
    """Before a helper has answered, between the two, and while it finds out itself."""
    rounds = await started(secure)
    liar, *others = rounds.clients
    await rounds.send_all(others)
    lie(rounds, liar)
    await rounds.served.turn()
    for without in (["north", "south"], ["south"], [])[n_answered : n_answered + 1]:
        await rounds.answer(without=without)
    assert rounds.state is RoundState.CHECKING
    await rounds.restart()
    assert (await rounds.until_closed()).state is RoundState.COMPLETED
    assert (await faults(rounds), await refused(rounds)) == (["norm_proof_failed"], [liar.name])
    np.testing.assert_allclose(await model_of(rounds), mean_of(rounds, others), atol=0.05)


class Stuck(threading.Event):
    """Keeps threads waiting until it is set, and counts those that have ended."""

    n_ended = 0


@pytest.fixture
def stuck(monkeypatch):
    """Keeps proofs from being checked until it is set."""
    go_on, checked = Stuck(), proof_checks.failing_proofs

    def waiting(*args):
        go_on.wait(PATIENCE_S)
        try:
            return checked(*args)
        finally:
            go_on.n_ended += 1

    monkeypatch.setattr(proof_checks, "failing_proofs", waiting)
    yield go_on
    go_on.set()


@pytest.mark.parametrize(("how", "lies"), [("forget", True), ("quarantine", False), ("revoke", True)])
async def test_a_client_that_goes_while_its_proof_is_checked_has_no_verdict(secure, stuck, how, lies) -> None:
    """It is in no sum, nothing is told of it, and the others' verdicts are theirs."""
    rounds = await started(secure, 6)
    gone, liar, *others = rounds.clients
    lie(rounds, liar)
    lie(rounds, gone) if lies else rounds.send(gone)
    await rounds.send_all(others)
    await rounds.answer()
    if how == "forget":
        await forget(rounds, gone)
    else:
        order(rounds, how, gone.name)
        await rounds.served.turn()
    stuck.set()
    row = await rounds.until_closed()
    assert (row.state, row.n_updates) == (RoundState.COMPLETED, 5), row.reason
    assert (await faults(rounds), await refused(rounds)) == (["norm_proof_failed"], [liar.name])
    np.testing.assert_allclose(await model_of(rounds), mean_of(rounds, others), atol=0.05)


async def started_in_two_cohorts(secure):
    """A federation of which the first client has lied, with the number of that client's cohort."""
    rounds = await started(secure, 12, n_min=2, cohorts=2)
    lie(rounds, rounds.clients[0])
    await rounds.send_all(rounds.clients[1:])
    return rounds, rounds.served.actor.state.current_round.terms.cohort_of(1, rounds.clients[0].name)


@pytest.mark.parametrize(("how", "restarts"), [("quarantine", False), ("revoke", True)])
async def test_an_operator_who_keeps_out_a_liar_ends_no_round(secure, how, restarts) -> None:
    """It does so as soon as it reads who was taken out: the sum is being opened then, and the liar is not in it."""
    rounds = await started(secure)
    liar, *others = rounds.clients
    lie(rounds, liar)
    await rounds.send_all(others)
    await rounds.until(RoundState.OPENING)
    if restarts:
        await rounds.restart()
    order(rounds, how, liar.name)
    await rounds.served.turn()
    row = await rounds.until_closed()
    assert row.state is RoundState.COMPLETED, row.reason
    assert (await faults(rounds), await refused(rounds)) == (["norm_proof_failed"], [liar.name])
    np.testing.assert_allclose(await model_of(rounds), mean_of(rounds, others), atol=0.05)


async def test_a_round_that_ends_while_proofs_are_checked_leaves_nothing_behind(secure, stuck) -> None:
    """Helpers say nothing of the other cohort. What is found out afterwards is nothing to the next round's proofs."""
    rounds, cohort = await started_in_two_cohorts(secure)
    await rounds.answer(cohort=cohort)
    rounds.served.clock.at += 60.0
    await rounds.served.turn()
    assert (await rounds.until_closed()).reason == AbandonReason.HELPERS_SILENT
    stuck.set()
    await until(lambda: stuck.n_ended == 1)
    await rounds.send_all()
    assert (await rounds.until_closed(2)).state is RoundState.COMPLETED
    assert [each.n_norm_proofs_failed for each in await load_sums(rounds.served.db, "mail", 2)] == [0, 0]
    assert await faults(rounds) == []


async def test_a_federator_that_was_replaced_while_it_checked_stores_nothing(secure, stuck) -> None:
    """The other one comes to the same verdicts by itself."""
    rounds = await started(secure)
    liar, *others = rounds.clients
    lie(rounds, liar)
    await rounds.send_all(others)
    await rounds.answer()
    former = rounds.served
    await rounds.restart()
    stuck.set()

    async def go_on() -> None:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                await former.turn()
                await asyncio.sleep(PAUSE_S)

    with pytest.raises(WriterFencedError):
        await go_on()
    assert (await rounds.until_closed()).state is RoundState.COMPLETED
    assert (await faults(rounds), await refused(rounds)) == (["norm_proof_failed"], [liar.name])


@pytest.mark.parametrize("lies", [True, False])
async def test_an_erasure_afterwards_is_of_the_model_only_where_the_client_is_in_it(secure, lies) -> None:
    """Who was left out is in no sum: its erasure takes nothing back."""
    rounds = await started(secure, 6)
    first, *others = rounds.clients
    lie(rounds, first) if lies else rounds.send(first)
    await rounds.send_all(others)
    await rounds.until_closed()
    await forget(rounds, first)
    (sums,) = await load_sums(rounds.served.db, "mail", 1)
    assert (sums.masked_sum is None) is not lies
    (erasure,) = await list_erasures(rounds.served.db, "mail")
    assert erasure.n_rounds == (0 if lies else 1)


async def test_a_helper_that_has_lost_what_it_checked_is_shown_it_again_and_nothing_is_checked_anew(
    secure, monkeypatch
) -> None:
    """The set is fixed: what it says of proofs then is what it said, and is for nobody."""
    checked = []
    whole = proof_checks.failing_proofs

    def noted(check, *args):
        checked.extend(row.position for row in check.rows)
        return whole(check, *args)

    monkeypatch.setattr(proof_checks, "failing_proofs", noted)
    rounds = await started(secure)
    liar, *others = rounds.clients
    lie(rounds, liar)
    await rounds.send_all(others)
    await rounds.until(RoundState.OPENING)
    rounds.helpers[1].lose_tickets()
    rounds.served.clock.at += 8.0
    await rounds.served.turn()
    assert (await rounds.until_closed()).state is RoundState.COMPLETED
    assert sorted(checked) == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(await model_of(rounds), mean_of(rounds, others), atol=0.05)
