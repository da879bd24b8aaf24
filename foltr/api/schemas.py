"""Response models, named like the tables' columns. None contains keys, seeds or weights."""

import json
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from foltr.core.aggregation.fates import Fate
from foltr.core.erasure.states import FORGET_STATE, UNTIL_ERASED, ErasureState, ForgetState, Requester
from foltr.core.protocol.orders import OrderReply
from foltr.core.protocol.states import JobState, Membership, OrderOutcome, Pacing, RoundState, Strategy
from foltr.core.protocol.verdicts import Level, Reason, Verdict, as_rows
from foltr.storage.erasure_records import ErasureRow
from foltr.storage.history_records import BodyState, RoundHistoryRow
from foltr.storage.pages import ClientLine

Hex = Annotated[str | None, BeforeValidator(lambda value: value.hex() if isinstance(value, bytes) else value)]
Parsed = Annotated[
    dict[str, Any], BeforeValidator(lambda value: json.loads(value) if isinstance(value, str) else value)
]


class RowModel(BaseModel):
    """A row as it is shown: fields of the row that are not here stay where they are."""

    model_config = ConfigDict(from_attributes=True, frozen=True)


class FindingRow(RowModel):
    """One reason why the federation is not well: who or what causes it, the next command, and the page about it."""

    reason: Reason
    level: Level
    sentence: str
    detail: str
    culprit: str
    culprit_is_client: bool
    since: datetime | None
    command: str
    runbook: str


class VerdictRow(RowModel):
    """Whether the federation is well, as in `foltr status`; the gravest finding comes first."""

    level: Level
    headline: str
    findings: list[FindingRow]

    @classmethod
    def of(cls, verdict: Verdict) -> Self:
        """Show a verdict."""
        findings = [FindingRow(**each) for each in as_rows(verdict)]
        return cls(level=verdict.level, headline=verdict.headline, findings=findings)


class Alive(RowModel):
    """That the server runs."""

    alive: Literal[True] = True


class Ready(RowModel):
    """That the database can be read, and how the federation is."""

    verdict: Level


class Round(RowModel):
    """A round; times in UTC, durations in seconds.

    ``n_worse``, ``n_none`` and ``n_better`` count votes that the federator sees. With secure sums these are 0, and
    ``tally_*`` are the sums of votes, each with noise of ``tally_deviation``.

    ``clicked``, ``reward`` and ``base_reward`` are means over its ``n_evaluations`` updates that say how well it does
    (`foltr.core.protocol.evaluations`); in secure sums over all updates, with noise of ``evaluation_deviation`` in
    each.

    ``n_erased`` of its updates were deleted since, with clients that were erased; ``n_updates`` has the others.
    """

    round: int
    state: RoundState
    reason: str | None
    opened_at: datetime
    closed_at: datetime | None
    duration_s: float | None
    base_version: int
    model_version: int | None
    n_updates: int
    n_interactions: int
    n_rejected: int
    min_clients: int
    max_clients: int
    min_time_s: float
    max_time_s: float
    pacing: Pacing
    n_selected: int | None
    n_eligible: int | None
    aggregation: str
    byzantine: float
    aggregation_parameters: Parsed
    aggregation_fallback: str
    rule: str | None
    fallback_reason: str | None
    n_clipped: int
    n_dropped: int
    anchor_version: int | None
    n_worse: int
    n_none: int
    n_better: int
    tally_n_updates: int | None
    tally_worse: float | None
    tally_better: float | None
    tally_deviation: float | None
    n_evaluations: int
    clicked: float | None
    reward: float | None
    base_reward: float | None
    evaluation_deviation: float | None
    n_erased: int = 0

    @classmethod
    def of(cls, row: RoundHistoryRow, n_erased: int) -> Self:
        """Show a round, and how many of its updates were deleted since."""
        return cls.model_validate(row).model_copy(update={"n_erased": n_erased})


class Aggregation(RowModel):
    """By which rule a round was aggregated, with what, and why not by another."""

    rule: str
    parameters: Parsed
    fallback_reason: str | None
    n_kept: int
    n_clipped: int
    n_dropped: int


class Contribution(RowModel):
    """What one client contributed to a round, and what the rule made of it."""

    client_id: str
    round: int
    update_id: str
    n_interactions: int
    n_bytes: int
    received_at: datetime
    base_version: int
    round_state: RoundState
    model_version: int | None
    fate: Fate | None
    share: float | None
    score: float | None
    fate_reason: str | None
    body: BodyState


class Event(RowModel):
    """Something that happened; ``n`` times in its minute."""

    id: int
    at: datetime
    kind: str
    code: str | None
    client_id: str | None
    round: int | None
    detail: str
    n: int


class WholeRound(RowModel):
    """A round with who contributed and what happened, at most a thousand of each."""

    round: Round
    aggregation: Aggregation | None
    contributions: list[Contribution]
    events: list[Event]
    n_erased: Annotated[int, Field(description="Updates erased since, with clients that were forgotten")]


class Client(RowModel):
    """A client, and where it stands now."""

    client_id: str
    membership: Membership
    online: bool
    joined_at: datetime | None
    left_at: datetime | None
    last_seen_at: datetime
    sdk_version: str | None
    enrolment_serial: int | None
    revoked_at: datetime | None
    quarantined_at: datetime | None
    quarantine_reason: str | None
    counted_through: int


class ListedClient(Client):
    """A client with its contributions to the newest 100 rounds, and its refusals within the last hour by reason."""

    n_contributions: int
    refusals: dict[str, int]

    @classmethod
    def of(cls, line: ClientLine) -> Self:
        """Show a client of a page of clients."""
        shown = Client.model_validate(line.client).model_dump()
        return cls(**shown, n_contributions=line.n_contributions, refusals=dict(line.refusals))


class WholeClient(RowModel):
    """A client with what rules made of its updates and its newest contributions."""

    client: Client
    fates: dict[str, int]
    contributions: list[Contribution]


class Model(RowModel):
    """A version of the ranker, without its weights."""

    version: int
    base_version: int | None
    round: int | None
    n_values: int
    weights_hash: Hex
    created_at: datetime
    published_at: datetime | None
    tainted_at: datetime | None
    withdrawn_at: datetime | None
    unlearning_job: int | None
    restored_version: int | None


class Erasure(RowModel):
    """A client that is to be forgotten, by its pseudonym; ``erased_at`` is null until all of it is deleted."""

    pseudonym: str
    state: ErasureState
    forget_state: ForgetState
    requested_at: datetime
    requested_by: Requester
    erased_at: datetime | None
    completed_at: datetime | None
    n_rounds: int
    n_updates: int
    n_events: int
    erased_digest: str
    first_round: int | None
    key_destroyed: bool
    told: bool
    job: int | None
    receipt: str | None
    audit_seq: int | None
    overdue_at: datetime | None

    @classmethod
    def of(cls, row: ErasureRow) -> Self:
        """Return the state to show: an erasure is unfinished while its data key exists, even with no rows left."""
        fields = {field: getattr(row, field) for field in cls.model_fields if field != "forget_state"}
        if row.state in UNTIL_ERASED:
            fields |= {"state": ErasureState.ERASING, "erased_at": None}
        return cls(forget_state=FORGET_STATE[row.state], **fields)


class Job(RowModel):
    """An unlearning job: how far a model without forgotten clients is."""

    number: int
    state: JobState
    strategy: Strategy
    created_at: datetime
    start_version: int
    start_round: int
    step: int
    n_steps: int
    last_round: int | None
    reason: str | None
    closed_at: datetime | None
    model_version: int | None
    figures: Parsed


class AuditLine(RowModel):
    """An entry of the audit log."""

    seq: int
    at: datetime
    kind: str
    body: dict[str, Any]
    previous_hash: str
    hash: str


class GivenOrder(RowModel):
    """An order of the operator that the federator knows, and what became of it."""

    number: int
    kind: str
    digest: Hex
    outcome: OrderOutcome
    code: str | None
    detail: str
    client_id: str | None
    at: datetime


class OrderReceived(RowModel):
    """What became of an order that was posted; without ``reply`` the federator has not answered yet."""

    number: int
    digest: str
    reply: OrderReply | None = None
    code: str | None = None
    detail: str


class WishReceived(RowModel):
    """How far a client's wish to be forgotten is that was posted; ``sent``: the federator has not obeyed it yet."""

    state: ForgetState
    detail: str


class Mine(RowModel):
    """What the federation has of the client that asks: its membership, or its erasure once it was forgotten."""

    client_id: str
    client: Client | None
    fates: dict[str, int]
    erasure: Erasure | None
