"""Reads a federation's newest round from the database, for `foltr.operations.explanations` and the overview."""

from datetime import UTC, datetime

from foltr.core.aggregation.vote_result import VOTE_ROUNDS, VoteResult, result_of_tallies
from foltr.core.protocol.codec import open_envelope
from foltr.core.protocol.epochs import ends_soon
from foltr.core.protocol.events import EventKind
from foltr.core.protocol.policies import Policy
from foltr.core.protocol.states import Membership
from foltr.federator.summing.pause import held_until, released_at
from foltr.operations.situation import MOST_APART, Situation
from foltr.storage.anchors import count_votes, list_tallies
from foltr.storage.database import Database
from foltr.storage.ingest import look_at_workers
from foltr.storage.leases import find_lease, list_standbys
from foltr.storage.policies import load_policies
from foltr.storage.queries import (
    count_rejections,
    last_activity,
    list_events,
    list_quarantined,
    list_revoked,
    online_members,
    started_at,
)
from foltr.storage.records import RoundRow
from foltr.storage.rounds import latest_round, load_open_round
from foltr.storage.sum_records import FailedRounds
from foltr.storage.sums import count_failed_rounds


async def read_situation(database: Database, name: str) -> Situation:
    """Read the situation of a federation's newest round, without the broker's answer."""
    found = await load_open_round(database, name)
    row, committed = (await latest_round(database, name), []) if found is None else found
    started = await started_at(database, name)
    # One after the other: they tell whether this machine's clock is the database's, also where reading takes seconds.
    lease, at = await find_lease(database, name), datetime.now(UTC)
    failed = None if found is None or row is None else await _find_failed(database, name, row)
    quarantined = [row for row in await list_quarantined(database, name) if row.membership is Membership.JOINED]
    active, newest = await last_activity(database, name, datetime.now(UTC) + MOST_APART)
    return Situation(
        at=at,
        federation=name,
        round=row,
        contributed=[update.client_id for update in committed],
        online=await online_members(database, name),
        quarantined=[row.client_id for row in quarantined],
        quarantined_online=[row.client_id for row in quarantined if row.online],
        refused={} if row is None else await count_rejections(database, name, row.number),
        started_at=started,
        last_activity=active,
        dated_until=newest if newest != active else None,
        failed=failed,
        failed_why="" if failed is None else await _why_failed(database, name, failed),
        held_until=None if failed is None or row is None else _held_until(failed, row, at),
        policy_ends_at=None if row is None else await _policy_end(database, row, at),
        votes=None if row is None else await _votes(database, row),
        taken_back=None if row is None else await _taken_back(database, row),
        workers=await look_at_workers(database, name),
        lease=lease,
        standbys=await list_standbys(database, name),
        revoked=await list_revoked(database, name),
    )


async def _votes(database: Database, row: RoundRow) -> VoteResult | None:
    """Count the votes so far on a round's anchor. None if the round has no anchor."""
    if row.anchor_version is None:
        return None
    if row.policy_hash is not None:
        return result_of_tallies(await list_tallies(database, row.federation, row.anchor_version, VOTE_ROUNDS))
    return await count_votes(database, row.federation, row.anchor_version, row.number, VOTE_ROUNDS)


async def _taken_back(database: Database, row: RoundRow) -> str | None:
    """Return the event text of the previous round, if its model was rolled back."""
    kind, before = EventKind.MODEL_ROLLED_BACK, row.number - 1
    events = await list_events(database, row.federation, kind=kind, round_number=before, limit=1)
    return events[0].detail if events else None


async def _find_failed(database: Database, name: str, row: RoundRow) -> FailedRounds | None:
    return None if row.policy_hash is None else await count_failed_rounds(database, name, row.policy_hash)


async def _why_failed(database: Database, name: str, failed: FailedRounds) -> str:
    """Return why the newest of these rounds failed, from its event."""
    events = await list_events(database, name, kind=EventKind.ROUND_ABANDONED, round_number=failed.number, limit=1)
    return f"{failed.reason}: {events[0].detail}" if events else str(failed.reason)


def _held_until(failed: FailedRounds, row: RoundRow, now: datetime) -> datetime | None:
    """Return until when the open round is held back, or None if it is not."""
    paused = held_until(failed, now.timestamp())
    until = datetime.fromtimestamp(released_at(paused, row.closes_at.timestamp(), row.max_time_s), UTC)
    return until if until > now else None


async def _policy_end(database: Database, row: RoundRow, now: datetime) -> datetime | None:
    """Return when the open round's policy ends, if it ends soon or has ended."""
    known = await load_policies(database, row.federation) if row.policy_hash is not None else []
    signed = next((each.signed for each in known if each.hash == row.policy_hash), None)
    if signed is None:
        return None
    policy = open_envelope(signed).read(Policy)  # the federator has checked its signature
    return datetime.fromtimestamp(policy.ends_at, UTC) if ends_soon(policy, now.timestamp()) else None
