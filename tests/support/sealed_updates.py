"""A federation with one update, sealed with a data key: what nobody with another folder of keys can open."""

from datetime import UTC, datetime

from foltr.storage.arrivals import commit_batch
from foltr.storage.database import Database
from foltr.storage.federations import claim_federation, create_federation
from foltr.storage.records import Batch, MembershipChange, NewUpdate, RoundOpening
from foltr.storage.rounds import open_round


async def add_sealed_update(db: Database, federation: str) -> None:
    """Make the federation, and one round with an update of the client ``a``."""
    now = datetime.now(UTC)
    await create_federation(db, federation, 1, "linear", bytes(4), now)
    epoch = await claim_federation(db, federation, 0.0)
    await commit_batch(db, federation, epoch, Batch(membership=[MembershipChange("a", "joined", now)]))
    await open_round(db, federation, epoch, RoundOpening(1, 0, 1, 10, 0.0, 60.0, now, now))
    update = NewUpdate(
        round=1,
        client_id="a",
        update_id="0" * 32,
        base_version=0,
        covers_after=0,
        covers_through=1,
        n_interactions=1,
        encoding="dense_f32",
        body=bytes(4),
        received_at=now,
    )
    await commit_batch(db, federation, epoch, Batch(updates=[update]))
