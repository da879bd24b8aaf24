"""The overview of a federation: one reading of the database for `foltr status` and the HTTP API.

Its cost grows with the number of clients, the updates of the open round and the counted votes, not with history: only
the newest rounds, updates and events are read (`foltr.storage.activity`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import takewhile
from statistics import fmean

from foltr.core.errors import SettingsError
from foltr.core.protocol.codec import open_envelope
from foltr.core.protocol.events import EventKind
from foltr.core.protocol.policies import Policy
from foltr.core.protocol.states import AbandonReason, Privacy, RoundState
from foltr.core.protocol.verdicts import Finding, Reason
from foltr.operations.explanations import explain
from foltr.operations.reading import read_situation
from foltr.operations.situation import FederatorState, ReceivedStatus, Situation
from foltr.storage.activity import (
    count_erasures,
    count_members,
    happened_lately,
    newest_job,
    newest_model,
    older_database,
    recent_refusals,
    recent_rounds,
    refused_senders,
    revoked_since,
    unanswered_log_difference,
)
from foltr.storage.activity_records import (
    ErasureCounts,
    EvaluatedRound,
    JobProgress,
    LatelyHappened,
    MemberCounts,
    NewestModel,
    RecentRefusals,
    RecentRound,
    RefusedSender,
    RevokedClient,
)
from foltr.storage.database import Database
from foltr.storage.erasure.gathering import waiting_reset
from foltr.storage.erasure_records import HeldReset
from foltr.storage.evaluations import newest_evaluated
from foltr.storage.federations import get_federation
from foltr.storage.findings import load_findings
from foltr.storage.history_records import ProposalRow
from foltr.storage.policies import load_policies
from foltr.storage.queries import list_proposals

WINDOW = timedelta(hours=1)
"""Rounds, updates and refusals are counted over the last hour, or less if that exceeds the rows that are read."""
NEWEST_ROUNDS = 1000
_NEWEST_EVENTS = 5000
_REWARDED_BEFORE = 20
_LATELY = timedelta(minutes=5)
_MOST_REVOKED = 20
_OF_MINUTES = (EventKind.FEDERATOR_STARTED, EventKind.UNLEARNING_STEP_MISSED)
# Another model is in service in place of the round's base.
_ON_PURPOSE = (AbandonReason.UNLEARNED, AbandonReason.MODEL_ROLLED_BACK)


@dataclass(frozen=True, slots=True)
class Activity:
    """Recent activity.

    Attributes:
        since: an hour ago, or the end of the oldest round read if all of them ended within the hour.
        n_completed, n_abandoned: rounds that ended.
        n_updates: updates in completed rounds.
        completed_per_hour, updates_per_hour: the same as rates. None until a minute has passed since ``since`` or the
            first round.
    """

    since: datetime
    n_completed: int
    n_abandoned: int
    n_updates: int
    completed_per_hour: float | None
    updates_per_hour: float | None


@dataclass(frozen=True, slots=True)
class Budget:
    """The privacy budget under the newest policy, and an upper bound of what is spent.

    Attributes:
        policy_version: of the newest policy that the federator accepted.
        epsilon, delta: the cost of ``max_participations`` to a client.
        n_spent: rounds with updates under this policy, among the newest 1,000. No client has participated in more.
            Participations under earlier policies count too, but only the devices know those.
    """

    policy_version: int
    epsilon: float
    delta: float
    max_participations: int
    n_spent: int


@dataclass(frozen=True, slots=True)
class Effectiveness:
    """How well the ranker does, measured by the clicks of the devices' users.

    Attributes:
        newest: the newest completed round with evaluations.
        mean_before: the mean reward of up to 20 earlier rounds; None without any.
        n_before: how many these are.
    """

    newest: EvaluatedRound
    mean_before: float | None
    n_before: int


@dataclass(frozen=True)
class Overview:
    """The state of a federation.

    Attributes:
        as_of: when it was read. Everything refers to this moment.
        federator: `foltr.operations.situation.Situation.federator`, with the broker's answer if it was asked.
        waits_for: sentences on what the open round waits for, the most important first. The first is a headline.
        situation: the basis for that; ``situation.round`` is the open round, else the newest.
        effectiveness: None if no device was asked or none has answered.
        suspects: clients proposed for quarantine that the operator has not decided on.
        found_by_leader: what the leading federator finds wrong, or one that waits for its broker while nobody leads;
            void once it is gone.
        refused_senders: whose messages were refused within five minutes, the most first.
        revoked: clients revoked within the hour.
        lately: events within the hour that a verdict looks at; federators' starts and missed steps of unlearning
            within five minutes.
        log_differs: the newest report that the audit log lacks published entries, until the operator orders an erasure.
        database_older: the newest report that a later round was announced, until rounds have passed it.
        values: what the reader types for the placeholders of commands (`foltr.core.protocol.verdicts.Finding.command`).
        n_failed_in_a_row: of the newest ended rounds, those without a model since the last one with a model.
        n_empty_in_a_row: of these, the newest without any update.
        job: the open unlearning job, else the newest; None if there has never been one.
        held_reset: a job that waits for the operator's order.
        budget: None if the federator sees every update.
    """

    as_of: datetime
    federation: str
    method: str
    ranker: str
    n_features: int
    privacy: Privacy
    federator: FederatorState
    waits_for: list[str]
    situation: Situation
    members: MemberCounts
    activity: Activity
    refusals: RecentRefusals
    model: NewestModel | None
    job: JobProgress | None
    held_reset: HeldReset | None
    erasures: ErasureCounts
    budget: Budget | None
    suspects: list[ProposalRow]
    effectiveness: Effectiveness | None = None
    found_by_leader: list[Finding] = field(default_factory=list)
    refused_senders: list[RefusedSender] = field(default_factory=list)
    revoked: list[RevokedClient] = field(default_factory=list)
    lately: Mapping[EventKind, LatelyHappened] = field(default_factory=dict)
    n_failed_in_a_row: int = 0
    n_empty_in_a_row: int = 0
    log_differs: LatelyHappened | None = None
    database_older: LatelyHappened | None = None
    values: Mapping[str, str] = field(default_factory=dict)

    @property
    def found_now(self) -> list[Finding]:
        """What the leader found, while it leads.

        Without one they are of a process that waits for its broker, to lead (`foltr.federator.leading.keeper`).
        """
        return self.found_by_leader if self.situation.is_led or self.situation.standbys else []

    def with_received(self, heard: ReceivedStatus | None) -> "Overview":
        """Judge again with the broker's answer about the federator, if it was asked."""
        situation = self.situation.with_received(heard)
        has_no_broker = any(each.reason is Reason.BROKER_UNREACHABLE for each in self.found_now)
        if has_no_broker and situation.broker != "unreachable":
            # The broker may not have noticed yet, or know another federator: the database knows better.
            situation = replace(situation, broker=None)
        return replace(self, situation=situation, federator=situation.federator, waits_for=explain(situation))


async def read_overview(database: Database, name: str) -> Overview:
    """Read the state of a federation from one snapshot of the database.

    Raises:
        SettingsError: the database has no federation of this name.
        UnavailableError: the database cannot be reached.
    """
    async with database.snapshot():
        return await _read(database, name)


async def _read(database: Database, name: str) -> Overview:
    federation = await get_federation(database, name)
    if federation is None:
        raise SettingsError(f"federation: {database.location} has no federation {name!r}")
    recent = await recent_rounds(database, name, NEWEST_ROUNDS)
    situation = await read_situation(database, name)
    at = situation.at
    quarantined, failed = set(situation.quarantined), failed_rounds(recent)
    return Overview(
        as_of=at,
        federation=name,
        method=federation.method,
        ranker=federation.ranker,
        n_features=federation.n_features,
        privacy=federation.privacy,
        federator=situation.federator,
        waits_for=explain(situation),
        situation=situation,
        members=await count_members(database, name),
        activity=activity_of(recent, at),
        refusals=await recent_refusals(database, name, at - WINDOW, _NEWEST_EVENTS),
        model=await newest_model(database, name),
        job=await newest_job(database, name),
        held_reset=await waiting_reset(database, name),
        erasures=await count_erasures(database, name),
        budget=await _budget(database, name, recent),
        suspects=[each for each in await list_proposals(database, name) if each.client_id not in quarantined],
        effectiveness=await _effectiveness(database, name),
        found_by_leader=await load_findings(database, name),
        refused_senders=await refused_senders(database, name, at - _LATELY, _NEWEST_EVENTS),
        revoked=await revoked_since(database, name, at - WINDOW, _MOST_REVOKED),
        lately=await happened_lately(database, name, [EventKind.MODEL_ROLLED_BACK], at - WINDOW, _NEWEST_EVENTS)
        | await happened_lately(database, name, _OF_MINUTES, at - _LATELY, _NEWEST_EVENTS),
        n_failed_in_a_row=len(failed),
        n_empty_in_a_row=sum(1 for _ in takewhile(lambda each: not each.n_updates, failed)),
        database_older=await older_database(database, name),
        log_differs=await unanswered_log_difference(database, name),
    )


def failed_rounds(recent: Iterable[RecentRound]) -> list[RecentRound]:
    """Return the rounds without a model since the newest one with a model, unless they were abandoned on purpose.

    Args:
        recent: the newest rounds, newest first.
    """
    ended = (each for each in recent if each.closed_at is not None and each.reason not in _ON_PURPOSE)
    return list(takewhile(lambda each: each.state is RoundState.ABANDONED, ended))


def activity_of(recent: Sequence[RecentRound], at: datetime) -> Activity:
    """Count the rounds that ended within the hour before ``at``.

    Args:
        recent: the newest rounds, newest first, at most `NEWEST_ROUNDS`.
    """
    since = at - WINDOW
    closed = [each for each in recent if each.closed_at is not None]
    if len(recent) == NEWEST_ROUNDS and closed and closed[-1].closed_at is not None:
        since = max(since, closed[-1].closed_at)
    within = [each for each in closed if each.closed_at is not None and since <= each.closed_at <= at]
    completed = [each for each in within if each.state is RoundState.COMPLETED]
    n_updates = sum(each.n_updates or 0 for each in completed)
    begun = max(since, recent[-1].opened_at) if recent else at
    hours = (at - begun).total_seconds() / 3600
    n_completed, is_short = len(completed), hours < 1 / 60
    return Activity(
        since=since,
        n_completed=n_completed,
        n_abandoned=len(within) - n_completed,
        n_updates=n_updates,
        completed_per_hour=None if is_short else n_completed / hours,
        updates_per_hour=None if is_short else n_updates / hours,
    )


async def _effectiveness(database: Database, name: str) -> Effectiveness | None:
    evaluated = await newest_evaluated(database, name, 1 + _REWARDED_BEFORE)
    if not evaluated:
        return None
    newest, *before = evaluated
    mean = fmean(each.reward for each in before) if before else None
    return Effectiveness(newest, mean, len(before))


async def _budget(database: Database, name: str, recent: Sequence[RecentRound]) -> Budget | None:
    policies = await load_policies(database, name)
    if not policies:
        return None
    newest = policies[-1]
    policy = open_envelope(newest.signed).read(Policy)  # the federator has checked its signature
    spent = [each for each in recent if each.policy_hash == newest.hash and each.n_updates]
    return Budget(policy.version, policy.epsilon, policy.delta, policy.max_participations, len(spent))
