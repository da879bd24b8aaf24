"""The plain values of ingest workers: what they decide by, and what leader and workers tell each other in SQL."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from foltr.core.protocol.states import TakesUpdates
from foltr.storage.records import ClientRow, CountingUpdate, NewEvent, NewUpdate, RoundRow, StoredUpdate
from foltr.storage.restored_records import RestoredVersion


@dataclass(frozen=True, slots=True)
class WorkersRow:
    """How workers are, read without a lock.

    Attributes:
        takes_updates: who does at present.
        n_collected: updates that the open round has, while workers take them.
        n_workers: those that were seen lately.
        arrived_before: what reached any of these before is stored or answered; None where there are none.
        now: by the database's clock.
    """

    takes_updates: TakesUpdates
    n_collected: int
    n_workers: int
    arrived_before: datetime | None
    now: datetime


@dataclass(frozen=True, slots=True)
class WorkerHeartbeat:
    """A worker is noted: the moments at which the open round may end, and the database's clock."""

    may_end_at: Sequence[datetime]
    now: datetime


@dataclass(frozen=True, slots=True)
class TakenBack:
    """What workers have left when the leader takes updates by itself again.

    Attributes:
        n_answers: numbered so far under its claim.
        n_collected: updates that the open round has.
        clients: whose updates workers have stored since it let them, by their keys in the database.
    """

    n_answers: int
    n_collected: int
    clients: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class CollectedUpdate:
    """An update that counts in the open round; its client's watermark is ``covers_through``."""

    client_id: str
    update_id: str
    covers_after: int
    covers_through: int
    cohort: int | None = None
    position: int | None = None


@dataclass(frozen=True, slots=True)
class BatchKeys:
    """The clients and the updates that a batch is about.

    Attributes:
        identities: (client_id, update_id) of the updates.
    """

    client_ids: frozenset[str]
    identities: frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class RoundFacts:
    """What does not change while one writer has one round open: read once, known by its first four.

    Attributes:
        n_deletions: of what forgotten clients had, so far.
        training: the settings of the method, JSON; None if none are stored.
        model_hashes: by version, of the models that an update may be based on.
        oldest_base, restored: as `foltr.federator.deciding.state.FederationState` has them.
        pseudonym_key: of the pseudonyms of who was forgotten.
    """

    epoch: int
    n_deletions: int
    number: int
    base_version: int
    training: str | None
    model_hashes: Mapping[int, bytes]
    oldest_base: int
    restored: Sequence[RestoredVersion]
    pseudonym_key: bytes


@dataclass(frozen=True, slots=True)
class Ground:
    """What a batch of updates is decided by, as it is while the federation's row is held.

    Attributes:
        round: the open one.
        clients: those that the batch is about, as far as they ever joined.
        stored: which of its updates are stored.
        collected: what counts of these clients in the round, which has ``n_collected`` updates in all.
        roster: the operator's, where somebody is no client; else None: nobody looks into it.
        forgotten: the pseudonyms of those among them who were forgotten.
        evaluation: whether devices are asked what their users' lists earned.
    """

    facts: RoundFacts
    round: RoundRow
    clients: Sequence[ClientRow]
    stored: Mapping[tuple[str, str], StoredUpdate]
    collected: Sequence[CountingUpdate]
    n_collected: int
    roster: bytes | None
    forgotten: frozenset[str]
    evaluation: bool


@dataclass(frozen=True, slots=True)
class IngestDecision:
    """What a worker has decided on a batch, about to be stored: so many devices are answered.

    Attributes:
        arrived_before: with it all is stored or answered that reached the worker before that.
    """

    updates: Sequence[NewUpdate]
    events: Sequence[NewEvent]
    n_answers: int
    arrived_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class Ingested:
    """A batch is stored: its answers have the numbers from ``first_answer`` on under the claim ``epoch``.

    Attributes:
        may_end_at: the moments at which the open round may end: once it has a quorum, and its deadline.
    """

    epoch: int
    first_answer: int
    n_collected: int
    may_end_at: Sequence[datetime]


@dataclass(frozen=True, slots=True)
class NotNow:
    """Workers take no update at present: somebody else does, or the round has no place and is to end."""

    takes_updates: TakesUpdates
