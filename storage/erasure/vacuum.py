"""Which deletions may have left bytes behind, until `storage.database.Database.purge` has been done after them.

They are counted in the transactions that delete, so that a federator that dies before it purges leaves it to the next.
"""

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.database import Database
from storage.federations import fenced_transaction
from storage.tables import federations


async def count_deletion(connection: AsyncConnection, name: str) -> None:
    """The part of a transaction that deletes something of a forgotten client: the database is to be purged."""
    await connection.execute(
        update(federations).where(federations.c.name == name).values(n_deletions=federations.c.n_deletions + 1)
    )


async def deletions_to_purge(db: Database, name: str) -> int | None:
    """How many deletions a purge that begins now is for, from the first one on; None where none needs it."""
    async with db.reading() as connection:
        found = await connection.execute(
            select(federations.c.n_deletions).where(
                federations.c.name == name, federations.c.n_purged < federations.c.n_deletions
            )
        )
        return found.scalar_one_or_none()


async def note_purged(db: Database, name: str, epoch: int, n_deletions: int) -> None:
    """A purge is done that began after so many deletions; those since then are to be purged still.

    Raises:
        WriterFencedError: another federator has taken over: it purges once more.
    """
    async with fenced_transaction(db, name, epoch) as connection:
        await connection.execute(update(federations).where(federations.c.name == name).values(n_purged=n_deletions))
