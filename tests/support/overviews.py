"""Overviews of a federation that never ran, calm unless a test changes them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from foltr.core.protocol.states import Pacing, Privacy, RoundState
from foltr.operations.explanations import explain
from foltr.operations.overview import Activity, Overview
from foltr.operations.situation import Situation
from foltr.storage.activity_records import ErasureCounts, MemberCounts, NewestModel, RecentRefusals
from foltr.storage.records import RoundRow

NOW = datetime(2026, 1, 2, 3, 14, 5, tzinfo=UTC)
OPENED = NOW - timedelta(seconds=40)
ROUND = RoundRow(
    "mail", 12, RoundState.COLLECTING, 7, 5, 20, 30.0, 600.0, OPENED, OPENED + timedelta(seconds=600), None, None,
    None, None, None, Pacing.DEADLINE, 0, 0.5, None, None, None, None, "mean", 0.2, "{}", "median", anchor_version=4,
)  # fmt: skip
DEVICES = [f"device-{i:03d}" for i in range(1, 10)]
CALM = Situation(NOW, "mail", ROUND, DEVICES[:3], DEVICES, started_at=OPENED, last_activity=NOW - timedelta(seconds=2))


def overview(situation: Situation = CALM, **changed) -> Overview:
    """Six of twelve devices are awaited; ``changed`` are fields of the overview."""
    found = Overview(
        as_of=NOW,
        federation="mail",
        method="fpdgd",
        ranker="linear",
        n_features=46,
        privacy=Privacy.TRUSTED,
        federator=situation.federator,
        waits_for=explain(situation),
        situation=situation,
        members=MemberCounts(12, 9, 0, 0, 0),
        activity=Activity(NOW - timedelta(hours=1), 54, 2, 1080, 54.0, 1080.0),
        refusals=RecentRefusals(NOW - timedelta(hours=1), {}),
        model=NewestModel(7, 11, OPENED, OPENED, None, None, None),
        job=None,
        held_reset=None,
        erasures=ErasureCounts(0, 0, 0, 0, 0, None),
        budget=None,
        suspects=[],
    )
    return replace(found, **changed)
