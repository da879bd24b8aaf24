"""The situation of a federation's newest round: its updates, whom it waits for, and whether the federator runs."""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Literal

from foltr.core.aggregation.vote_result import VoteResult
from foltr.core.protocol.client_selection import is_selected
from foltr.core.protocol.heartbeat import FederatorStatus
from foltr.core.protocol.states import RoundState
from foltr.core.protocol.verdicts import Finding
from foltr.storage.ingest_records import WorkersRow
from foltr.storage.leases import Lease
from foltr.storage.records import RoundRow
from foltr.storage.sum_records import FailedRounds

# A federator ends a due round within moments, but may wait for the database.
_DUE_TOLERANCE_S = 5.0
_SILENCE_S = 60.0
_MISSED_BEATS = 3
MOST_APART: Final = timedelta(seconds=5)
"""How far two clocks may differ without a finding."""

BrokerSays = Literal["there", "silent", "away", "unknown", "unreachable"]
FederatorState = Literal["active", "silent", "stopped"]


@dataclass(frozen=True)
class ReceivedStatus:
    """What a broker retains about a federation.

    Attributes:
        status: the federator's newest signed heartbeat, or None.
        devices: the connected devices that this user may see.
        unreachable: why the broker could not be asked.
        found: what is wrong with the broker's certificate.
    """

    status: FederatorStatus | None = None
    devices: list[str] = field(default_factory=list)
    unreachable: str | None = None
    found: Finding | None = None


@dataclass(frozen=True)
class Situation:
    """What the database knows about a federation's newest round at the moment ``at``, with the broker's additions.

    Attributes:
        round: the open round, else the newest; None if there has never been one.
        contributed: clients whose updates are in the round.
        online: members last known to be connected.
        quarantined: members whose updates are refused. They are not among those online.
        quarantined_online: those of them that are connected.
        refused: refused updates for this round, by reason code.
        last_activity: when anything of this federation was last stored.
        dated_until: the newest time stored, if it is in the future: a federator's clock was, or is, ahead.
        failed: secure rounds that have failed since the last one with a model.
        failed_why: why the newest of them failed. Names the helper at fault, if known.
        held_until: until when devices do not hear of a round that is held back after failures.
        policy_ends_at: when the policy of the open round ends, if that is soon or past; else None.
        votes: votes so far on the round's anchor; None if it has no anchor.
        taken_back: event text of the model taken back when the previous round was abandoned.
        workers: the ingest workers, present and requested; None if none were ever requested.
        lease: the leader's lease; None if no process has ever had it.
        standbys: processes that wait to lead.
        broker: the broker's answer about the federator: ``there``, ``silent``, ``away``, ``unknown``, or
            ``unreachable``; None if it was not asked.
        broker_detail: since when it is silent, or why the broker was not reached.
        broker_found: what is wrong with the broker's certificate, as who asked it sees it.
        connected: devices connected according to the broker, without revoked ones.
        revoked: clients whose enrolment was revoked.
    """

    at: datetime
    federation: str
    round: RoundRow | None
    contributed: list[str] = field(default_factory=list)
    online: list[str] = field(default_factory=list)
    quarantined: list[str] = field(default_factory=list)
    quarantined_online: list[str] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)
    started_at: datetime | None = None
    last_activity: datetime | None = None
    dated_until: datetime | None = None
    failed: FailedRounds | None = None
    failed_why: str = ""
    held_until: datetime | None = None
    policy_ends_at: datetime | None = None
    votes: VoteResult | None = None
    taken_back: str | None = None
    workers: WorkersRow | None = None
    lease: Lease | None = None
    standbys: list[str] = field(default_factory=list)
    broker: BrokerSays | None = None
    broker_detail: str = ""
    broker_found: Finding | None = None
    connected: list[str] = field(default_factory=list)
    revoked: list[str] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether no round is open any more."""
        return self.round is not None and self.round.state in (RoundState.COMPLETED, RoundState.ABANDONED)

    @property
    def awaited(self) -> list[str]:
        """Clients that are online, were asked and have not contributed."""
        contributed = set(self.contributed)
        return [client for client in self.online if client not in contributed and self._asked(client)]

    @property
    def n_not_asked(self) -> int:
        return sum(not self._asked(client) for client in self.online)

    @property
    def overdue_s(self) -> float | None:
        """Seconds since the round should have ended. None while it is in time, or if none is open."""
        row = self.round
        if row is None or row.state is not RoundState.COLLECTING:
            return None
        past = (self.at - row.closes_at).total_seconds()
        if self.is_enough:
            past = max(past, (self.at - row.opened_at).total_seconds() - row.min_time_s)
        return None if past < 0 else past

    @property
    def is_enough(self) -> bool:
        """Whether an open round has the updates that end it before its deadline; with a pace these are its target."""
        row = self.round
        if row is None:
            return False
        return len(self.contributed) >= (row.min_clients if row.period_s is None else row.max_clients)

    @property
    def silence_s(self) -> float:
        """Seconds since anything was stored. 0 if nothing ever was."""
        return 0.0 if self.last_activity is None else max(0.0, (self.at - self.last_activity).total_seconds())

    @property
    def federator(self) -> FederatorState:
        """The federator's state: ``stopped`` if the broker says so, no round was ever opened, or something is overdue.

        ``silent`` without heartbeats, or if nothing was stored for a while and the broker does not confirm the
        federator. Otherwise ``active``.
        """
        if self.broker in ("away", "unknown") or (self.round is None and self.broker != "there"):
            return "stopped"
        overdue = self.overdue_s
        if overdue is not None and min(overdue, self.silence_s) > _DUE_TOLERANCE_S:
            return "stopped"
        is_silent = self.silence_s > _SILENCE_S
        if self.round is not None and self.round.state is RoundState.AGGREGATING and is_silent and not self.is_led:
            return "stopped"
        if self.broker == "silent":
            return "silent"
        if self.broker == "there" or self.is_led:
            return "active"
        if self.lease is not None and not self.is_over:
            return "stopped"
        return "silent" if is_silent else "active"

    @property
    def is_led(self) -> bool:
        """Whether a process holds the lease, and so runs and reaches the database."""
        return self.lease is not None and self.lease.is_held

    @property
    def led_by(self) -> str:
        """Describe who leads and how many stand by. Empty if no process has ever led."""
        if self.lease is None:
            return ""
        leader = f"led by {self.lease.holder}" if self.is_led else "nobody leads"
        n = len(self.standbys)
        return leader if n == 0 else f"{leader}, {n} {'stands' if n == 1 else 'stand'} by"

    def with_received(self, heard: ReceivedStatus | None) -> "Situation":
        """Add the broker's answer, if it was asked."""
        if heard is None:
            return self
        if heard.unreachable is not None:
            return replace(self, broker="unreachable", broker_detail=heard.unreachable, broker_found=heard.found)
        status, connected = heard.status, sorted(set(heard.devices).difference(self.revoked))
        if status is None:
            return replace(self, broker="unknown", connected=connected)
        if not status.online:
            return replace(self, broker="away", connected=connected)
        silent_s = self.at.timestamp() - status.at
        if silent_s > _MISSED_BEATS * status.interval_s:
            return replace(self, broker="silent", broker_detail=f"{silent_s:.0f} s", connected=connected)
        return replace(self, broker="there", connected=connected)

    def _asked(self, client_id: str) -> bool:
        row = self.round
        if row is None or row.selection_seed is None or row.selection_cutoff is None:
            return True
        return is_selected(row.selection_seed, row.selection_cutoff, client_id)
