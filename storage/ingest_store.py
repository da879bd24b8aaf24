"""The ingestion of one federation in SQL: the transactions of leader and workers, bound to it."""

from collections.abc import Callable, Sequence
from datetime import datetime

from foltr.errors import UnavailableError
from storage import ingest, ingest_batches, orders
from storage.database import Database
from storage.ingest_records import Asked, CollectedUpdate, Ingested, Noted, NotNow, RoundFacts, TakenBack, WorkersRow
from storage.migrate import require_head
from storage.records import NewOrder


class SqlIngestStore:
    """What a leader shares with workers, in SQLite or PostgreSQL.

    Args:
        epoch: gives the claim that the federation's store writes under; None: a worker has none.
    """

    def __init__(self, db: Database, federation: str, epoch: Callable[[], int] | None = None) -> None:
        self.location = db.location
        self._db = db
        self._name = federation
        self._claim = epoch

    def _epoch(self) -> int:
        return 0 if self._claim is None else self._claim()

    def unavailable(self, error: Exception) -> UnavailableError:
        """Say in one line which database failed, why, and what to do."""
        return self._db.unavailable(error)

    # --- the leader's ---------------------------------------------------------------------------------------

    async def hand_over(self, n_answers: int, n_collected: int, *, evaluation: bool) -> None:
        await ingest.hand_over(self._db, self._name, self._epoch(), n_answers, n_collected, evaluation=evaluation)

    async def take_back(self) -> TakenBack:
        return await ingest.take_back(self._db, self._name, self._epoch())

    async def look_at_workers(self) -> WorkersRow | None:
        return await ingest.look_at_workers(self._db, self._name, None if self._claim is None else self._claim())

    async def list_collected(self, number: int, of: Sequence[int]) -> list[CollectedUpdate]:
        return await ingest.list_collected(self._db, self._name, number, of)

    # --- a worker's: it has no claim that a restore would end, and goes on in the file that is there by then ----

    async def find_keys(self, client_ids: frozenset[str]) -> dict[str, bytes | None]:
        return await ingest_batches.find_public_keys(self._db, self._name, client_ids)

    async def list_keys(self, after: int) -> tuple[dict[str, bytes | None], int]:
        return await ingest_batches.list_keys(self._db, self._name, after)

    async def find_facts(self) -> RoundFacts | None:
        return await ingest_batches.find_facts(self._db, self._name)

    async def require_head(self) -> None:
        await require_head(self._db)

    async def standing_orders(self) -> list[NewOrder]:
        return await orders.standing_orders(self._db, self._name, 0)

    async def take_updates(
        self,
        asked: Asked,
        decide: ingest_batches.Decide,
        known: RoundFacts | None = None,
        worker_id: str | None = None,
    ) -> Ingested | NotNow:
        await self._db.follow_file()
        return await ingest_batches.take_updates(self._db, self._name, asked, decide, known, worker_id)

    async def note_worker(self, worker_id: str, arrived_before: datetime) -> Noted:
        await self._db.follow_file()
        return await ingest.note_worker(self._db, self._name, worker_id, arrived_before)

    async def forget_worker(self, worker_id: str) -> None:
        await ingest.forget_worker(self._db, self._name, worker_id)
