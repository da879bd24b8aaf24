"""Reads from the database what the newest round of a federation is like, for `operations.why` and the overview."""

from collections.abc import Sequence
from datetime import UTC, datetime

from federator.summing.pause import held_until, let_go_at
from foltr.aggregation.standing import VOTE_ROUNDS, Standing, standing_of_tallies
from foltr.protocol.events import EventKind
from foltr.protocol.states import FOR_WANT_OF_HELPERS, AbandonReason, Membership
from operations.situation import Situation
from storage.activity import recent_rounds
from storage.activity_records import RecentRound
from storage.anchors import count_votes, list_tallies
from storage.database import Database
from storage.ingest import look_at_workers
from storage.leases import find_lease, list_standbys
from storage.queries import (
    count_rejections,
    last_activity,
    list_events,
    list_quarantined,
    online_members,
    started_at,
)
from storage.records import RoundRow
from storage.rounds import latest_round, load_open_round
from storage.sums import count_disagreements

NEWEST_ROUNDS = 1000
"""How far is looked back: also where helpers have been away for a day, the round that was given up is among these."""


async def read_situation(database: Database, name: str, *, recent: Sequence[RecentRound] | None = None) -> Situation:
    """Read the situation of a federation's newest round; what the broker says is not in it yet.

    Args:
        recent: the newest rounds, where they were read already.
    """
    found = await load_open_round(database, name)
    row, committed = (await latest_round(database, name), []) if found is None else found
    started = await started_at(database, name)
    at = datetime.now(UTC)
    n_disagreed, held = (0, None) if found is None else await _held_back(database, name, found[0], at)
    quarantined = [row for row in await list_quarantined(database, name) if row.membership is Membership.JOINED]
    if recent is None and row is not None and row.policy_hash is not None:
        recent = await recent_rounds(database, name, NEWEST_ROUNDS)
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
        last_activity=await last_activity(database, name),
        given_up=None if found is None else await _given_up(database, name, recent or (), started),
        held_until=held,
        n_disagreed=n_disagreed,
        votes=None if row is None else await _votes(database, row),
        taken_back=None if row is None else await _taken_back(database, row),
        workers=await look_at_workers(database, name),
        lease=await find_lease(database, name),
        standbys=await list_standbys(database, name),
    )


async def _votes(database: Database, row: RoundRow) -> Standing | None:
    """Count the votes on a round's anchor, with those that it has by now; None where it has none."""
    if row.anchor_version is None:
        return None
    if row.policy_hash is not None:
        return standing_of_tallies(await list_tallies(database, row.federation, row.anchor_version, VOTE_ROUNDS))
    return await count_votes(database, row.federation, row.anchor_version, row.number, VOTE_ROUNDS)


async def _taken_back(database: Database, row: RoundRow) -> str | None:
    """Find what was told of the round before this one, if its model was taken back."""
    kind, before = EventKind.MODEL_TAKEN_BACK, row.number - 1
    events = await list_events(database, row.federation, kind=kind, round_number=before, limit=1)
    return events[0].detail if events else None


async def _held_back(database: Database, name: str, row: RoundRow, now: datetime) -> tuple[int, datetime | None]:
    """Return how many rounds ended as verifiers disagreed since the last model, and until when the open one is held."""
    if row.policy_hash is None:
        return 0, None
    ended = await count_disagreements(database, name, row.policy_hash)
    paused = held_until(ended, now.timestamp())
    until = datetime.fromtimestamp(let_go_at(paused, row.closes_at.timestamp(), row.max_time_s), UTC)
    return ended.n_rounds, until if until > now else None


async def _given_up(
    database: Database, name: str, recent: Sequence[RecentRound], started: datetime | None
) -> str | None:
    """Say why the newest round that had updates ended, if it was for want of helpers, of this run of the federator."""
    ended = (each for each in recent if each.closed_at is not None and each.reason != AbandonReason.NO_UPDATES)
    newest = next(ended, None)
    if newest is None or newest.reason not in FOR_WANT_OF_HELPERS or newest.closed_at is None:
        return None
    if started is not None and started > newest.closed_at:
        return None  # a federator that starts again announces the open round at once
    events = await list_events(database, name, kind=EventKind.ROUND_ABANDONED, round_number=newest.number, limit=1)
    return f"{newest.reason}: {events[0].detail}" if events else str(newest.reason)
