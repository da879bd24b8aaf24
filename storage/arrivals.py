"""What devices send, stored in batches: one transaction for many messages."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from sqlalchemy import Boolean, bindparam, case, column, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.dml import Update
from sqlalchemy.sql.elements import BindParameter

from foltr.core.errors import ProtocolViolationError
from foltr.core.failpoints import Failpoint, failpoint
from foltr.core.protocol.evaluations import Evaluation
from foltr.core.protocol.states import WITHDRAWABLE, Membership, RoundState
from foltr.storage.bodies import INSERT_BODIES
from foltr.storage.cipher import StoredBody, encrypt_bodies
from foltr.storage.clients import is_client, key_of, select_clients
from foltr.storage.database import Database, insert_into
from foltr.storage.erasure.gathering import allow_reset
from foltr.storage.events import clean, store_events
from foltr.storage.federations import fenced_transaction, require_epoch, writer_transaction
from foltr.storage.models import mark_model_published
from foltr.storage.orders import store_orders
from foltr.storage.policies import store_policy
from foltr.storage.prepared import Prepared
from foltr.storage.records import Batch, ClientRow, MembershipChange, NewUpdate, QuarantineChange, StoredUpdate
from foltr.storage.rounds import change_deadline, require_collecting, stop_collecting
from foltr.storage.schema import DETAIL_MAX, OF_FEDERATION, OF_ROUND, SHORT_TEXT_MAX
from foltr.storage.tables import clients, federations, rounds, updates
from foltr.storage.watermarks import move_watermarks, withdraw_updates

# The identities come as one JSON array, joined as a table: one lookup in each unique index per identity, and one
# statement for any number. `(client_id, update_id) IN (...)` scans every update of the federation; so does SQLite with
# a plain JOIN, while its CROSS JOIN fixes the order: left side first.
_FIND_UPDATES = {
    dialect: Prepared(
        text(statement).columns(clients.c.client_id, updates.c.update_id, updates.c.round, column("counts", Boolean()))
    )
    for dialect, statement in {
        "sqlite": (
            """
        SELECT c.client_id, u.update_id, u.round, u.covers_after IS NOT NULL AS counts
        FROM json_each(:identities) AS wanted
        CROSS JOIN clients AS c ON c.federation = :name AND c.client_id = json_extract(wanted.value, '$[0]')
        CROSS JOIN updates AS u ON u.client = c.id AND u.update_id = json_extract(wanted.value, '$[1]')
    """
        ),
        "postgresql": (
            """
        SELECT c.client_id, u.update_id, u.round, u.covers_after IS NOT NULL AS counts
        FROM json_array_elements(CAST(:identities AS json)) AS wanted (value)
        JOIN clients AS c ON c.federation = :name AND c.client_id = wanted.value ->> 0
        JOIN updates AS u ON u.client = c.id AND u.update_id = wanted.value ->> 1
    """
        ),
    }.items()
}


async def commit_batch(db: Database, name: str, epoch: int, batch: Batch) -> None:
    """Store accepted updates, membership changes and events in one transaction.

    Repeating the last committed batch changes nothing, so repeat a commit whose answer was lost. An update moves its
    client's watermark from its beginning to its end. If the database has keys, each body is encrypted.

    Raises:
        WriterFencedError: another federator has taken over.
        ProtocolViolationError: an update contradicts stored state: its round is not collecting, its client never
            joined, has another watermark, or has another update in that round. Nothing of the batch is stored.
        SettingsError: a client has encrypted updates whose key is missing.
    """
    async with writer_transaction(db, name) as connection:
        if not await _begin_batch(connection, name, epoch, batch):
            return
        await _store_membership(connection, name, batch.membership)
        await _store_quarantines(connection, name, batch.quarantines)
        if batch.withdrawn:
            await require_collecting(connection, name, {number for number, _ in batch.withdrawn}, WITHDRAWABLE)
        await withdraw_updates(connection, name, batch.withdrawn)
        await move_watermarks(connection, name, batch.updates)
        # Only the holder of the federation's row makes keys, so that a destroyed key cannot come back.
        bodies = await encrypt_bodies(connection, db.keys, name, batch.updates)
        await store_updates(connection, name, batch.updates, bodies)
        await store_events(connection, name, batch.events)
        await store_orders(connection, name, batch.orders)
        if batch.deadline is not None:
            # Before collecting stops: the same batch may fill the round.
            await change_deadline(connection, name, batch.deadline)
        if batch.allowed_reset is not None:
            await allow_reset(connection, name, batch.allowed_reset)
        if batch.stop_collecting is not None:
            await stop_collecting(connection, name, batch.stop_collecting)
        if batch.published is not None:
            await mark_model_published(connection, name, *batch.published)
        if batch.roster is not None:
            version, signed = batch.roster
            await connection.execute(
                update(federations)
                .where(federations.c.name == name, federations.c.roster_version < version)
                .values(roster_version=version, roster=signed)
            )
        if batch.policy is not None:
            await store_policy(connection, name, batch.policy)
        failpoint(Failpoint.IN_BATCH_TRANSACTION)


async def find_updates(
    db: Database, name: str, identities: Collection[tuple[str, str]]
) -> dict[tuple[str, str], StoredUpdate]:
    """Find which of these (client_id, update_id) are stored."""
    async with db.reading() as connection:
        return await find_stored(connection, name, identities)


async def find_stored(
    connection: AsyncConnection, name: str, identities: Collection[tuple[str, str]]
) -> dict[tuple[str, str], StoredUpdate]:
    """Find them within a transaction; see `find_updates`."""
    parameters = {"name": name, "identities": json.dumps(list(identities))}
    rows = await _FIND_UPDATES[connection.dialect.name].fetch_all(connection, parameters)
    return {(row["client_id"], row["update_id"]): StoredUpdate(row["round"], row["counts"]) for row in rows}


async def load_clients(db: Database, name: str) -> list[ClientRow]:
    """List every client that ever joined."""
    return await db.fetch_all(ClientRow, select_clients(name))


async def forget_presence(db: Database, name: str, epoch: int) -> None:
    """Mark every client as offline: a device that connects only periodically does not report leaving."""
    async with fenced_transaction(db, name, epoch) as connection:
        online = clients.c.online.is_(True)
        await connection.execute(update(clients).where(clients.c.federation == name, online).values(online=False))


async def _begin_batch(connection: AsyncConnection, name: str, epoch: int, batch: Batch) -> bool:
    """Store the batch's id on the federation's row, which stays locked to the end; False if it is there already.

    One statement checks everything, because every statement costs: the epoch, that the batch is new, and that the
    rounds it changes are collecting. Only after a failure do further statements find out which check failed.
    """
    numbers = {item.round for item in batch.updates}
    parameters = {"of_federation": name, "of_epoch": epoch, "new_batch": batch.batch_id}
    one = next(iter(numbers)) if len(numbers) == 1 else None  # all decisions of one turn belong to one round
    if one is None:
        n_noted = await _NOTE_BATCH.execute(connection, parameters)
    else:
        n_noted = await _NOTE_BATCH_OF_ROUND.execute(connection, parameters | {"of_round": one})
    if n_noted == 1:
        if one is None and numbers:
            await require_collecting(connection, name, numbers)
        return True
    await require_epoch(connection, name, epoch)
    if await connection.scalar(select(federations.c.last_batch_id).where(federations.c.name == name)) == batch.batch_id:
        return False
    await require_collecting(connection, name, numbers)
    raise ProtocolViolationError(f"federation {name!r} changed under its writer")


_UPDATE_BATCH = (
    update(federations)
    .where(
        federations.c.name == OF_FEDERATION,
        federations.c.writer_epoch == bindparam("of_epoch"),
        federations.c.last_batch_id.is_distinct_from(bindparam("new_batch")),
    )
    .values(last_batch_id=bindparam("new_batch"))
)
_NOTE_BATCH = Prepared(_UPDATE_BATCH)
_NOTE_BATCH_OF_ROUND = Prepared(
    _UPDATE_BATCH.where(
        select(rounds.c.number)
        .where(
            rounds.c.federation == OF_FEDERATION,
            rounds.c.number == OF_ROUND,
            rounds.c.state == RoundState.COLLECTING,
        )
        .exists()
    )
)


async def store_updates(
    connection: AsyncConnection, name: str, new: Sequence[NewUpdate], bodies: Sequence[StoredBody]
) -> None:
    """Store updates within a transaction, after their clients' watermarks were moved."""
    values = [
        {
            "of_federation": name,
            "of_client": item.client_id,
            "round": item.round,
            "update_id": item.update_id,
            "base_version": item.base_version,
            "covers_after": item.covers_after,
            "covers_through": item.covers_through,
            "n_interactions": item.n_interactions,
            "encoding": item.encoding,
            "n_bytes": len(item.body),
            "received_at": item.received_at,
            "cohort": item.cohort,
            "position": item.position,
            "vote": item.vote,
            **_evaluation_values(item.evaluation),
        }
        for item in new
    ]
    await _INSERT_UPDATES.execute_many(connection, values)
    of_updates = [
        {
            "of_federation": name,
            "of_client": item.client_id,
            "of_round": item.round,
            "round": item.round,
            "cipher": stored.cipher,
            "key_fingerprint": stored.key_fingerprint,
            "ticket": item.ticket,
            "body": stored.body,
        }
        for item, stored in zip(new, bodies, strict=True)
    ]
    await INSERT_BODIES.execute_many(connection, of_updates)


def _evaluation_values(evaluation: Evaluation | None) -> dict[str, float | None]:
    """Return an evaluation by column, each null without one."""
    if evaluation is None:
        return dict.fromkeys(_EVALUATION)
    # By name: iterating a model's fields takes ten times as long.
    has_credits = evaluation.credit_squares > 0.0
    return {
        "clicked": evaluation.clicked,
        "reward": evaluation.reward,
        "base_reward": evaluation.base_reward,
        "credit_total": evaluation.credit_total if has_credits else None,
        "credit_squares": evaluation.credit_squares if has_credits else None,
    }


_EVALUATION = ("clicked", "reward", "base_reward", "credit_total", "credit_squares")


async def _store_quarantines(connection: AsyncConnection, name: str, changes: Iterable[QuarantineChange]) -> None:
    for change in changes:
        await connection.execute(
            update(clients)
            .where(clients.c.federation == name, clients.c.client_id == change.client_id)
            .values(
                quarantined_at=None if change.reason is None else change.at,
                quarantine_reason=clean(change.reason, DETAIL_MAX),
            )
        )


async def _store_membership(connection: AsyncConnection, name: str, changes: Iterable[MembershipChange]) -> None:
    # Changes of different clients commute, those of one client do not. So each wave takes one change of every client,
    # in order, and a wave is one statement per kind of change.
    waves: list[dict[str, list[dict[str, Any]]]] = []
    n_seen: dict[str, int] = defaultdict(int)
    for change in changes:
        wave = n_seen[change.client_id]
        n_seen[change.client_id] += 1
        if wave == len(waves):
            waves.append(defaultdict(list))
        waves[wave][change.kind].append(_change_values(name, change))
    for kinds in waves:
        for kind, values in kinds.items():
            await connection.execute(_STATUS[kind] if kind in _STATUS else _join(connection), values)


def _join(connection: AsyncConnection) -> Any:
    join = insert_into(connection, clients).values(
        federation=bindparam("of_federation"),
        client_id=bindparam("of_client"),
        membership=Membership.JOINED,
        online=bindparam("is_online"),
        joined_at=bindparam("at"),
        last_seen_at=bindparam("at"),
        sdk_version=bindparam("with_sdk"),
        public_key=bindparam("with_key"),
        enrolment_serial=bindparam("with_serial"),
        enrolment=bindparam("with_enrolment"),
        membership_sequence=bindparam("with_sequence"),
        status_sequence=bindparam("with_status_sequence"),
    )
    return join.on_conflict_do_update(
        index_elements=["federation", "client_id"],
        set_={
            "membership": Membership.JOINED,
            "online": join.excluded.online,
            "status_sequence": join.excluded.status_sequence,
            # A member that says hello again keeps its membership.
            "joined_at": case(
                (clients.c.membership == Membership.JOINED, clients.c.joined_at), else_=join.excluded.joined_at
            ),
            "left_at": None,
            "last_seen_at": join.excluded.last_seen_at,
            "sdk_version": join.excluded.sdk_version,
            "public_key": join.excluded.public_key,
            "enrolment_serial": join.excluded.enrolment_serial,
            "enrolment": join.excluded.enrolment,
            "membership_sequence": join.excluded.membership_sequence,
            "revoked_at": None,
        },
    )


def _change_client(**values: Any) -> Update:
    # Nothing changes for clients that never joined.
    return (
        update(clients)
        .where(clients.c.federation == bindparam("of_federation"), clients.c.client_id == bindparam("of_client"))
        .where(is_client())
        .values(**values)
    )


_CLIENT = key_of(bindparam("of_federation"), bindparam("of_client"), is_client())
_INSERT_UPDATES = Prepared(insert(updates).inline().values(federation=bindparam("of_federation"), client=_CLIENT))
_SEQUENCE: BindParameter[int] = bindparam("with_sequence")
_SEEN = {"last_seen_at": bindparam("at", type_=clients.c.last_seen_at.type)}
_LEFT_AT = bindparam("at", type_=clients.c.left_at.type)
_GONE = {
    "membership": Membership.LEFT,
    "online": False,
    "left_at": case((clients.c.membership == Membership.LEFT, clients.c.left_at), else_=_LEFT_AT),
}
_STATUS = {
    "online": _change_client(**_SEEN, online=True, status_sequence=_SEQUENCE),
    "offline": _change_client(**_SEEN, online=False, status_sequence=_SEQUENCE),
    "left": _change_client(**_SEEN, **_GONE, membership_sequence=_SEQUENCE),
    # By its operator: nobody has seen the client.
    "revoked": _change_client(**_GONE, revoked_at=bindparam("at", type_=clients.c.revoked_at.type)),
}


def _change_values(name: str, change: MembershipChange) -> dict[str, Any]:
    values: dict[str, Any] = {"of_federation": name, "of_client": change.client_id, "at": change.at}
    if change.kind != "revoked":
        values["with_sequence"] = change.sequence
    if change.kind == "joined":
        values["with_key"] = change.public_key
        values["with_serial"] = change.enrolment_serial
        values["with_enrolment"] = change.enrolment
        values["is_online"] = change.online
        values["with_status_sequence"] = change.status_sequence
        values["with_sdk"] = clean(change.sdk_version, SHORT_TEXT_MAX)
    return values
