"""A federation with one update, sealed with a data key: what nobody with another folder of keys can open."""

from datetime import UTC, datetime

from support.stored_rounds import founded

from foltr.storage.database import Database
from foltr.storage.records import RoundOpening


async def add_sealed_update(db: Database, federation: str) -> None:
    """Make the federation, and one round with an update of the client ``a``."""
    now = datetime.now(UTC)
    stored = await founded(db, federation, RoundOpening(1, 0, 1, 10, 0.0, 60.0, now, now))
    await stored.join("a")
    await stored.open()
    await stored.commit(updates=[stored.update("a", now, update_id="0" * 32)])
