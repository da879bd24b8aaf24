"""The anchor in SQL: the result of the clients' votes, and the model that is restored from it."""

from typing import Any

from sqlalchemy import BigInteger, Integer, Select, and_, bindparam, case, cast, delete, func, insert, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from foltr.core.aggregation.vote_result import RoundTally, VoteResult
from foltr.core.errors import ProtocolViolationError
from foltr.core.failpoints import Failpoint, failpoint
from foltr.core.protocol.states import AbandonReason, Membership, RoundState
from foltr.storage.database import Database, fetch_one
from foltr.storage.defence import ROUNDS, forget_defence, store_defence
from foltr.storage.erasure.gathering import drop_reset
from foltr.storage.erasure.unlearning_jobs import fail_open_job
from foltr.storage.erasure_tables import stored_rounds
from foltr.storage.events import store_events
from foltr.storage.federations import fenced_transaction
from foltr.storage.model_tables import models
from foltr.storage.models import model_row
from foltr.storage.prepared import Prepared
from foltr.storage.records import ModelRow
from foltr.storage.restored_records import Restoration
from foltr.storage.rounds import close_without_model, open_next
from foltr.storage.schema import OF_FEDERATION, OF_ROUND
from foltr.storage.sum_tables import round_tallies
from foltr.storage.tables import clients, rounds, updates

# A vote is one number with its round, round * 4 + vote + 1: the largest is a client's newest, and has both in it.
_VOTES_A_ROUND = 4


def _counting_votes() -> Select[Any]:
    recent = (
        select(rounds.c.number, rounds.c.anchor_version)
        .where(rounds.c.federation == OF_FEDERATION, rounds.c.number <= OF_ROUND)
        .where(or_(rounds.c.state == RoundState.COMPLETED, rounds.c.number == OF_ROUND))
        .order_by(rounds.c.number.desc())
        .limit(bindparam("most", type_=Integer))
        .subquery()
    )
    of_round = and_(updates.c.federation == OF_FEDERATION, updates.c.round == recent.c.number)
    placed = cast(updates.c.round, BigInteger) * _VOTES_A_ROUND + updates.c.vote + 1
    # In two parts: the votes have an index, and would take long to find behind the bodies.
    could = select(updates.c.client, cast(None, BigInteger).label("placed")).select_from(recent.join(updates, of_round))
    did = (
        select(updates.c.client, placed.label("placed"))
        .select_from(recent.join(updates, of_round))
        .where(recent.c.anchor_version == bindparam("anchor", type_=Integer), updates.c.vote.is_not(None))
    )
    both = could.union_all(did).subquery()
    newest = (
        select(
            both.c.client,
            func.max(both.c.placed).label("placed"),
            (func.count() - func.count(both.c.placed)).label("n_updates"),
        )
        .group_by(both.c.client)
        .subquery()
    )
    opinion = newest.c.placed % _VOTES_A_ROUND
    return (
        select(
            func.count().label("n_voters"),
            func.coalesce(func.sum(newest.c.n_updates), 0).label("n_updates"),
            func.coalesce(func.sum(case((opinion == 0, newest.c.n_updates), else_=0)), 0).label("n_worse"),
            func.coalesce(func.sum(case((opinion == 2, newest.c.n_updates), else_=0)), 0).label("n_better"),
        )
        .select_from(newest.join(clients, clients.c.id == newest.c.client))
        .where(clients.c.membership == Membership.JOINED, clients.c.quarantined_at.is_(None))
    )


_COUNT_VOTES = Prepared(_counting_votes())  # building it takes longer than executing it


async def count_votes(db: Database, name: str, anchor_version: int, number: int, n_rounds: int) -> VoteResult:
    """Count the newest votes of clients on an anchor, in one query.

    A client counts if it had updates in the last ``n_rounds`` completed rounds or in this one, is a member and not in
    quarantine. It is weighted by the number of these updates. Without a vote on this anchor it has no opinion.

    Args:
        number: the round that is about to end; counts whether it completes or not.
    """
    parameters = {"of_federation": name, "of_round": number, "most": n_rounds, "anchor": anchor_version}
    async with db.reading() as connection:
        [counts] = await _COUNT_VOTES.fetch_all(connection, parameters)
    return VoteResult(**{field: int(n) for field, n in counts.items()})


async def list_tallies(db: Database, name: str, anchor_version: int, n_rounds: int) -> list[RoundTally]:
    """List the vote tallies on an anchor from secure sums, of the last ``n_rounds`` completed rounds that have one.

    Newest first. A round loses its tally when a client in it is erased.
    """
    counted = (round_tallies.c[column] for column in ("n_updates", "worse", "better", "deviation"))
    of_round = and_(rounds.c.federation == round_tallies.c.federation, rounds.c.number == round_tallies.c.round)
    # Skip rounds before the anchor, which have no votes on it, however many they are. A model from a restore or
    # unlearning has no round, so the last earlier model with one counts.
    made_by = (
        select(models.c.round)
        .where(models.c.federation == name, models.c.version <= anchor_version, models.c.round.is_not(None))
        .order_by(models.c.version.desc())
        .limit(1)
    )
    newest_first = (
        select(*counted)
        .join_from(round_tallies, rounds, of_round)
        .where(round_tallies.c.federation == name, rounds.c.anchor_version == anchor_version)
        .where(round_tallies.c.round > func.coalesce(made_by.scalar_subquery(), 0))
        .order_by(round_tallies.c.round.desc())
        .limit(n_rounds)
    )
    return await db.fetch_all(RoundTally, newest_first)


async def restore_anchor(db: Database, name: str, epoch: int, restoration: Restoration) -> None:
    """Make the anchor's weights the newest model, take back later models and abandon the open round.

    Unlearning no longer replays the rounds that made those models. An open job fails, since it has replayed them, and
    no job waits for the operator's order any longer. Repeating it changes nothing.

    Raises:
        ProtocolViolationError: the version is not the next one, or the anchor contains updates of an erased client.
    """
    at, version, anchor_version = restoration.restored_at, restoration.version, restoration.anchor_version
    async with fenced_transaction(db, name, epoch) as connection:
        newest = await _find(connection, name, version)
        if newest is not None and newest.restored_version == anchor_version:
            return
        anchor = await _find(connection, name, anchor_version)
        newest_version = await connection.scalar(select(func.max(models.c.version)).where(models.c.federation == name))
        if version != newest_version + 1:
            raise ProtocolViolationError(f"model {version} of {name!r} restored; {newest_version} is the newest")
        if anchor is None or anchor.tainted_at is not None:
            what = "not there" if anchor is None else "tainted"
            raise ProtocolViolationError(f"model {anchor_version} of {name!r} is {what}: it cannot be restored")
        of_round = rounds.c.federation == name, rounds.c.number == restoration.abandons
        compared_with = await connection.scalar(select(rounds.c.anchor_version).where(*of_round))
        await _insert(connection, anchor, restoration, compared_with)
        if restoration.abandons is not None:
            await close_without_model(connection, name, restoration.abandons, AbandonReason.MODEL_ROLLED_BACK, at)
        taken_back = select(rounds.c.number).where(
            rounds.c.federation == name, rounds.c.model_version > anchor_version, rounds.c.model_version < version
        )
        await connection.execute(
            delete(stored_rounds).where(stored_rounds.c.federation == name, stored_rounds.c.round.in_(taken_back))
        )
        await fail_open_job(connection, name, restoration.reason, at)
        await drop_reset(connection, name)
        if restoration.next_opening is not None:
            await open_next(connection, name, restoration.next_opening)
        await store_events(connection, name, restoration.events)
        failpoint(Failpoint.IN_RESTORATION_TRANSACTION)


async def _insert(
    connection: AsyncConnection, anchor: ModelRow, restoration: Restoration, compared_with: int | None
) -> None:
    name, version = anchor.federation, restoration.version
    await forget_defence(connection, name, {version - 1, anchor.version, compared_with}, keep=version)
    await connection.execute(
        insert(models).values(
            federation=name,
            version=version,
            base_version=anchor.version,
            restored_version=anchor.version,
            n_values=anchor.n_values,
            weights=anchor.weights,
            weights_hash=anchor.weights_hash,
            created_at=restoration.restored_at,
            optimizer_state=anchor.optimizer_state,
            defence_state=await store_defence(connection, name, ROUNDS, restoration.defence_state),
        )
    )


async def _find(connection: AsyncConnection, name: str, version: int) -> ModelRow | None:
    which = models.c.federation == name, models.c.version == version
    return await fetch_one(connection, model_row, select(models).where(*which))
