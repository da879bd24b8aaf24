"""The store of one federation's secure sums in SQL: the transactions of `storage.sums`, bound to it."""

from collections.abc import Callable, Collection, Mapping, Sequence

from foltr.errors import UnavailableError
from foltr.protocol.helper_messages import TicketFault
from storage import policies, sums
from storage.database import Database
from storage.records import NewEvent
from storage.sum_records import (
    FailedRounds,
    HelperAnswerRow,
    NewAnswer,
    NewPolicy,
    NewSet,
    PolicyRow,
    RoundSumRow,
    TicketRow,
)


class SqlSumStore:
    """One federation's secure sums, in SQLite or PostgreSQL.

    Args:
        epoch: gives the claim that the federation's store writes under.
    """

    def __init__(self, db: Database, federation: str, epoch: Callable[[], int]) -> None:
        self._db = db
        self._name = federation
        self._epoch = epoch

    def unavailable(self, error: Exception) -> UnavailableError:
        """Say in one line which database failed, why, and what to do."""
        return self._db.unavailable(error)

    async def load_policies(self) -> list[PolicyRow]:
        return await policies.load_policies(self._db, self._name)

    async def adopt_policy(self, new: NewPolicy) -> None:
        await policies.adopt_policy(self._db, self._name, self._epoch(), new)

    async def load_tickets(self, number: int) -> list[TicketRow]:
        return await sums.load_tickets(self._db, self._name, number)

    async def load_masked(self, number: int, cohort: int, positions: Collection[int]) -> dict[int, bytes]:
        return await sums.load_masked(self._db, self._name, number, cohort, positions)

    async def count_failed_rounds(self, policy_hash: bytes) -> FailedRounds | None:
        return await sums.count_failed_rounds(self._db, self._name, policy_hash)

    async def begin_opening(
        self, number: int, sets: Collection[NewSet], faults: Mapping[str, TicketFault], noted: Sequence[NewEvent]
    ) -> None:
        await sums.begin_opening(self._db, self._name, self._epoch(), number, sets, faults, noted)

    async def store_answers(self, number: int, answers: Collection[NewAnswer]) -> None:
        await sums.store_answers(self._db, self._name, self._epoch(), number, answers)

    async def answered_sets(self, number: int) -> set[tuple[str, int]]:
        return await sums.answered_sets(self._db, self._name, number)

    async def begin_summing(self, number: int, masked_sums: Mapping[int, bytes], n_helpers: int) -> None:
        await sums.begin_summing(self._db, self._name, self._epoch(), number, masked_sums, n_helpers)

    async def load_sums(self, number: int) -> list[RoundSumRow]:
        return await sums.load_sums(self._db, self._name, number)

    async def load_answers(self, number: int) -> list[HelperAnswerRow]:
        return await sums.load_answers(self._db, self._name, number)
