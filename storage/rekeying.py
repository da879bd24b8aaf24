"""Encrypts clients' updates again, each client's with a new data key: a copy of the old keys opens nothing newer.

It takes over the federation like a starting federator: a running one has the old keys in memory, and its next write is
refused. One client is one transaction, so at any moment all its updates are encrypted with one key: the present one, or
the next one, which is written to disk first. A process that finds updates encrypted with the next key adopts it
(`foltr.storage.keys`), so it may die at any point.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import bindparam, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from foltr.core.errors import SettingsError
from foltr.core.failpoints import Failpoint, failpoint
from foltr.storage.bodies import pages_of, places_of
from foltr.storage.body_tables import update_bodies
from foltr.storage.cipher import AES_256_GCM, associated_data, decrypt, encrypt, fingerprints
from foltr.storage.database import Database
from foltr.storage.erasure_tables import erasures
from foltr.storage.federations import claim_federation, fenced_transaction
from foltr.storage.keys import fingerprint
from foltr.storage.leases import Claimant
from foltr.storage.tables import clients

_PAGE = 200


@dataclass(frozen=True)
class Rekeyed:
    """The result.

    Attributes:
        n_clients: clients with a new key.
        n_updates: updates encrypted with these keys.
        n_without_key: clients with encrypted updates whose key is not in the folder: left unchanged.
    """

    n_clients: int
    n_updates: int
    n_without_key: int


async def rekey(
    db: Database, name: str, now: float, on_client: Callable[[int, int], None], holder: str | None = None
) -> Rekeyed:
    """Give each client of a federation that has a data key a new one, and encrypt its stored updates with it.

    Args:
        now: epoch seconds.
        on_client: called with how many clients are done, and of how many.
        holder: the process that takes the federation's lease with the claim, and renews it, so that no standby takes
            over meanwhile; None leaves the lease as it is.

    Raises:
        SettingsError: the federation does not exist, or the folder of keys is missing.
        WriterFencedError: a federator has started meanwhile. Finished clients stay so; the rest is unchanged.
        DataError: a stored update does not decrypt.
    """
    if db.keys is None:
        raise SettingsError("keys: the folder of data keys is needed; name it with --keys")
    claimant = None if holder is None else Claimant(holder, takes_over=True)
    epoch = await claim_federation(db, name, now, claimant)
    async with db.reading() as connection:
        # Skip clients being erased: their key will be destroyed, and the receipt names that key.
        leaving = select(erasures.c.client).where(erasures.c.client.is_not(None))
        of_federation = (clients.c.federation == name) & clients.c.id.not_in(leaving)
        who = [
            (row.id, row.client_id)
            for row in await connection.execute(
                select(clients.c.id, clients.c.client_id).where(of_federation).order_by(clients.c.id)
            )
        ]
    n_clients = n_updates = n_without_key = 0
    for done, (number, client_id) in enumerate(who, 1):
        async with fenced_transaction(db, name, epoch) as connection:
            sealed_with = await fingerprints(connection, name, clients.c.id == number)
            if not sealed_with and db.keys.find(name, client_id) is None:
                continue
            try:
                await asyncio.to_thread(db.keys.ensure, name, [client_id], sealed_with)
            except SettingsError:
                n_without_key += 1
                continue
            old = db.keys.key(name, client_id)
            new = await asyncio.to_thread(db.keys.make_next, name, client_id)
            n_sealed = await _seal_anew(connection, name, number, client_id, old, new)
            failpoint(Failpoint.IN_REKEY_TRANSACTION)
        failpoint(Failpoint.REKEYED)
        await asyncio.to_thread(db.keys.activate_next, name, client_id)
        failpoint(Failpoint.KEY_TAKEN_UP)
        n_clients, n_updates = n_clients + 1, n_updates + n_sealed
        on_client(done, len(who))
    return Rekeyed(n_clients, n_updates, n_without_key)


async def _seal_anew(
    connection: AsyncConnection, name: str, number: int, client_id: str, old: bytes, new: bytes
) -> int:
    """Encrypt a client's stored updates with its next key, within a transaction; return their number."""
    sealed = select(update_bodies.c.round, update_bodies.c.part, update_bodies.c.body).where(
        update_bodies.c.cipher == AES_256_GCM
    )
    replace = (
        update(update_bodies)
        .where(update_bodies.c.federation == name, update_bodies.c.round == bindparam("of_round"))
        .where(update_bodies.c.client == number, update_bodies.c.part == bindparam("of_part"))
        .values(body=bindparam("new_body"), key_fingerprint=fingerprint(new))
    )
    places = await places_of(connection, number)
    update_ids = {place.round: place.update_id for place in places}
    n_sealed = 0
    for page in pages_of(places, _PAGE):
        changed = []
        for row in await connection.execute(sealed.where(*page)):
            associated = associated_data(name, row.round, client_id, update_ids[row.round])
            anew = encrypt(new, decrypt(old, row.body, associated), associated)
            changed.append({"of_round": row.round, "of_part": row.part, "new_body": anew})
        if changed:
            await connection.execute(replace, changed)
        n_sealed += len(changed)
    return n_sealed
