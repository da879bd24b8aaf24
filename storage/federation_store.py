"""The store of one federation in SQL, as its single writer has it: the transactions of this package, bound to it."""

import asyncio
from collections.abc import Collection, Sequence
from datetime import datetime

from foltr.aggregation.effectiveness import RoundReward
from foltr.aggregation.standing import RoundTally, Standing
from foltr.erasure.audit import AuditEntry
from foltr.errors import UnavailableError
from foltr.failpoints import Failpoint, failpoint
from foltr.protocol.announcements import MOST_NAMED
from foltr.protocol.states import Privacy, TakesUpdates
from foltr.protocol.trainings import Activation
from storage import (
    anchors,
    arrivals,
    body_parts,
    evaluations,
    federations,
    models,
    orders,
    retention,
    rounds,
    suspects,
    trainings,
)
from storage.database import Database
from storage.erasure import audit_log, erasures, gathering, unlearning_jobs
from storage.erasure.client_rows import NAMING_TABLES
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
from storage.leases import Claimant
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


class SqlFederationStore:
    """One federation's store, in SQLite or PostgreSQL.

    Args:
        claimant: who has the federation's lease with its claim; None: whoever had it before.
        takes_updates: who stores updates under its claim.

    Attributes:
        location: where it is, in words that hold no password.
        epoch: the claim it writes under; 0 before `claim_federation`.
    """

    def __init__(
        self,
        db: Database,
        federation: str,
        claimant: Claimant | None = None,
        takes_updates: TakesUpdates = TakesUpdates.WRITER,
    ) -> None:
        self._takes_updates = takes_updates
        self.location = db.location
        self.epoch = 0
        self._db = db
        self._name = federation
        self._claimant = claimant

    def unavailable(self, error: Exception) -> UnavailableError:
        """Say in one line which database failed, why, and what to do."""
        return self._db.unavailable(error)

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
    ) -> None:
        await federations.create_federation(
            self._db,
            self._name,
            n_features,
            ranker,
            initial_weights,
            now,
            selection_seed,
            aggregation_seed=aggregation_seed,
            pseudonym_key=pseudonym_key,
            method=method,
            hidden=hidden,
            activation=activation,
            privacy=privacy,
            schema_hash=schema_hash,
            first_model_is_chosen=first_model_is_chosen,
        )

    async def claim_federation(self, at: float) -> int:
        self.epoch = await federations.claim_federation(self._db, self._name, at, self._claimant, self._takes_updates)
        # Within what is tried again: a claim whose answer was lost is made once more, and the later one holds.
        failpoint(Failpoint.FEDERATION_CLAIMED)
        return self.epoch

    async def require_writer(self) -> None:
        await federations.require_writer(self._db, self._name, self.epoch)

    async def get_federation(self) -> FederationRow | None:
        return await federations.get_federation(self._db, self._name)

    async def load_clients(self) -> list[ClientRow]:
        return await arrivals.load_clients(self._db, self._name)

    async def forget_presence(self) -> None:
        await arrivals.forget_presence(self._db, self._name, self.epoch)

    async def latest_model(self) -> ModelRow | None:
        return await models.latest_model(self._db, self._name)

    async def model_hashes(self, since: int) -> dict[int, bytes]:
        return await models.model_hashes(self._db, self._name, since)

    async def newest_unlearned(self) -> int:
        return await models.newest_unlearned(self._db, self._name)

    async def restored_versions(self) -> list[RestoredVersion]:
        return await models.restored_versions(self._db, self._name)

    async def get_anchor(self, version: int) -> ModelRow | None:
        return await models.get_anchor(self._db, self._name, version)

    async def count_votes(self, anchor_version: int, number: int, n_rounds: int) -> Standing:
        return await self._db.run(anchors.count_votes, self._name, anchor_version, number, n_rounds)

    async def list_tallies(self, anchor_version: int, n_rounds: int) -> list[RoundTally]:
        return await anchors.list_tallies(self._db, self._name, anchor_version, n_rounds)

    async def list_rewards(self, since_version: int, number: int) -> list[RoundReward]:
        return await self._db.run(evaluations.list_rewards, self._name, since_version, number)

    async def count_suspects_alone(self, number: int) -> int:
        return await self._db.run(suspects.count_suspects_alone, self._name, number)

    async def restore_anchor(self, restoration: Restoration) -> None:
        await anchors.restore_anchor(self._db, self._name, self.epoch, restoration)

    # --- what arrives -----------------------------------------------------------------------------------------

    async def commit_batch(self, batch: Batch) -> None:
        await self._db.run(arrivals.commit_batch, self._name, self.epoch, batch)

    async def find_updates(self, identities: Collection[tuple[str, str]]) -> dict[tuple[str, str], StoredUpdate]:
        return await self._db.run(arrivals.find_updates, self._name, identities)

    async def find_orders(self, numbers: Collection[int]) -> dict[int, NewOrder]:
        return await orders.find_orders(self._db, self._name, numbers)

    async def standing_orders(self, after: int) -> list[NewOrder]:
        return await orders.standing_orders(self._db, self._name, after)

    # --- rounds -----------------------------------------------------------------------------------------------

    async def load_open_round(self) -> tuple[RoundRow, list[CountingUpdate]] | None:
        return await rounds.load_open_round(self._db, self._name)

    async def latest_round(self) -> RoundRow | None:
        return await rounds.latest_round(self._db, self._name)

    async def open_round(self, opening: RoundOpening) -> None:
        await rounds.open_round(self._db, self._name, self.epoch, opening)

    async def note_training(self, from_round: int, training: str) -> None:
        await trainings.note_training(self._db, self._name, self.epoch, from_round, training)

    async def load_trainings(self) -> dict[int, str]:
        return await trainings.load_trainings(self._db, self._name)

    async def begin_aggregation(self, number: int) -> None:
        await self._db.run(rounds.begin_aggregation, self._name, self.epoch, number)

    async def load_updates(
        self, number: int, after: str, limit: int, *, readable_only: bool = False
    ) -> list[UpdateRow]:
        return await self._db.run(rounds.load_updates, self._name, number, after, limit, readable_only=readable_only)

    async def complete_round(
        self, number: int, model: NewModel, closed_at: datetime, next_opening: RoundOpening | None = None
    ) -> None:
        await self._db.run(rounds.complete_round, self._name, self.epoch, number, model, closed_at, next_opening)

    async def abandon_round(
        self,
        number: int,
        reason: str,
        closed_at: datetime,
        next_opening: RoundOpening | None = None,
        noted: Sequence[NewEvent] = (),
    ) -> None:
        await self._db.run(rounds.abandon_round, self._name, self.epoch, number, reason, closed_at, next_opening, noted)

    async def prepare_part(self, open_round: int, n_rounds: int, interval: int) -> int:
        return await body_parts.prepare_part(self._db, self._name, self.epoch, open_round, n_rounds, interval)

    async def drop_old_part(
        self, before_round: int, interval: int, at: datetime, most_moved: int
    ) -> body_parts.DropStep:
        return await body_parts.drop_old_part(
            self._db, self._name, self.epoch, before_round, interval, at, most_moved=most_moved
        )

    async def delete_old_bodies(
        self, before_round: int, interval: int, *, first_round: int = 1, limit: int = 500
    ) -> retention.RetentionStep:
        return await retention.delete_old_bodies(
            self._db, self._name, self.epoch, before_round, interval, first_round=first_round, limit=limit
        )

    # --- erasures ---------------------------------------------------------------------------------------------

    async def erase_client(self, request: ErasureRequest) -> ErasureRow:
        return await erasures.erase_client(self._db, self._name, self.epoch, request)

    async def erase_more(self, pseudonym: str, at: datetime) -> ErasureRow:
        return await erasures.erase_more(self._db, self._name, self.epoch, pseudonym, at)

    async def find_erasure(self, pseudonym: str) -> ErasureRow | None:
        return await erasures.find_erasure(self._db, self._name, pseudonym)

    async def is_named(self, client_id: str) -> bool:
        return await erasures.is_named(self._db, self._name, client_id)

    async def waiting_erasures(self) -> list[ErasureRow]:
        return await erasures.waiting_erasures(self._db, self._name)

    async def gathered(self) -> Gathered:
        return await gathering.gathered(self._db, self._name)

    async def note_overdue(self, requested_before: datetime, at: datetime) -> int:
        return await gathering.note_overdue(self._db, self._name, self.epoch, requested_before, at)

    async def hold_reset(self, job: int, at: datetime) -> HeldReset | None:
        return await gathering.hold_reset(self._db, self._name, self.epoch, job, at)

    async def find_reset(self, job: int) -> HeldReset | None:
        return await gathering.find_reset(self._db, self._name, job)

    async def unfinished_erasures(self) -> list[ErasureRow]:
        return await erasures.unfinished_erasures(self._db, self._name)

    async def forgotten_pseudonyms(self) -> set[str]:
        return await erasures.forgotten_pseudonyms(self._db, self._name)

    async def destroy_key(self, client_id: str, fingerprint: bytes | None) -> bool:
        """Destroy the client's data key; False if it was not found, or the database has no keys."""
        keys = self._db.keys
        return keys is not None and await asyncio.to_thread(keys.destroy, self._name, client_id, fingerprint)

    async def note_key_destroyed(self, pseudonym: str, *, destroyed: bool = True) -> ErasureRow:
        return await erasures.note_key_destroyed(self._db, self._name, self.epoch, pseudonym, destroyed=destroyed)

    async def note_told(self, pseudonym: str) -> None:
        await erasures.note_told(self._db, self._name, self.epoch, pseudonym)

    async def drop_untold_names(self, erased_before: datetime) -> int:
        return await erasures.drop_untold_names(self._db, self._name, self.epoch, erased_before)

    async def complete_erasure(self, pseudonym: str, completed_at: datetime, sign: Sign) -> ErasureRow:
        return await erasures.complete_erasure(self._db, self._name, self.epoch, pseudonym, completed_at, sign)

    async def audit_entry(self, seq: int | None = None) -> AuditEntry | None:
        return await audit_log.find_audit_entry(self._db, self._name, seq)

    async def deletions_to_purge(self) -> int | None:
        return await erasures.deletions_to_purge(self._db, self._name)

    async def note_purge(self, n_deletions: int) -> None:
        await erasures.note_purge(self._db, self._name, self.epoch, n_deletions)

    async def purge(self) -> bool:
        """Leave no byte of a forgotten name in the database's files; False where it is to be done again."""
        return await self._db.purge(*NAMING_TABLES)

    # --- unlearning jobs --------------------------------------------------------------------------------------

    async def create_job(self, new: NewJob) -> UnlearningJobRow:
        return await unlearning_jobs.create_job(self._db, self._name, self.epoch, new)

    async def load_job(self, number: int | None = None) -> UnlearningJobRow | None:
        return await unlearning_jobs.load_job(self._db, self._name, number)

    async def list_jobs(self, limit: int = 100) -> list[UnlearningJobRow]:
        return await unlearning_jobs.list_jobs(self._db, self._name, limit)

    async def job_erasures(self, number: int) -> list[ErasureRow]:
        return await unlearning_jobs.job_erasures(self._db, self._name, number)

    async def job_entries(self, number: int, limit: int = MOST_NAMED) -> list[AuditEntry]:
        return await unlearning_jobs.job_entries(self._db, self._name, number, limit)

    async def commit_step(self, number: int, step: JobStep) -> None:
        await unlearning_jobs.commit_step(self._db, self._name, self.epoch, number, step)

    async def pause_job(self, number: int, reason: str) -> None:
        await unlearning_jobs.pause_job(self._db, self._name, self.epoch, number, reason)

    async def resume_job(self, number: int) -> None:
        await unlearning_jobs.resume_job(self._db, self._name, self.epoch, number)

    async def fail_job(self, number: int, reason: str, closed_at: datetime, noted: Sequence[NewEvent] = ()) -> None:
        await unlearning_jobs.fail_job(self._db, self._name, self.epoch, number, reason, closed_at, noted)

    async def complete_job(self, number: int, completion: JobCompletion, sign: Sign) -> list[ErasureRow]:
        return await unlearning_jobs.complete_job(self._db, self._name, self.epoch, number, completion, sign)

    async def last_clean_model(self, before_round: int) -> ModelRow | None:
        return await unlearning_jobs.last_clean_model(self._db, self._name, before_round)

    async def first_round_on(self, version: int) -> int | None:
        return await rounds.first_round_on(self._db, self._name, version)

    async def list_taught_rounds(self, first: int, limit: int) -> list[RoundRow]:
        return await unlearning_jobs.list_taught_rounds(self._db, self._name, first, limit)

    async def list_stored_rounds(self, first: int, limit: int) -> list[int]:
        return await unlearning_jobs.list_stored_rounds(self._db, self._name, first, limit)
