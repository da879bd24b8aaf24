"""The store of secure sums, as the single writer of a federation needs it (`storage.sum_store`)."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from foltr.errors import UnavailableError
from foltr.protocol.helper_messages import TicketFault
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


class SumStore(Protocol):
    """What is stored of secure sums: each method is one transaction, named as in `storage`, and safe to do again.

    Raises:
        WriterFencedError, ProtocolViolationError: as from `federator.store.FederationStore`.
    """

    def unavailable(self, error: Exception) -> UnavailableError:
        """Say in one line which database failed, why, and what to do."""

    async def load_policies(self) -> list[PolicyRow]: ...

    async def adopt_policy(self, new: NewPolicy) -> None: ...

    async def load_tickets(self, number: int) -> list[TicketRow]: ...

    async def load_masked(self, number: int, cohort: int, positions: Collection[int]) -> dict[int, bytes]: ...

    async def count_failed_rounds(self, policy_hash: bytes) -> FailedRounds | None: ...

    async def begin_opening(
        self, number: int, sets: Collection[NewSet], faults: Mapping[str, TicketFault], noted: Sequence[NewEvent]
    ) -> None: ...

    async def store_answers(self, number: int, answers: Collection[NewAnswer]) -> None: ...

    async def answered_sets(self, number: int) -> set[tuple[str, int]]: ...

    async def begin_summing(self, number: int, masked_sums: Mapping[int, bytes], n_helpers: int) -> None: ...

    async def load_sums(self, number: int) -> list[RoundSumRow]: ...

    async def load_answers(self, number: int) -> list[HelperAnswerRow]: ...
