"""What is stored of secure sums."""

import hashlib
from dataclasses import replace

import pytest
from sqlalchemy import select

from foltr.core.errors import ProtocolViolationError, SettingsError
from foltr.core.protocol.helper_messages import TicketFault
from foltr.core.protocol.states import PAUSING, AbandonReason, Privacy, RoundState
from foltr.storage.bodies import is_body_of
from foltr.storage.body_tables import update_bodies
from foltr.storage.federations import create_federation, get_federation
from foltr.storage.policies import load_policies
from foltr.storage.queries import list_events
from foltr.storage.records import Batch, MembershipChange, NewEvent, NewModel
from foltr.storage.rounds import find_round
from foltr.storage.sum_records import NewAnswer, NewSet, PolicyRecord
from foltr.storage.tables import clients, updates


def policy(stored, version: int, signed: bytes = b"signed") -> PolicyRecord:
    return PolicyRecord(hashlib.sha256(signed).digest(), version, signed, stored.at(0))


async def test_policies_are_kept_by_version(stored) -> None:
    """One that the federator was started with, and one that came since; the same again changes nothing."""
    for _ in range(2):
        await stored.adopt_policy(policy(stored, 1))
    await stored.commit(Batch(policy=policy(stored, 2, b"newer")))
    assert [(row.version, row.signed) for row in await stored.load_policies()] == [(1, b"signed"), (2, b"newer")]
    assert await load_policies(stored.db, "mail") == []


async def test_a_version_is_of_one_policy(stored) -> None:
    """An operator's folder that was restored could issue another one under its number."""
    await stored.adopt_policy(policy(stored, 1))
    with pytest.raises(ProtocolViolationError, match="another policy with version 1"):
        await stored.adopt_policy(policy(stored, 1, b"other"))
    assert [row.signed for row in await stored.load_policies()] == [b"signed"]


async def test_a_federation_stays_trusted_or_secure(stored) -> None:
    """No federator can show a secure federation's clients a trusted round by another setting."""
    first = stored.at(0)
    for privacy, other in ((Privacy.SECURE, Privacy.TRUSTED), (Privacy.TRUSTED, Privacy.SECURE)):
        name = f"{privacy}-one"
        await create_federation(stored.db, name, 1, "linear", bytes(4), first, privacy=privacy)
        with pytest.raises(SettingsError, match=f"privacy = '{privacy}', .* have .*privacy = '{other}'"):
            await create_federation(stored.db, name, 1, "linear", bytes(4), first, privacy=other)
        found = await get_federation(stored.db, name)
        assert found.privacy is privacy


async def test_the_enrolment_that_a_client_joined_with_is_kept(stored) -> None:
    """Helpers are shown it; the newest replaces the one before."""
    for enrolment in (b"first", b"second"):
        change = MembershipChange("a", "joined", stored.at(0), enrolment=enrolment)
        await stored.commit(Batch(membership=[change]))
        async with stored.db.reading() as connection:
            assert await connection.scalar(select(clients.c.enrolment)) == enrolment


WORDS = b"\1" * 24


async def summed(stored) -> None:
    """Open a round with three masked updates, and stop collecting."""
    await stored.join("a", "b", "c")
    await stored.adopt_policy(policy(stored, 1))
    opening = replace(stored.opening(1), policy_hash=policy(stored, 1).hash, clip_norm=1.0)
    await stored.open_round(opening)
    masked = {"encoding": "masked_u64", "body": WORDS, "n_interactions": 1, "cohort": 0}
    sent = [stored.update(name, position=i, ticket=name.encode(), **masked) for i, name in enumerate(("c", "a", "b"))]
    await stored.commit(Batch(updates=sent, stop_collecting=1))


async def opening_sums(stored, digest: bytes = bytes(32)) -> None:
    sets = [NewSet(0, 3, 2, b"\xc0", digest)]
    await stored.begin_opening(1, sets, {"b": TicketFault.NOT_OPENED})


def answers(helper: str, digest: bytes = bytes(32)) -> list[NewAnswer]:
    return [NewAnswer(0, helper, start, digest, f"{helper} {start}".encode()) for start in (0, 2)]


async def answer(stored, helper: str, digest: bytes = bytes(32)) -> None:
    await stored.store_answers(1, answers(helper, digest))


async def state_of(stored) -> RoundState:
    row = await find_round(stored.db, "web", 1)
    return row.state


async def masked_bodies(stored) -> set[bytes]:
    async with stored.db.reading() as connection:
        return set(await connection.scalars(select(update_bodies.c.body)))


async def test_tickets_have_positions_in_the_order_in_which_they_came(stored) -> None:
    """With the enrolment of each client; the round is checking once it stops collecting."""
    await summed(stored)
    assert await state_of(stored) is RoundState.CHECKING
    tickets = await stored.load_tickets(1)
    found = [(row.client_id, row.position, row.ticket) for row in tickets]
    assert found == [("c", 0, b"c"), ("a", 1, b"a"), ("b", 2, b"b")]


async def test_a_round_goes_from_the_sets_to_the_sums(stored) -> None:
    """Each step may be offered twice; the masked vectors are there until the round is closed."""
    await summed(stored)
    for _ in range(2):
        await opening_sums(stored)
    assert await state_of(stored) is RoundState.OPENING
    for helper in ("ada", "bob", "ada"):
        await answer(stored, helper)
    assert await stored.answered_sets(1) == {("ada", 0), ("bob", 0)}
    for _ in range(2):
        await stored.begin_summing(1, {0: WORDS}, 2)
    assert await state_of(stored) is RoundState.AGGREGATING
    (row,) = await stored.load_sums(1)
    assert (row.n_tickets, row.n_clients, row.masked_sum) == (3, 2, WORDS)
    assert await masked_bodies(stored)
    model = NewModel(1, bytes(12))
    await stored.complete_round(1, model, stored.at(60))
    assert not await masked_bodies(stored)
    assert [row.start for row in await stored.load_answers(1)] == [0, 2, 0, 2]


async def test_how_many_norm_proofs_failed_is_kept_with_the_set(stored) -> None:
    """And whose, with its update, and in an event: told once, in the transaction that stores the set."""
    await summed(stored)
    sets = [NewSet(0, 3, 2, b"\xc0", bytes(32), n_norm_proofs_failed=1)]
    fault = TicketFault.NORM_PROOF_FAILED
    noted = [NewEvent(stored.at(0), "ticket_refused", fault, client_id="b", round=1)]
    for _ in range(2):
        await stored.begin_opening(1, sets, {"b": fault}, noted)
    told = await list_events(stored.db, "web", kind="ticket_refused")
    assert [(event.client_id, event.detail, event.round) for event in told] == [("b", "norm_proof_failed", 1)]
    (row,) = await stored.load_sums(1)
    assert row.n_norm_proofs_failed == 1
    async with stored.db.reading() as connection:
        of_tickets = select(update_bodies.c.ticket, updates.c.fault).join_from(updates, update_bodies, is_body_of())
        faults = (await connection.execute(of_tickets)).all()
    assert {row.ticket: row.fault for row in faults} == {b"a": None, b"b": "norm_proof_failed", b"c": None}


async def test_a_sum_is_stored_only_with_the_answers_of_all_helpers(stored) -> None:
    """Nobody could tell afterwards from whose answers it was made."""
    await summed(stored)
    await opening_sums(stored)
    await answer(stored, "ada")
    for sums in ({0: WORDS}, {}):
        with pytest.raises(ProtocolViolationError, match="lacks its sum, or an answer"):
            await stored.begin_summing(1, sums, 2)
    assert await state_of(stored) is RoundState.OPENING


async def test_a_second_set_for_one_round_is_refused_by_the_database(stored) -> None:
    """So is an answer for another set than the one that is stored."""
    await summed(stored)
    await opening_sums(stored)
    with pytest.raises(ProtocolViolationError, match="opening other sets"):
        await opening_sums(stored, b"x" * 32)
    with pytest.raises(ProtocolViolationError):
        await answer(stored, "ada", b"x" * 32)


@pytest.mark.parametrize("n_steps", range(4))
async def test_a_round_that_ends_without_a_model_leaves_nothing_of_a_sum(stored, n_steps) -> None:
    """In whatever state it was: no vector, no set, no answer."""
    await summed(stored)
    steps = [opening_sums(stored), answer(stored, "ada"), answer(stored, "bob")]
    for step in steps[:n_steps]:
        await step
    for step in steps[n_steps:]:
        step.close()
    at = stored.at(60)
    await stored.abandon_round(1, AbandonReason.HELPERS_SILENT, at)
    assert not await masked_bodies(stored)
    assert await stored.load_sums(1) == await stored.load_answers(1) == []


async def test_rounds_that_have_failed_since_the_last_model_are_counted(stored) -> None:
    """What cost nobody anything is passed over; a model that was rolled back ends the count, or another policy."""
    first, other = policy(stored, 1), policy(stored, 2, b"other")
    for each in (first, other):
        await stored.adopt_policy(each)
    number = 0

    async def ended(reason: AbandonReason, under: PolicyRecord = first) -> tuple[int, int, str] | None:
        nonlocal number
        number += 1
        at = stored.at(60)
        opening = replace(stored.opening(number), policy_hash=under.hash, clip_norm=1.0)
        await stored.open_round(opening)
        await stored.abandon_round(number, reason, at)
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


async def test_an_erased_client_takes_the_sum_that_it_is_in_with_it(stored) -> None:
    """The set stays, which names nobody; a client that a helper took out is in no sum, and in no model."""
    await summed(stored)
    await opening_sums(stored)
    await answer(stored, "ada")
    await stored.begin_summing(1, {0: WORDS}, 1)
    await stored.complete_round(1, NewModel(1, bytes(12)), stored.at(60))
    assert (await stored.erase("b")).n_rounds == 0
    (row,) = await stored.load_sums(1)
    assert row.masked_sum == WORDS
    assert (await stored.erase("a")).n_rounds == 1
    (row,) = await stored.load_sums(1)
    assert (row.masked_sum, row.n_clients) == (None, 2)
    assert await stored.load_answers(1) == []
    assert (await stored.erase("c")).n_rounds == 1  # its sum is gone already; the model that it is in is not


@pytest.mark.parametrize("client_id", ["a", "b"])
async def test_no_client_is_erased_out_of_a_sum_that_helpers_are_asked_for(stored, client_id) -> None:
    """The round is to be abandoned before, or the sum would be released with the client in it."""
    await summed(stored)
    await opening_sums(stored)
    with pytest.raises(ProtocolViolationError, match="opening with an update of a client to erase"):
        await stored.erase(client_id)
