"""Secure sums in SQL: a round's tickets, the sets to be opened, the helpers' answers, and the sums.

Each function is one transaction. A function that finds its work already done returns quietly.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from itertools import takewhile
from typing import Any

from sqlalchemy import Select, func, insert, or_, select, update

from foltr.core.errors import DataError, ProtocolViolationError
from foltr.core.failpoints import Failpoint, failpoint
from foltr.core.protocol.helper_messages import TicketFault
from foltr.core.protocol.states import AFTERMATH, PAUSING, AbandonReason, Aftermath, RoundState
from foltr.storage.bodies import in_round, is_body_of, select_updates
from foltr.storage.body_tables import update_bodies
from foltr.storage.cipher import decrypt_row
from foltr.storage.clients import key_of
from foltr.storage.database import Database, fetch_all, insert_into
from foltr.storage.events import store_events
from foltr.storage.federations import fenced_transaction
from foltr.storage.records import NewEvent
from foltr.storage.rounds import change_state
from foltr.storage.sum_records import FailedRounds, HelperAnswerRow, NewAnswer, NewSet, RoundSumRow, TicketRow
from foltr.storage.sum_tables import helper_answers, round_sums
from foltr.storage.tables import clients, rounds, updates

# More failed rounds do not lengthen the pause.
_MOST_FAILED = 16
_TELLING = [str(reason) for reason, after in AFTERMATH.items() if after is not Aftermath.NOTHING]


async def load_tickets(db: Database, name: str, number: int) -> list[TicketRow]:
    """List the tickets of an open round, by cohort and position."""
    # A helper refuses a ticket whose enrolment it cannot read.
    enrolment = func.coalesce(clients.c.enrolment, b"")
    statement = (
        select(clients.c.client_id, updates.c.cohort, updates.c.position, update_bodies.c.ticket, enrolment)
        .join_from(updates, clients, clients.c.id == updates.c.client)
        .join(update_bodies, is_body_of())
        .where(*in_round(name, number), update_bodies.c.ticket.is_not(None))
        .order_by(updates.c.cohort, updates.c.position)
    )
    async with db.reading() as connection:
        return [TicketRow(*row) for row in await connection.execute(statement)]


async def load_masked(
    db: Database, name: str, number: int, cohort: int, positions: Collection[int]
) -> dict[int, bytes]:
    """Read clients' bodies by position: each a masked vector followed by its norm proof, if any.

    Raises:
        DataError: one is missing or cannot be read: its data key is destroyed or missing, or it does not decrypt.
    """
    of_cohort = updates.c.cohort == cohort, updates.c.position.in_(positions)
    async with db.reading() as connection:
        statement = select_updates(name, number).where(*of_cohort)
        rows: list[dict[str, Any]] = await fetch_all(connection, dict, statement)
    if len(rows) != len(positions):
        raise DataError(f"{len(rows)} of {len(positions)} masked vectors of cohort {cohort} are there")
    return {row["position"]: decrypt_row(db.keys, row).body for row in rows}


async def begin_opening(
    db: Database,
    name: str,
    epoch: int,
    number: int,
    sets: Collection[NewSet],
    faults: Mapping[str, TicketFault],
    noted: Sequence[NewEvent] = (),
) -> None:
    """Store the sets that will be requested, and why other tickets are in none. Nothing was requested before.

    Raises:
        ProtocolViolationError: the round is opening other sets, or is not checking.
    """
    async with fenced_transaction(db, name, epoch) as connection:
        if not await change_state(connection, name, number, RoundState.CHECKING, RoundState.OPENING):
            stored = await fetch_all(connection, RoundSumRow, _of_round(name, number))
            if {row.set_digest for row in stored} != {each.digest for each in sets}:
                raise ProtocolViolationError(f"round {number} of {name!r} is opening other sets")
            return
        for each in sets:
            values = asdict(each)
            values["set_digest"] = values.pop("digest")
            await connection.execute(insert(round_sums).values(federation=name, round=number, **values))
        for client_id, fault in faults.items():
            of_client = (
                updates.c.federation == name,
                updates.c.round == number,
                updates.c.client == key_of(name, client_id),
            )
            await connection.execute(update(updates).where(*of_client).values(fault=fault))
        await store_events(connection, name, noted)
        failpoint(Failpoint.IN_SETS_TRANSACTION)


async def store_answers(db: Database, name: str, epoch: int, number: int, answers: Collection[NewAnswer]) -> None:
    """Store whole answers of helpers; each helper's first one for a set stays."""
    async with fenced_transaction(db, name, epoch) as connection:
        for each in answers:
            values = asdict(each)
            values["set_digest"] = values.pop("digest")
            await connection.execute(
                insert_into(connection, helper_answers).on_conflict_do_nothing(),
                {"federation": name, "round": number, **values},
            )


async def answered_sets(db: Database, name: str, number: int) -> set[tuple[str, int]]:
    """List the (helper, cohort) pairs that have been answered."""
    answered = select(helper_answers.c.helper, helper_answers.c.cohort).distinct()
    async with db.reading() as connection:
        found = await connection.execute(
            answered.where(helper_answers.c.federation == name, helper_answers.c.round == number)
        )
        return {(helper, cohort) for helper, cohort in found}


async def begin_summing(
    db: Database, name: str, epoch: int, number: int, sums: Mapping[int, bytes], n_helpers: int
) -> None:
    """Store the sums of masked vectors, by cohort, now that all helpers have answered for each.

    Raises:
        ProtocolViolationError: an answer is missing, or a sum.
    """
    async with fenced_transaction(db, name, epoch) as connection:
        if not await change_state(connection, name, number, RoundState.OPENING, RoundState.AGGREGATING):
            return
        helpers = func.count(helper_answers.c.helper.distinct()).label("n")
        counted = await connection.execute(
            select(helper_answers.c.cohort, helpers)
            .where(helper_answers.c.federation == name, helper_answers.c.round == number)
            .group_by(helper_answers.c.cohort)
        )
        n_answers: dict[int, int] = {row.cohort: row.n for row in counted}
        for row in await fetch_all(connection, RoundSumRow, _of_round(name, number)):
            if row.cohort not in sums or n_answers.get(row.cohort) != n_helpers:
                raise ProtocolViolationError(f"cohort {row.cohort} of round {number} lacks its sum, or an answer")
        for cohort, masked_sum in sums.items():
            of_cohort = round_sums.c.federation == name, round_sums.c.round == number, round_sums.c.cohort == cohort
            await connection.execute(update(round_sums).where(*of_cohort).values(masked_sum=masked_sum))
        failpoint(Failpoint.IN_SUMS_TRANSACTION)


async def load_sums(db: Database, name: str, number: int) -> list[RoundSumRow]:
    """List the sets of a round, and their sums, by cohort."""
    return await db.fetch_all(RoundSumRow, _of_round(name, number))


async def load_answers(db: Database, name: str, number: int) -> list[HelperAnswerRow]:
    """List the answers for a round's sets, each helper's parts in order."""
    answers = (
        select(helper_answers)
        .where(helper_answers.c.federation == name, helper_answers.c.round == number)
        .order_by(helper_answers.c.cohort, helper_answers.c.helper, helper_answers.c.start)
    )
    return await db.fetch_all(HelperAnswerRow, answers)


async def count_failed_rounds(db: Database, name: str, policy_hash: bytes) -> FailedRounds | None:
    """Count the rounds, all under this policy, that have failed since the last one with a model; None if none has.

    Rounds that cost nothing are skipped: rounds end so while they are on hold.
    """
    is_telling = or_(rounds.c.reason.is_(None), rounds.c.reason.in_(_TELLING))
    newest = (
        select(rounds.c.number, rounds.c.policy_hash, rounds.c.reason, rounds.c.closed_at)
        .where(rounds.c.federation == name, rounds.c.closed_at.is_not(None), is_telling)
        .order_by(rounds.c.number.desc())
        .limit(_MOST_FAILED)
    )
    async with db.reading() as connection:
        ended = (await connection.execute(newest)).all()
    failed = list(takewhile(lambda row: row.policy_hash == policy_hash and row.reason in PAUSING, ended))
    if not failed:
        return None
    return FailedRounds(len(failed), failed[0].number, AbandonReason(failed[0].reason), failed[0].closed_at)


def _of_round(name: str, number: int) -> Select[Any]:
    return (
        select(round_sums)
        .where(round_sums.c.federation == name, round_sums.c.round == number)
        .order_by(round_sums.c.cohort)
    )
