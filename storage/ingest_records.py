"""The plain values of ingest workers: what they decide by, and what leader and workers exchange through SQL."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from foltr.core.protocol.states import TakesUpdates
from foltr.storage.records import ClientRow, CountingUpdate, NewEvent, NewUpdate, RoundRow, StoredUpdate
from foltr.storage.restored_records import RestoredVersion


@dataclass(frozen=True, slots=True)
class WorkersRow:
    """The state of workers, read without a lock.

    Attributes:
        takes_updates: who does at present.
        n_collected: updates of the open round, while workers take them.
        n_workers: those seen lately.
        arrived_before: messages that reached any of these before are stored or answered; None without workers.
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
class WorkerResults:
    """What workers have left when the leader takes updates by itself again.

    Attributes:
        n_answers: numbered so far under its claim.
        n_collected: updates of the open round.
        clients: whose updates workers have stored meanwhile, by their keys in the database.
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
    """The clients and updates of a batch.

    Attributes:
        identities: (client_id, update_id) of the updates.
    """

    client_ids: frozenset[str]
    identities: frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class RoundFacts:
    """What does not change while one writer has one round open: read once, identified by its first four fields.

    Attributes:
        n_deletions: of forgotten clients' data, so far.
        training: the settings of the method, JSON; None if none are stored.
        model_hashes: by version, of the models that an update may be based on.
        oldest_base, restored: as in `foltr.federator.deciding.state.FederationState`.
        pseudonym_key: of the pseudonyms of forgotten clients.
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
class DecisionInputs:
    """What a batch of updates is decided by, read while the federation's row is held.

    Attributes:
        round: the open one.
        clients: those in the batch that ever joined.
        stored: which of its updates are stored.
        collected: these clients' updates that count in the round, which has ``n_collected`` in all.
        roster: the operator's, if the batch names somebody who is not a client; else None, since nobody needs it.
        forgotten: the pseudonyms of the forgotten clients among them.
        evaluation: whether devices should report their users' rewards.
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
    """A worker's decision on a batch, about to be stored; so many devices are answered.

    Attributes:
        arrived_before: with it all messages that reached the worker before this are stored or answered.
    """

    updates: Sequence[NewUpdate]
    events: Sequence[NewEvent]
    n_answers: int
    arrived_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class Ingested:
    """A stored batch: its answers have the numbers from ``first_answer`` on under the claim ``epoch``.

    Attributes:
        may_end_at: the moments at which the open round may end: once it has a quorum, and its deadline.
    """

    epoch: int
    first_answer: int
    n_collected: int
    may_end_at: Sequence[datetime]


@dataclass(frozen=True, slots=True)
class IngestNotAllowed:
    """Workers take no updates at present: another process does, or the round is full and should end."""

    takes_updates: TakesUpdates
