"""Rounds whose updates prove their norms: who lies is out, alone, and whoever dies or leaves changes no verdict."""

import asyncio
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from played_helpers import TOPICS, PlayedHelper
from secured import CLIP_NORM, QUIET
from sqlalchemy import delete, select, update

from federator.summing import proof_checks
from federator.summing.verdicts import CheckProofs
from foltr.aggregation.rule_spec import read_rule
from foltr.cli.history.rounds import standing_of
from foltr.cli.history.why import explain
from foltr.errors import DataError, SettingsError
from foltr.protocol.fields import unpack_vector
from foltr.protocol.helper_messages import CheckAnswer
from foltr.protocol.membership import Forget
from foltr.protocol.orders import QuarantineClient, RevokeClient
from foltr.protocol.policies import GammaNoise
from foltr.protocol.signed_orders import issue_order
from foltr.protocol.states import AbandonReason, RoundState
from foltr.protocol.topics import ClientTopic
from foltr.secure.field import MODULUS
from foltr.secure.norm_proof import proof_shape, prove_norm
from foltr.secure.sealing import SealingKey
from storage.models import latest_model
from storage.queries import list_events
from storage.sums import load_sums, load_tickets
from storage.tables import updates

SHAPE = proof_shape(3, 256)
TOO_LONG = np.array([256 * 50, 0, 0])


async def started(secure, n_clients=5, **changed):
    """A federation whose updates prove their norms."""
    return await secure(n_clients, proofs=True, **changed)


def forged(vector):
    """What a device sends as the proof of a vector that is too long: that of another one, put right where it can be."""
    return prove_norm(np.clip(vector, -100, 100), SHAPE)


def lie(rounds, client, vector=TOO_LONG, **changed) -> None:
    rounds.send(client, vector=vector, proof=forged(vector), **changed)


async def model_of(rounds) -> np.ndarray:
    model = await latest_model(rounds.served.db, "mail")
    return unpack_vector(model.weights).astype(np.float64)


def mean_of(rounds, clients) -> np.ndarray:
    return sum(rounds.sent[client.name].vector for client in clients) * (CLIP_NORM / 256 / len(clients))


async def faults(rounds) -> list[str]:
    async with rounds.served.db.reading() as connection:
        found = await connection.scalars(select(updates.c.fault).where(updates.c.fault.is_not(None)))
        return sorted(map(str, found))


async def refused(rounds) -> list[str | None]:
    """Of whom an event tells that it was taken out."""
    events = await list_events(rounds.served.db, "mail")
    return [event.client_id for event in events if event.kind == "ticket_refused"]


@dataclass
class AlteringHelper(PlayedHelper):
    """A helper whose answers for pages are altered on their way; ``n_left`` of them, then none."""

    change: Callable[[CheckAnswer], CheckAnswer] = lambda answer: answer
    n_left: float = math.inf

    def _check(self, request, terms):
        answer = super()._check(request, terms)
        if not isinstance(answer, CheckAnswer) or self.n_left <= 0:
            return answer
        self.n_left -= 1
        return self.change(answer)


def alter(rounds, change, n_left=math.inf) -> None:
    """Have the second helper's answers altered."""
    rounds.helpers[1] = AlteringHelper(**vars(rounds.helpers[1]), change=change, n_left=n_left)


# --- who lies ------------------------------------------------------------------------------------------------


async def test_whoever_keeps_the_bound_is_in_the_sum(secure) -> None:
    """Also one whose vector is exactly as long as it may be; of nobody anything failed."""
    rounds = await started(secure)
    rounds.send(rounds.clients[0], vector=[256, 0, 0])
    await rounds.send_all(rounds.clients[1:])
    row = await rounds.until_closed()
    assert (row.state, row.n_updates) == (RoundState.COMPLETED, 5), row.reason
    np.testing.assert_allclose(await model_of(rounds), mean_of(rounds, rounds.clients), atol=0.05)
    (sums,) = await load_sums(rounds.served.db, "mail", 1)
    assert (sums.n_clients, sums.n_norm_proofs_failed) == (5, 0)


@pytest.mark.parametrize("factor", [257 / 256, 2, 50])
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


@pytest.mark.parametrize("proof", ["zeros", "random", "another's", "one more", "of an earlier round"])
async def test_a_proof_that_is_none_is_found(secure, proof) -> None:
    """Whatever stands where the proof should be, the verdict is about the vector that was sent with it."""
    rounds = await started(secure)
    liar, *others = rounds.clients
    honest = np.array([3, -4, 5])
    first = prove_norm(honest, SHAPE)
    made = {
        "zeros": np.zeros_like(first),
        "random": np.random.default_rng(1).integers(0, MODULUS, first.size, np.uint64),
        "another's": prove_norm(np.array([3, -4, 6]), SHAPE),
        "one more": first + (np.arange(first.size) == first.size - 1).astype(np.uint64),
        "of an earlier round": first,
    }[proof]
    vector = TOO_LONG if proof == "of an earlier round" else honest
    if proof == "of an earlier round":
        await rounds.send_all(others)
        rounds.send(liar, vector=honest, proof=first)
        await rounds.served.turn()
        await rounds.until_closed(1)
        assert await faults(rounds) == []
    number = rounds.number
    await rounds.send_all(others)
    rounds.send(liar, vector=vector, proof=made)
    await rounds.served.turn()
    assert (await rounds.until_closed(number)).state is RoundState.COMPLETED
    assert await faults(rounds) == ["norm_proof_failed"]


async def test_a_coordinate_that_wraps_around_is_found(secure) -> None:
    """Its square is small modulo p: the equation holds, and the projections do not."""
    rounds = await started(secure)
    liar, *others = rounds.clients
    await rounds.send_all(others)
    proof = prove_norm(np.array([1, 0, 0]), SHAPE)
    rounds.send(liar, vector=[MODULUS // 2, 0, 0], proof=proof)
    await rounds.served.turn()
    assert (await rounds.until_closed()).state is RoundState.COMPLETED
    assert await faults(rounds) == ["norm_proof_failed"]


@pytest.mark.parametrize("n_liars", [1, 2])
async def test_each_cohort_has_verdicts_of_its_own(secure, n_liars) -> None:
    """The median of three sums is that of the honest; a liar of one cohort costs the others nothing."""
    plan = {"min_clients": 30, "max_clients": 30, "rule": read_rule("median")}
    rounds = await started(secure, 30, n_min=2, cohorts=3, rounds=plan)
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


async def test_laplace_noise_goes_with_proofs(secure) -> None:
    """The mechanism is another, and the proof the same."""
    rounds = await started(secure, epsilon=1e6, noise=GammaNoise(scale=1))
    lie(rounds, rounds.clients[0])
    await rounds.send_all(rounds.clients[1:])
    assert (await rounds.until_closed()).state is RoundState.COMPLETED
    assert await faults(rounds) == ["norm_proof_failed"]


# --- verifiers that differ -----------------------------------------------------------------------------------


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


async def test_half_of_the_proofs_may_fail(secure) -> None:
    """More than half is too much; here the honest half is summed."""
    rounds = await started(secure, 6)
    for liar in rounds.clients[:3]:
        lie(rounds, liar)
    await rounds.send_all(rounds.clients[3:])
    assert (await rounds.until_closed()).state is RoundState.COMPLETED
    assert await faults(rounds) == ["norm_proof_failed"] * 3


async def test_a_helper_that_lies_breaks_the_round_and_blames_nobody(secure) -> None:
    """It can make every proof fail: that is robustness, not privacy."""

    rounds = await started(secure)
    alter(rounds, lambda answer: answer.model_copy(update={"proofs": bytes(len(answer.proofs))}))
    await rounds.send_all()
    row = await rounds.until_closed()
    assert (row.reason, await faults(rounds)) == (AbandonReason.VERIFIERS_DISAGREE, [])


@pytest.mark.parametrize(
    "change",
    [
        lambda _: b"",
        lambda proofs: proofs[:-8],
        lambda proofs: proofs[:-1],
        lambda proofs: proofs + bytes(8),
        lambda proofs: proofs[:-8] + MODULUS.to_bytes(8, "little"),
    ],
    ids=["missing", "short", "no whole words", "long", "no number"],
)
async def test_an_answer_that_is_not_whole_is_asked_for_again(secure, change) -> None:
    """As if it had not come: the next one counts, and nobody is out for it."""
    rounds = await started(secure)
    alter(rounds, lambda answer: answer.model_copy(update={"proofs": change(answer.proofs)}), n_left=2)
    await rounds.send_all()
    await rounds.answer()
    assert rounds.state is RoundState.CHECKING
    for _ in range(2):
        rounds.served.clock.at += 8.0
        await rounds.served.turn()
        await rounds.answer()
    assert (await rounds.until_closed()).state is RoundState.COMPLETED
    assert await faults(rounds) == []


async def test_a_helper_that_never_answers_whole_ends_the_round_at_the_deadline(secure) -> None:
    """In words that name it."""
    rounds = await started(secure)
    alter(rounds, lambda answer: answer.model_copy(update={"proofs": b""}))
    await rounds.send_all()
    for _ in range(12):
        await rounds.answer()
        rounds.served.clock.at += 8.0
        await rounds.served.turn()
    row = await rounds.until_closed()
    assert row.reason == AbandonReason.HELPERS_REFUSED
    (event,) = await list_events(rounds.served.db, "mail", kind="round_abandoned")
    assert event.detail == "south: its answer for a page of tickets is not whole"


async def test_proofs_of_another_page_fail_and_blame_nobody(secure) -> None:
    """A helper that mixes up its answers is as one that lies."""
    rounds = await started(secure, 5)

    def turned(answer):
        size = len(answer.proofs) // 5
        return answer.model_copy(update={"proofs": answer.proofs[size:] + answer.proofs[:size]})

    alter(rounds, turned)
    await rounds.send_all()
    row = await rounds.until_closed()
    assert (row.reason, await faults(rounds)) == (AbandonReason.VERIFIERS_DISAGREE, [])


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
    assert "`foltr policy new`" in event.detail


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
            sealed = await connection.scalar(select(updates.c.body).where(first))
            await connection.execute(update(updates).where(first).values(body=bytes(len(sealed))))
        else:
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
    with pytest.raises(DataError, match="the vector of device-0 and its norm proof cannot be read"):
        proof_checks.failing_proofs(check, {0: bytes(8)}, bytes(32), SHAPE)


# --- the pause after it --------------------------------------------------------------------------------------


class Heard:
    """What devices hear of rounds."""

    def __init__(self) -> None:
        self.open: dict[int, bool] = {}

    def announce(self, _model, announced) -> None:
        self.open[announced.round] = announced.open


async def disagreed(secure, **changed):
    """A federation in which most proofs fail as long as its second helper lies, and what devices hear."""
    rounds = await started(secure, **changed)
    alter(rounds, lambda answer: answer.model_copy(update={"proofs": bytes(len(answer.proofs))}))
    heard = Heard()
    rounds.served.actor.attach(heard)
    await rounds.send_all()
    await rounds.until_closed()
    return rounds, heard


async def pass_s(rounds, seconds) -> None:
    rounds.served.clock.at += seconds
    await rounds.served.turn()
    await rounds.served.turn()


async def test_rounds_after_a_disagreement_are_held_back_for_ever_longer(secure) -> None:
    """A minute, then two, four: each would cost each device a participation. A round that is completed ends that."""
    rounds, heard = await disagreed(secure, rounds={"max_time_s": 10_000.0})
    for number, minutes in ((2, 1), (3, 2), (4, 4)):
        assert not heard.open[number]
        await pass_s(rounds, 60.0 * minutes - 1.0)
        assert not heard.open[number]
        if number == 4:
            rounds.helpers[1].n_left = 0
        await pass_s(rounds, 1.0)
        assert heard.open[number]
        await rounds.send_all()
        await rounds.until_closed(number)
    assert heard.open[5]


async def test_it_is_told_for_how_long_a_round_is_held_back(secure) -> None:
    """``foltr rounds why`` reads it from the database."""
    rounds = await started(secure)
    alter(rounds, lambda answer: answer.model_copy(update={"proofs": bytes(len(answer.proofs))}))
    await rounds.send_all()
    rounds.served.clock.at = time.time()
    await rounds.restart()
    await rounds.until_closed()
    standing = await standing_of(rounds.served.db, "mail")
    assert standing.n_disagreed == 1
    assert standing.held_until is not None
    assert 30 < (standing.held_until - standing.at).total_seconds() <= 60
    assert "ended as verifiers_disagree" in " ".join(explain(standing))


async def test_a_federator_that_starts_again_holds_back_as_long(secure) -> None:
    """It is stored how rounds have ended; also rounds that nobody heard of are passed over."""
    rounds, _ = await disagreed(secure, rounds={"max_time_s": 10.0})
    await pass_s(rounds, 30.0)
    assert rounds.number > 2
    await rounds.restart()
    heard = Heard()
    rounds.served.actor.attach(heard)
    await rounds.served.turn()
    assert not heard.open[rounds.number]
    await pass_s(rounds, 31.0)
    assert heard.open[rounds.number]


async def test_a_newer_policy_is_held_back_by_nothing(secure) -> None:
    """Its helpers may be others."""
    rounds, heard = await disagreed(secure, rounds={"max_time_s": 10.0})
    rounds.publish(rounds.federation.issue(version=2, n_interactions=1, n_max=100, **QUIET))
    await pass_s(rounds, 0.0)
    assert not heard.open[2]
    await pass_s(rounds, 10.0)
    assert heard.open[3]


# --- whoever dies or leaves meanwhile ------------------------------------------------------------------------


@pytest.mark.parametrize("n_answered", [0, 1, 2])
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


async def test_another_split_of_pages_is_the_same_answer(secure) -> None:
    """A client between the others leaves, and the helper that has not answered is shown two pages."""
    rounds = await started(secure, 6)
    liar, *others = rounds.clients
    lie(rounds, liar)
    await rounds.send_all(others)
    await rounds.answer(without=["south"])
    await forget(rounds, others[2])
    rounds.served.clock.at += 10.0
    assert (await rounds.until_closed()).state is RoundState.COMPLETED
    assert await faults(rounds) == ["norm_proof_failed"]
    left = [client for client in others if client is not others[2]]
    np.testing.assert_allclose(await model_of(rounds), mean_of(rounds, left), atol=0.05)


async def forget(rounds, client) -> None:
    wish = Forget(federation="mail", client_id=client.name)
    rounds.served.receive(rounds.device(client), ClientTopic.FORGET, wish)
    await rounds.served.turn()
    rounds.served.clock.at += 1.0
    await rounds.served.turn()


def order(rounds, kind, client_id) -> None:
    made = (
        QuarantineClient(federation="mail", client_id=client_id, reason="it lies")
        if kind == "quarantine"
        else RevokeClient(federation="mail", client_id=client_id, void_below=99)
    )
    rounds.hear(TOPICS.operator, issue_order(rounds.federation.operator, made, 1).payload)


@pytest.fixture
def stuck(monkeypatch):
    """Keeps proofs from being checked until it is set."""
    go_on, checked = threading.Event(), proof_checks.failing_proofs

    def waiting(*args):
        go_on.wait(20)
        return checked(*args)

    monkeypatch.setattr(proof_checks, "failing_proofs", waiting)
    yield go_on
    go_on.set()


@pytest.mark.parametrize("lies", [True, False])
@pytest.mark.parametrize("how", ["forget", "quarantine", "revoke"])
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


@pytest.mark.parametrize("how", ["forget", "revoke"])
async def test_a_client_that_goes_after_its_verdict_takes_it_along(secure, how) -> None:
    """The other helper of another cohort is awaited still."""
    rounds = await started(secure, 30, n_min=2, cohorts=2, rounds={"min_clients": 30, "max_clients": 30})
    gone, *others = rounds.clients
    lie(rounds, gone)
    await rounds.send_all(others)
    terms = rounds.served.actor.state.current_round.terms
    cohort = terms.cohort_of(1, gone.name)
    requests = rounds.served.requests.take()
    for request in requests:
        if request.cohort == cohort:
            (helper,) = [each for each in rounds.helpers if each.pair.name == request.helper]
            for payload in helper.answer(request):
                rounds.hear(helper.topic, payload)
    for _ in range(100):
        await rounds.served.turn()
        await asyncio.sleep(0.002)
    if how == "forget":
        await forget(rounds, gone)
    else:
        order(rounds, how, gone.name)
    rounds.served.clock.at += 10.0
    await rounds.served.turn()
    row = await rounds.until_closed()
    assert row.state is RoundState.COMPLETED, row.reason
    assert (await faults(rounds), await refused(rounds)) == ([], [])
    sums = await load_sums(rounds.served.db, "mail", 1)
    assert [each.n_norm_proofs_failed for each in sums] == [0, 0]


async def test_devices_are_answered_while_proofs_are_checked(secure, stuck) -> None:
    """A join, say: the writer waits for no proof."""
    rounds = await started(secure)
    await rounds.send_all()
    await rounds.answer()
    rounds.served.receipts.sent.clear()
    await rounds.served.join([rounds.device(rounds.federation.client("newcomer"))])
    assert rounds.state is RoundState.CHECKING
    stuck.set()
    assert (await rounds.until_closed()).state is RoundState.COMPLETED


async def test_a_round_that_ends_while_proofs_are_checked_leaves_nothing_behind(secure, stuck) -> None:
    """What was being found out is nothing to the next round."""
    rounds = await started(secure, 3)
    await rounds.send_all()
    await rounds.answer()
    for client in rounds.clients[:1]:
        await forget(rounds, client)
    stuck.set()
    assert (await rounds.until_closed()).reason == AbandonReason.COHORTS_TOO_SMALL


async def test_under_a_policy_without_proofs_nothing_is_checked_or_said(secure) -> None:
    """And under the next one with proofs it is."""
    rounds = await secure(4)
    rounds.publish(rounds.federation.issue(version=2, proofs=True, n_interactions=1, n_max=100, **QUIET))
    await rounds.served.turn()
    await rounds.send_all()
    await rounds.until_closed(1)
    liar, *others = rounds.clients
    lie(rounds, liar)
    await rounds.send_all(others)
    assert (await rounds.until_closed(2)).state is RoundState.COMPLETED
    found = [await load_sums(rounds.served.db, "mail", number) for number in (1, 2)]
    assert [sums[0].n_norm_proofs_failed for sums in found] == [None, 1]
