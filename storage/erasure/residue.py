"""Where a database still has a client's name: what is asked of it once the client was erased."""

from sqlalchemy import func, select

from foltr.protocol.codec import open_envelope
from foltr.protocol.fields import MAX_CHUNKED_BYTES
from foltr.protocol.orders import Roster
from storage.database import Database
from storage.erasure.client_rows import mentions_of
from storage.erasure.tables import erasures
from storage.tables import clients, events, federations, update_fates, updates


async def rows_that_name(db: Database, name: str, client_id: str) -> dict[str, int]:
    """How many rows of which table name a client: as theirs, or in words about others. Tables without any are left out.

    ``erasures`` has the name of a forgotten client until its device was told, and ``federations`` that of a client
    whose enrolment the operator's newest roster voids.

    Raises:
        MessageError: the stored roster cannot be read.
    """
    found: dict[str, int] = {}
    async with db.reading() as connection:
        for table in (clients, updates, update_fates, events, erasures):
            of_client = table.c.federation == name, table.c.client_id == client_id
            found[table.name] = (await connection.execute(select(func.count()).where(*of_client))).scalar_one()
        for mention in await mentions_of(connection, name, client_id, ""):
            found[mention.table.name] += len(mention.found)
        roster = await connection.scalar(select(federations.c.roster).where(federations.c.name == name))
    if roster is not None:
        # The federator has checked whose it is before it stored it.
        voided = open_envelope(roster, MAX_CHUNKED_BYTES).read(Roster).revoked
        found[federations.name] = sum(revocation.client_id == client_id for revocation in voided)
    return {table: n for table, n in found.items() if n}
