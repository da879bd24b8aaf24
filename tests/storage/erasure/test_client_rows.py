"""Where a database still has a client's name."""

from support.erasure_database import NAME, STAYED, WAITING, made_erasures

from foltr.storage.database import Database
from foltr.storage.erasure.client_rows import rows_of


async def test_the_rows_of_a_client_are_counted_by_table(migrated_url: str) -> None:
    """Of a member its own; of a client that was forgotten none but its erasure's, until its device was told."""
    await made_erasures(migrated_url)
    async with await Database.connect(migrated_url) as db:
        assert await rows_of(db, NAME, STAYED) == {"clients": 1, "updates": 2, "update_bodies": 2}
        assert await rows_of(db, NAME, WAITING) == {"clients": 1, "erasures": 1}
        assert await rows_of(db, NAME, "nobody") == {}
