"""What is stored of secure sums."""

import hashlib

import pytest
from sqlalchemy import select

from foltr.core.protocol.helper_messages import TicketFault
from foltr.core.protocol.states import PAUSING, AbandonReason, RoundState
from foltr.storage.bodies import is_body_of
from foltr.storage.body_tables import update_bodies
from foltr.storage.policies import load_policies
from foltr.storage.queries import list_events
from foltr.storage.records import Batch, MembershipChange, NewEvent, NewModel
from foltr.storage.rounds import find_round
from foltr.storage.sum_records import NewAnswer, NewSet, PolicyRecord
from foltr.storage.tables import clients, updates

from .conftest import Stored, at


def policy(version: int, signed: bytes = b"signed") -> PolicyRecord:
    return PolicyRecord(hashlib.sha256(signed).digest(), version, signed, at(0))


async def test_policies_are_kept_by_version(stored) -> None:
    """One that the federator was started with, and one that came since; the same again changes nothing."""
    for _ in range(2):
        await stored.adopt_policy(policy(1))
    await stored.commit(Batch(policy=policy(2, b"newer")))
    assert [(row.version, row.signed) for row in await stored.load_policies()] == [(1, b"signed"), (2, b"newer")]
    assert await load_policies(stored.db, "mail") == []
    # An operator's folder that was restored could issue another one under its number.
    async with stored.refuses(match="another policy with version 1"):
        await stored.adopt_policy(policy(1, b"other"))


async def test_the_enrolment_that_a_client_joined_with_is_kept(stored) -> None:
    """Helpers are shown it; the newest replaces the one before."""
    for enrolment in (b"first", b"second"):
        change = MembershipChange("a", "joined", at(0), enrolment=enrolment)
        await stored.commit(Batch(membership=[change]))
        assert await stored.read(select(clients.c.enrolment)) == [(enrolment,)]


WORDS = b"\1" * 24


@pytest.fixture
async def summed(stored) -> Stored:
    """A round with three masked updates that has stopped collecting."""
    await stored.join("a", "b", "c")
    await stored.adopt_policy(policy(1))
    await stored.open(1, policy_hash=policy(1).hash, clip_norm=1.0)
    masked = {"encoding": "masked_u64", "body": WORDS, "n_interactions": 1, "cohort": 0}
    sent = [stored.update(name, position=i, ticket=name.encode(), **masked) for i, name in enumerate("cab")]
    await stored.commit(Batch(updates=sent, stop_collecting=1))
    return stored


async def open_sets(summed, digest: bytes = bytes(32)) -> None:
    await summed.begin_opening(1, [NewSet(0, 3, 2, b"\xc0", digest)], {"b": TicketFault.NOT_OPENED})


async def answer(summed, helper: str, digest: bytes = bytes(32)) -> None:
    answers = [NewAnswer(0, helper, start, digest, f"{helper} {start}".encode()) for start in (0, 2)]
    await summed.store_answers(1, answers)


async def state_of(summed) -> RoundState:
    return (await find_round(summed.db, "web", 1)).state


async def masked_bodies(summed) -> list[tuple[bytes]]:
    return await summed.read(select(update_bodies.c.body))


async def test_tickets_have_positions_in_the_order_in_which_they_came(summed) -> None:
    """With the enrolment of each client; the round is checking once it stops collecting."""
    assert await state_of(summed) is RoundState.CHECKING
    tickets = await summed.load_tickets(1)
    found = [(row.client_id, row.position, row.ticket) for row in tickets]
    assert found == [("c", 0, b"c"), ("a", 1, b"a"), ("b", 2, b"b")]


async def test_a_round_goes_from_the_sets_to_the_sums(summed) -> None:
    """Each step may be offered twice; the masked vectors are there until the round is closed."""
    for _ in range(2):
        await open_sets(summed)
    assert await state_of(summed) is RoundState.OPENING
    for helper in ("ada", "bob", "ada"):
        await answer(summed, helper)
    assert await summed.answered_sets(1) == {("ada", 0), ("bob", 0)}
    for _ in range(2):
        await summed.begin_summing(1, {0: WORDS}, 2)
    assert await state_of(summed) is RoundState.AGGREGATING
    (row,) = await summed.load_sums(1)
    assert (row.n_tickets, row.n_clients, row.masked_sum) == (3, 2, WORDS)
    assert await masked_bodies(summed)
    await summed.complete_round(1, NewModel(1, bytes(12)), at(60))
    assert not await masked_bodies(summed)
    assert [row.start for row in await summed.load_answers(1)] == [0, 2, 0, 2]


async def test_how_many_norm_proofs_failed_is_kept_with_the_set(summed) -> None:
    """And whose, with its update, and in an event: told once, in the transaction that stores the set."""
    sets = [NewSet(0, 3, 2, b"\xc0", bytes(32), n_norm_proofs_failed=1)]
    fault = TicketFault.NORM_PROOF_FAILED
    noted = [NewEvent(at(0), "ticket_refused", fault, client_id="b", round=1)]
    for _ in range(2):
        await summed.begin_opening(1, sets, {"b": fault}, noted)
    told = await list_events(summed.db, "web", kind="ticket_refused")
    assert [(event.client_id, event.detail, event.round) for event in told] == [("b", "norm_proof_failed", 1)]
    (row,) = await summed.load_sums(1)
    assert row.n_norm_proofs_failed == 1
    faults = select(update_bodies.c.ticket, updates.c.fault).join_from(updates, update_bodies, is_body_of())
    assert dict(await summed.read(faults)) == {b"a": None, b"b": "norm_proof_failed", b"c": None}


async def test_a_sum_is_stored_only_with_the_answers_of_all_helpers(summed) -> None:
    """Nobody could tell afterwards from whose answers it was made; other sets, or answers for them, are refused."""
    await open_sets(summed)
    async with summed.refuses(match="opening other sets"):
        await open_sets(summed, b"x" * 32)
    async with summed.refuses():
        await answer(summed, "ada", b"x" * 32)
    await answer(summed, "ada")
    for sums in ({0: WORDS}, {}):
        async with summed.refuses(match="lacks its sum, or an answer"):
            await summed.begin_summing(1, sums, 2)
    assert await state_of(summed) is RoundState.OPENING


@pytest.mark.parametrize("n_steps", range(4))
async def test_a_round_that_ends_without_a_model_leaves_nothing_of_a_sum(summed, n_steps) -> None:
    """In whatever state it was: no vector, no set, no answer."""
    steps = [open_sets(summed), answer(summed, "ada"), answer(summed, "bob")]
    for step in steps[:n_steps]:
        await step
    for step in steps[n_steps:]:
        step.close()
    await summed.abandon_round(1, AbandonReason.HELPERS_SILENT, at(60))
    assert not await masked_bodies(summed)
    assert await summed.load_sums(1) == await summed.load_answers(1) == []


async def test_rounds_that_have_failed_since_the_last_model_are_counted(stored) -> None:
    """What cost nobody anything is passed over; a model that was rolled back ends the count, or another policy."""
    first, other = policy(1), policy(2, b"other")
    for each in (first, other):
        await stored.adopt_policy(each)
    number = 0

    async def ended(reason: AbandonReason, under: PolicyRecord = first) -> tuple[int, int, str] | None:
        nonlocal number
        number += 1
        await stored.open(number, policy_hash=under.hash, clip_norm=1.0)
        await stored.abandon_round(number, reason, at(60))
        failed = await stored.count_failed_rounds(first.hash)
        return None if failed is None else (failed.n_rounds, failed.number, str(failed.reason))

    assert await ended(AbandonReason.NO_UPDATES) is None
    for n, reason in enumerate(PAUSING, start=1):
        assert await ended(reason) == (n, number, reason)
        assert await ended(AbandonReason.HELD_BACK) == (n, number - 1, reason)
    assert await ended(AbandonReason.MODEL_ROLLED_BACK) is None
    assert await ended(AbandonReason.SUM_IMPLAUSIBLE) == (1, number, "sum_implausible")
    assert await ended(AbandonReason.SUM_IMPLAUSIBLE, other) is None
    assert await ended(AbandonReason.SUM_IMPLAUSIBLE) == (1, number, "sum_implausible")


async def test_an_erased_client_takes_the_sum_that_it_is_in_with_it(summed) -> None:
    """The set stays, which names nobody; a client that a helper took out is in no sum, and in no model."""
    await open_sets(summed)
    await answer(summed, "ada")
    await summed.begin_summing(1, {0: WORDS}, 1)
    await summed.complete_round(1, NewModel(1, bytes(12)), at(60))
    assert (await summed.erase("b")).n_rounds == 0
    (row,) = await summed.load_sums(1)
    assert row.masked_sum == WORDS
    assert (await summed.erase("a")).n_rounds == 1
    (row,) = await summed.load_sums(1)
    assert (row.masked_sum, row.n_clients) == (None, 2)
    assert await summed.load_answers(1) == []
    assert (await summed.erase("c")).n_rounds == 1  # its sum is gone already; the model that it is in is not


async def test_no_client_is_erased_out_of_a_sum_that_helpers_are_asked_for(summed) -> None:
    """The round is to be abandoned before, or the sum would be released with the client in it."""
    await open_sets(summed)
    for client_id in "ab":
        async with summed.refuses(match="opening with an update of a client to erase"):
            await summed.erase(client_id)
