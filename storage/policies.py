"""The operator's policies in SQL."""

from dataclasses import asdict

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from foltr.core.errors import ProtocolViolationError
from foltr.storage.database import Database, insert_into
from foltr.storage.federations import fenced_transaction
from foltr.storage.sum_records import PolicyRecord
from foltr.storage.sum_tables import policies


async def load_policies(db: Database, name: str) -> list[PolicyRecord]:
    """List all policies ever adopted, the newest last."""
    columns = (policies.c[field] for field in PolicyRecord.__slots__)
    of_federation = select(*columns).where(policies.c.federation == name)
    return await db.fetch_all(PolicyRecord, of_federation.order_by(policies.c.version))


async def adopt_policy(db: Database, name: str, epoch: int, new: PolicyRecord) -> None:
    """Store a policy that the federator was started with."""
    async with fenced_transaction(db, name, epoch) as connection:
        await store_policy(connection, name, new)


async def store_policy(connection: AsyncConnection, name: str, new: PolicyRecord) -> None:
    """Store a policy, within a transaction; repeating it changes nothing.

    Raises:
        ProtocolViolationError: another one has this version.
    """
    await connection.execute(
        insert_into(connection, policies).on_conflict_do_nothing(index_elements=["federation", "version"]),
        {"federation": name, **asdict(new)},
    )
    at_version = policies.c.federation == name, policies.c.version == new.version
    if await connection.scalar(select(policies.c.hash).where(*at_version)) != new.hash:
        raise ProtocolViolationError(f"federation {name!r} has another policy with version {new.version}")
