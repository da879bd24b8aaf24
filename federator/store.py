"""The store of a federation, as its single writer needs it: SQL behind it, or the dicts of a simulation."""

from collections.abc import AsyncIterator, Collection, Sequence
from datetime import datetime
from typing import Protocol

from foltr.aggregation.effectiveness import RoundReward
from foltr.aggregation.standing import RoundTally, Standing
from foltr.erasure.audit import AuditEntry
from foltr.errors import UnavailableError
from foltr.protocol.announcements import MOST_NAMED
from foltr.protocol.states import Privacy
from foltr.protocol.trainings import Activation
from storage.body_parts import DropStep
from storage.erasure.records import (
    ErasureRequest,
    ErasureRow,
    Gathered,
    HeldReset,
    JobCompletion,
    JobStep,
    NewJob,
    Sign,
    UnlearningJobRow,
)
from storage.records import (
    Batch,
    ClientRow,
    CountingUpdate,
    FederationRow,
    ModelRow,
    NewEvent,
    NewModel,
    NewOrder,
    RoundOpening,
    RoundRow,
    StoredUpdate,
    UpdateRow,
)
from storage.restored_records import Restoration, RestoredVersion
from storage.retention import RetentionStep

_UPDATES_AT_ONCE, _BYTES_AT_ONCE = 256, 32 * 1024 * 1024


class FederationStore(Protocol):
    """The store of one federation: each method is one transaction, named as in `storage`, and safe to do again.

    Once it has claimed the federation it holds the epoch, and every write proves that this is the latest claim.

    Raises:
        WriterFencedError: from a write, another federator has claimed the federation since.
        ProtocolViolationError: from a write that contradicts what is stored; nothing of it is kept.
    """

    location: str
    """Where it is, in words that hold no password."""
    epoch: int
    """The claim it writes under; 0 before `claim_federation`."""

    def unavailable(self, error: Exception) -> UnavailableError:
        """Say in one line which database failed, why, and what to do."""

    # --- the federation -------------------------------------------------------------------------------------

    async def create_federation(
        self,
        n_features: int,
        ranker: str,
        initial_weights: bytes,
        now: datetime,
        *,
        selection_seed: bytes,
        aggregation_seed: bytes,
        pseudonym_key: bytes,
        method: str,
        hidden: int | None,
        activation: Activation | None = None,
        privacy: Privacy,
        schema_hash: bytes | None = None,
        first_model_is_chosen: bool = False,
    ) -> None: ...

    async def claim_federation(self, at: float) -> int: ...

    async def require_writer(self) -> None:
        """Raise WriterFencedError where another federator has claimed the federation since; it only reads."""

    async def get_federation(self) -> FederationRow | None: ...

    async def load_clients(self) -> list[ClientRow]: ...

    async def forget_presence(self) -> None: ...

    async def latest_model(self) -> ModelRow | None: ...

    async def model_hashes(self, since: int) -> dict[int, bytes]: ...

    async def newest_unlearned(self) -> int: ...

    async def restored_versions(self) -> list[RestoredVersion]: ...

    async def get_anchor(self, version: int) -> ModelRow | None: ...

    async def count_votes(self, anchor_version: int, number: int, n_rounds: int) -> Standing: ...

    async def list_tallies(self, anchor_version: int, n_rounds: int) -> list[RoundTally]: ...

    async def list_rewards(self, since_version: int, number: int) -> list[RoundReward]: ...

    async def count_suspects_alone(self, number: int) -> int: ...

    async def restore_anchor(self, restoration: Restoration) -> None: ...

    # --- what arrives -----------------------------------------------------------------------------------------

    async def commit_batch(self, batch: Batch) -> None: ...

    async def find_updates(self, identities: Collection[tuple[str, str]]) -> dict[tuple[str, str], StoredUpdate]: ...

    async def find_orders(self, numbers: Collection[int]) -> dict[int, NewOrder]: ...

    async def standing_orders(self, after: int) -> list[NewOrder]: ...

    # --- rounds -----------------------------------------------------------------------------------------------

    async def load_open_round(self) -> tuple[RoundRow, list[CountingUpdate]] | None: ...

    async def latest_round(self) -> RoundRow | None: ...

    async def open_round(self, opening: RoundOpening) -> None: ...

    async def note_training(self, from_round: int, training: str) -> None: ...

    async def load_trainings(self) -> dict[int, str]: ...

    async def begin_aggregation(self, number: int) -> None: ...

    async def load_updates(
        self, number: int, after: str, limit: int, *, readable_only: bool = False
    ) -> list[UpdateRow]: ...

    async def complete_round(
        self, number: int, model: NewModel, closed_at: datetime, next_opening: RoundOpening | None = None
    ) -> None: ...

    async def abandon_round(
        self,
        number: int,
        reason: str,
        closed_at: datetime,
        next_opening: RoundOpening | None = None,
        noted: Sequence[NewEvent] = (),
    ) -> None: ...

    async def prepare_part(self, open_round: int, n_rounds: int, interval: int) -> int: ...

    async def drop_old_part(self, before_round: int, interval: int, at: datetime, most_moved: int) -> DropStep: ...

    async def delete_old_bodies(
        self, before_round: int, interval: int, *, first_round: int = 1, limit: int = 500
    ) -> RetentionStep: ...

    # --- erasures ---------------------------------------------------------------------------------------------

    async def erase_client(self, request: ErasureRequest) -> ErasureRow: ...

    async def erase_more(self, pseudonym: str, at: datetime) -> ErasureRow: ...

    async def find_erasure(self, pseudonym: str) -> ErasureRow | None: ...

    async def is_named(self, client_id: str) -> bool: ...

    async def waiting_erasures(self) -> list[ErasureRow]: ...

    async def gathered(self) -> Gathered: ...

    async def note_overdue(self, requested_before: datetime, at: datetime) -> int: ...

    async def hold_reset(self, job: int, at: datetime) -> HeldReset | None: ...

    async def find_reset(self, job: int) -> HeldReset | None: ...

    async def unfinished_erasures(self) -> list[ErasureRow]: ...

    async def forgotten_pseudonyms(self) -> set[str]: ...

    async def destroy_key(self, client_id: str, fingerprint: bytes | None) -> bool:
        """Destroy the client's data key, which lies outside the database; False if it was not found.

        Args:
            fingerprint: of the key that its updates were sealed with: no other is destroyed. None: with none.
        """

    async def note_key_destroyed(self, pseudonym: str, *, destroyed: bool = True) -> ErasureRow: ...

    async def note_told(self, pseudonym: str) -> None: ...

    async def drop_untold_names(self, erased_before: datetime) -> int: ...

    async def complete_erasure(self, pseudonym: str, completed_at: datetime, sign: Sign) -> ErasureRow: ...

    async def audit_entry(self, seq: int | None = None) -> AuditEntry | None:
        """Find an entry of the audit log; without a number the newest."""

    async def deletions_to_purge(self) -> int | None: ...

    async def note_purge(self, n_deletions: int) -> None: ...

    async def purge(self) -> bool:
        """Leave no byte of a forgotten name in the database's files; False where it is to be done again."""

    # --- unlearning jobs --------------------------------------------------------------------------------------

    async def create_job(self, new: NewJob) -> UnlearningJobRow: ...

    async def load_job(self, number: int | None = None) -> UnlearningJobRow | None: ...

    async def list_jobs(self, limit: int = 100) -> list[UnlearningJobRow]: ...

    async def job_erasures(self, number: int) -> list[ErasureRow]: ...

    async def job_entries(self, number: int, limit: int = MOST_NAMED) -> list[AuditEntry]: ...

    async def commit_step(self, number: int, step: JobStep) -> None: ...

    async def pause_job(self, number: int, reason: str) -> None: ...

    async def resume_job(self, number: int) -> None: ...

    async def fail_job(self, number: int, reason: str, closed_at: datetime, noted: Sequence[NewEvent] = ()) -> None: ...

    async def complete_job(self, number: int, completion: JobCompletion, sign: Sign) -> list[ErasureRow]: ...

    async def last_clean_model(self, before_round: int) -> ModelRow | None: ...

    async def first_round_on(self, version: int) -> int | None: ...

    async def list_taught_rounds(self, first: int, limit: int) -> list[RoundRow]: ...

    async def list_stored_rounds(self, first: int, limit: int) -> list[int]: ...


def updates_at_once(n_bytes: int) -> int:
    """How many updates of this length are read at once: few where they are large, as one is needed."""
    return max(1, min(_UPDATES_AT_ONCE, _BYTES_AT_ONCE // n_bytes))


async def stream_updates(
    store: FederationStore, number: int, at_once: int = _UPDATES_AT_ONCE, *, readable_only: bool = False
) -> AsyncIterator[UpdateRow]:
    """Read the updates of a round by client_id in byte order, ``at_once`` in a transaction.

    Args:
        readable_only: pass over updates that cannot be read.

    Raises:
        DataError: an update cannot be read.
    """
    last = ""
    while True:
        page = await store.load_updates(number, last, at_once, readable_only=readable_only)
        for row in page:
            yield row
        if len(page) < at_once:
            return
        last = page[-1].client_id
