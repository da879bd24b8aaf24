"""A federator's store: the transactions of `storage` for one federation, retried and measured.

A transaction is a function of `storage` that takes the database, the federation's name and, if it writes, the claim
that it proves. The store fills in these three; a caller names the transaction and its other arguments.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import structlog

from foltr.core.errors import UnavailableError
from foltr.core.failpoints import Failpoint, failpoint
from foltr.core.protocol.states import TakesUpdates
from foltr.federator.transaction_metrics import TransactionMetrics
from foltr.storage import (
    anchors,
    arrivals,
    body_parts,
    cipher,
    evaluations,
    federations,
    findings,
    ingest,
    ingest_batches,
    models,
    orders,
    policies,
    retention,
    rounds,
    sums,
)
from foltr.storage.database import Database, is_transient
from foltr.storage.erasure import audit_log, erasures, gathering, unlearning_jobs
from foltr.storage.erasure.client_rows import NAMING_TABLES
from foltr.storage.leases import Claimant
from foltr.storage.migrate import require_head
from foltr.storage.records import UpdateRow

log = structlog.get_logger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

PATIENCE_S: Final = 60.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
_UPDATES_AT_ONCE, _BYTES_AT_ONCE = 256, 32 * 1024 * 1024


class Transactions:
    """Makes transactions, each retried while the database is away: all are safe to repeat.

    Args:
        patience_s: how long one transaction is retried.
        watch: called for each try.

    Attributes:
        location: where the database is, without a password.
        epoch: the claim for writes; 0 without one.
    """

    def __init__(self, location: str, patience_s: float = PATIENCE_S, watch: TransactionMetrics | None = None) -> None:
        self.location = location
        self.epoch = 0
        self._patience_s = patience_s
        self._watch = watch

    def unavailable(self, error: Exception) -> UnavailableError:
        """Return a one-line error: which database failed, why, and what to do."""
        return UnavailableError(f"{self.location} cannot be used: {error}")

    async def make(self, transaction: Callable[[], Awaitable[T]], name: str = "", given: tuple[Any, ...] = ()) -> T:
        """Return a transaction's result; its name and arguments go to the watch.

        Raises:
            UnavailableError: the database was away for longer than the patience.
        """
        loop, watch = asyncio.get_running_loop(), self._watch
        deadline, pause_s = loop.time() + self._patience_s, _FIRST_PAUSE_S
        while True:
            try:
                return await (transaction() if watch is None else watch.measure(transaction, name, given))
            except Exception as error:
                if not is_transient(error):
                    raise
                cause = self.unavailable(error)
                if loop.time() >= deadline:
                    raise UnavailableError(
                        f"{cause}, then start the federator again: nothing accepted is lost "
                        f"(tried for {self._patience_s:g} s)"
                    ) from error
                log.warning("database_unavailable", cause=str(cause))
            await asyncio.sleep(random.uniform(0.5, 1) * pause_s)  # noqa: S311 (spreads retries, no secret)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _reads(
    transaction: Callable[Concatenate[Database, str, P], Coroutine[Any, Any, T]], *, frequent: bool = False
) -> Callable[Concatenate["FederationStore", P], Coroutine[Any, Any, T]]:
    """Make the method for a transaction that proves no claim; frequent ones are short and run by `Database.run`."""
    return _method(transaction, claims=False, frequent=frequent)


def _writes(
    transaction: Callable[Concatenate[Database, str, int, P], Coroutine[Any, Any, T]], *, frequent: bool = False
) -> Callable[Concatenate["FederationStore", P], Coroutine[Any, Any, T]]:
    """Make the method for a transaction that proves the store's claim; see `_reads`."""
    return _method(transaction, claims=True, frequent=frequent)


def _method(
    transaction: Callable[..., Coroutine[Any, Any, T]], *, claims: bool, frequent: bool
) -> Callable[..., Coroutine[Any, Any, T]]:
    async def method(self: "FederationStore", /, *args: Any, **kwargs: Any) -> T:
        def run() -> Coroutine[Any, Any, T]:
            known = (self.federation, self.epoch) if claims else (self.federation,)
            if frequent:
                return self.db.run(transaction, *known, *args, **kwargs)
            return transaction(self.db, *known, *args, **kwargs)

        return await self.make(run, transaction.__name__, (*args, *kwargs.values()))

    return method


class FederationStore(Transactions):
    """The SQLite or PostgreSQL store of one federation's single writer and ingest workers.

    Once it has claimed the federation it holds the epoch, and every write proves that this is the latest claim.

    Args:
        claimant: who gets the federation's lease with its claim; None leaves the lease as it is.
        takes_updates: who stores updates under its claim.

    Raises:
        WriterFencedError: from a write, another federator has claimed the federation since.
        ProtocolViolationError: from a write that contradicts stored state; nothing of it is stored.
    """

    def __init__(
        self,
        db: Database,
        federation: str,
        claimant: Claimant | None = None,
        takes_updates: TakesUpdates = TakesUpdates.WRITER,
        patience_s: float = PATIENCE_S,
        watch: TransactionMetrics | None = None,
    ) -> None:
        super().__init__(db.location, patience_s, watch)
        self.db = db
        self.federation = federation
        self._claimant = claimant
        self._takes_updates = takes_updates

    def unavailable(self, error: Exception) -> UnavailableError:
        return self.db.unavailable(error)

    # --- the federation -------------------------------------------------------------------------------------

    create_federation = _reads(federations.create_federation)

    async def claim_federation(self, at: float) -> int:
        """Become the only writer; see `foltr.storage.federations.claim_federation`."""

        async def claim() -> int:
            epoch = await federations.claim_federation(
                self.db, self.federation, at, self._claimant, self._takes_updates
            )
            # Inside the retry: a claim whose answer was lost is made again, and the later one holds.
            failpoint(Failpoint.FEDERATION_CLAIMED)
            return epoch

        self.epoch = await self.make(claim, "claim_federation", (at,))
        return self.epoch

    require_keys = _reads(cipher.require_keys)
    clients_without_key = _reads(findings.clients_without_key)
    require_writer = _writes(federations.require_writer)
    get_federation = _reads(federations.get_federation)
    load_clients = _reads(arrivals.load_clients)
    forget_presence = _writes(arrivals.forget_presence)
    latest_model = _reads(models.latest_model)
    model_hashes = _reads(models.model_hashes)
    newest_unlearned = _reads(models.newest_unlearned)
    restored_versions = _reads(models.restored_versions)
    get_anchor = _reads(models.get_anchor)
    count_votes = _reads(anchors.count_votes, frequent=True)
    list_tallies = _reads(anchors.list_tallies)
    count_suspects_alone = _reads(evaluations.count_suspects_alone, frequent=True)
    list_credits = _reads(evaluations.list_credits, frequent=True)
    list_credit_sums = _reads(evaluations.list_credit_sums, frequent=True)
    restore_anchor = _writes(anchors.restore_anchor)

    # --- what arrives ---------------------------------------------------------------------------------------

    commit_batch = _writes(arrivals.commit_batch, frequent=True)
    find_updates = _reads(arrivals.find_updates, frequent=True)
    find_orders = _reads(orders.find_orders)
    standing_orders = _reads(orders.standing_orders)

    # --- rounds ---------------------------------------------------------------------------------------------

    load_open_round = _reads(rounds.load_open_round)
    latest_round = _reads(rounds.latest_round)
    first_round_on = _reads(rounds.first_round_on)
    open_round = _writes(rounds.open_round)
    note_training = _writes(federations.note_training)
    load_trainings = _reads(federations.load_trainings)
    begin_aggregation = _writes(rounds.begin_aggregation, frequent=True)
    load_updates = _reads(rounds.load_updates, frequent=True)
    complete_round = _writes(rounds.complete_round, frequent=True)
    abandon_round = _writes(rounds.abandon_round, frequent=True)
    prepare_part = _writes(body_parts.prepare_part)
    drop_old_part = _writes(body_parts.drop_old_part)
    delete_old_bodies = _writes(retention.delete_old_bodies)

    # --- secure sums ----------------------------------------------------------------------------------------

    load_policies = _reads(policies.load_policies)
    adopt_policy = _writes(policies.adopt_policy)
    load_tickets = _reads(sums.load_tickets)
    load_masked = _reads(sums.load_masked)
    count_failed_rounds = _reads(sums.count_failed_rounds)
    begin_opening = _writes(sums.begin_opening)
    store_answers = _writes(sums.store_answers)
    answered_sets = _reads(sums.answered_sets)
    begin_summing = _writes(sums.begin_summing)
    load_sums = _reads(sums.load_sums)
    load_answers = _reads(sums.load_answers)

    # --- ingest workers: theirs prove no claim --------------------------------------------------------------

    hand_over = _writes(ingest.hand_over)
    take_back = _writes(ingest.take_back)
    look_at_workers = _writes(ingest.look_at_workers)
    list_collected = _reads(ingest.list_collected)
    find_public_keys = _reads(ingest_batches.find_public_keys)
    list_keys = _reads(ingest_batches.list_keys)
    find_facts = _reads(ingest_batches.find_facts)
    take_updates = _reads(ingest_batches.take_updates)
    note_worker = _reads(ingest.note_worker)
    forget_worker = _reads(ingest.forget_worker)

    async def require_head(self) -> None:
        """Raise SettingsError unless the tables have this version's form."""
        await self.make(partial(require_head, self.db), "require_head")

    # --- erasures -------------------------------------------------------------------------------------------

    erase_client = _writes(erasures.erase_client)
    erase_more = _writes(erasures.erase_more)
    find_erasure = _reads(erasures.find_erasure)
    is_named = _reads(erasures.is_named)
    waiting_erasures = _reads(erasures.waiting_erasures)
    unfinished_erasures = _reads(erasures.unfinished_erasures)
    forgotten_pseudonyms = _reads(erasures.forgotten_pseudonyms)
    gathered = _reads(gathering.gathered)
    note_overdue = _writes(gathering.note_overdue)
    hold_reset = _writes(gathering.hold_reset)
    find_reset = _reads(gathering.find_reset)
    note_key_destroyed = _writes(erasures.note_key_destroyed)
    note_told = _writes(erasures.note_told)
    drop_untold_names = _writes(erasures.drop_untold_names)
    complete_erasure = _writes(erasures.complete_erasure)
    audit_entry = _reads(audit_log.find_audit_entry)
    deletions_to_purge = _reads(erasures.deletions_to_purge)
    note_purge = _writes(erasures.note_purge)

    # These two are not transactions: the caller repeats what fails.

    async def destroy_key(self, client_id: str, fingerprint: bytes | None) -> bool:
        """Destroy the client's data key, which lies outside the database; False if it was not found.

        Args:
            fingerprint: of the key that encrypted its updates: no other is destroyed. None: without one.
        """
        keys = self.db.keys
        return keys is not None and await asyncio.to_thread(keys.destroy, self.federation, client_id, fingerprint)

    async def purge(self) -> bool:
        """Erase every byte of a forgotten name from the database's files; False if it must be repeated."""
        return await self.db.purge(*NAMING_TABLES)

    # --- unlearning jobs ------------------------------------------------------------------------------------

    create_job = _writes(unlearning_jobs.create_job)
    load_job = _reads(unlearning_jobs.load_job)
    list_jobs = _reads(unlearning_jobs.list_jobs)
    job_erasures = _reads(unlearning_jobs.job_erasures)
    job_entries = _reads(unlearning_jobs.job_entries)
    commit_step = _writes(unlearning_jobs.commit_step)
    pause_job = _writes(unlearning_jobs.pause_job)
    resume_job = _writes(unlearning_jobs.resume_job)
    fail_job = _writes(unlearning_jobs.fail_job)
    complete_job = _writes(unlearning_jobs.complete_job)
    last_clean_model = _reads(unlearning_jobs.last_clean_model)
    list_stored_rounds = _reads(unlearning_jobs.list_stored_rounds)


def updates_at_once(n_bytes: int) -> int:
    """How many updates of this length are read at once: few if they are large; at least one."""
    return max(1, min(_UPDATES_AT_ONCE, _BYTES_AT_ONCE // n_bytes))


async def stream_updates(
    store: FederationStore, number: int, at_once: int = _UPDATES_AT_ONCE, *, readable_only: bool = False
) -> AsyncIterator[UpdateRow]:
    """Read the updates of a round by client_id in byte order, ``at_once`` in a transaction.

    Args:
        readable_only: skip updates that cannot be read.

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
