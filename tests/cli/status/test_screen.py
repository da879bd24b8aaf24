"""The one screen of ``foltr status``: it fits 80x24 whatever there is to say, and nothing of a word is cut."""

import itertools
from dataclasses import replace
from datetime import timedelta

from support.overviews import CALM, NOW, OPENED, overview

from foltr.cli.settings import Settings
from foltr.cli.status import federator_in_words, screen_lines, values_of
from foltr.core.aggregation.vote_result import VoteResult
from foltr.core.protocol.heartbeat import FederatorStatus
from foltr.core.protocol.states import JobState, Strategy
from foltr.operations.explanations import explain
from foltr.operations.overview import Budget, Effectiveness, Overview
from foltr.operations.situation import ReceivedStatus
from foltr.operations.verdict import judge
from foltr.storage.activity_records import (
    ErasureCounts,
    EvaluatedRound,
    JobProgress,
    MemberCounts,
    NewestModel,
    RecentRefusals,
)
from foltr.storage.erasure_records import HeldReset
from foltr.storage.history_records import ProposalRow
from foltr.storage.leases import Lease

LONG = "n" * 64


def everything() -> Overview:
    """All that can be said at once, in the longest names there are."""
    names = [f"{i}{LONG[1:]}" for i in range(9)]
    situation = replace(
        CALM,
        online=names,
        contributed=names[:2],
        quarantined=names[7:],
        quarantined_online=names[7:],
        refused={"late": 4, "stale": 1},
        votes=VoteResult(9, 40, 12, 8),
        broker="silent",
        broker_detail="301 s",
        connected=names,
    )
    return overview(
        replace(situation, federation=LONG),
        federation=LONG,
        members=MemberCounts(12, 9, 2, 1, 1),
        refusals=RecentRefusals(NOW - timedelta(minutes=3), {"late": 10, "malformed_message": 4, "not_selected": 2}),
        model=NewestModel(7, None, OPENED, None, OPENED, None, 4),
        job=JobProgress(3, JobState.PAUSED, Strategy.FED_ERASER, OPENED, 3, 40, "no device answers", None, None),
        held_reset=HeldReset(4, OPENED, 1, 900, 12_000, 300),
        erasures=ErasureCounts(0, 2, 1, 9, 1, NOW - timedelta(days=4)),
        budget=Budget(2, 8.0, 1e-6, 200, 40),
        suspects=[ProposalRow(name, 3, OPENED, 9, "far away") for name in names],
        effectiveness=Effectiveness(EvaluatedRound(2**31 - 1, 40, 1.0, -0.612, 0.581, 0.012), 0.6, 20),
    )


def test_it_fits_the_screen():
    """No line is longer and there are no more; on 80x24 also where there is everything to say."""
    known = (overview(), everything(), overview(replace(CALM, round=None)))
    for found, (width, height) in itertools.product(known, ((80, 24), (60, 24), (200, 50))):
        lines = screen_lines(found, width, height)
        assert len(lines) <= height
        assert max(map(len, lines)) <= width
        assert "…" not in "\n".join(lines)
    # What the round waits for is cut first; the rest has its lines.
    assert any(line.endswith("... all of it: foltr rounds why") for line in screen_lines(everything(), 80, 24))
    assert any(line.startswith("Suspects") for line in screen_lines(everything(), 80, 60))


def test_a_calm_federation_is_told_whole():
    """Which it is, as of when, what the round waits for, and how much goes on."""
    told = "\n".join(screen_lines(overview(), 80, 24))
    assert "as of 2026-01-02 03:14:05 UTC" in told.splitlines()[1]
    assert "Waits for  Round 12 has 3 updates of at least 5 (at most 20), opened 40 s ago." in told
    assert "Members    9 of 12 online" in told
    assert "54 completed, 2 abandoned in the last hour, with 1080 updates" in told
    assert "Refused    nothing in the last hour" in told
    assert "Model      7, of round 11, 40 s old" in told
    assert "all of it" not in told


def heard(seconds_ago: float, *, online: bool = True) -> ReceivedStatus:
    status = FederatorStatus(
        federation="mail", online=online, at=NOW.timestamp() - seconds_ago, interval_s=10.0, software_version="0.1"
    )
    return ReceivedStatus(status, ["device-001", "device-002"])


def test_whether_the_federator_is_there_and_who_says_so():
    """The broker's word before that of the database."""
    for known, said in (
        (None, "it ran when it last stored something; last stored 2 s ago"),
        (heard(3), "running, says the broker"),
        (heard(3, online=False), "not running, says the broker; 2 devices wait for it"),
        (heard(60), "hangs: no heartbeat for 60 s"),
        (ReceivedStatus(), "not running: the broker knows of none"),
        (ReceivedStatus(unreachable="refused"), "it ran when it last stored something (the broker cannot be reached)"),
    ):
        assert said in federator_in_words(overview().with_received(known).situation), known


def test_a_time_in_the_future_is_said_to_be_one():
    """It is no sign of life: neither on the screen, nor in the verdict, nor in what the round waits for."""
    ahead = replace(CALM, dated_until=NOW + timedelta(minutes=59))
    told = "Rows are dated up to 59 min in the future, by a clock that is or was ahead; they do not count as activity"
    assert f"last stored 2 s ago; {told}" in federator_in_words(ahead)
    assert f"{told}." in explain(ahead)
    down = overview(ahead).with_received(heard(3, online=False))
    assert f"Nothing was stored for 2 s. {told}." in " ".join(each.detail for each in judge(down).findings)
    only = replace(ahead, last_activity=None)
    assert federator_in_words(only).endswith(told)
    assert "ever" not in judge(overview(only).with_received(heard(3, online=False))).headline


def test_a_command_to_type_never_has_a_password(monkeypatch, tmp_path):
    """The variable has it, if the URL comes from there; else it is masked, and the person who knows it puts it in."""
    monkeypatch.chdir(tmp_path)
    url = "postgresql://foltr:s3cret@north/foltr"
    assert values_of(Settings(db_url=url)) == {"URL": "'postgresql://foltr:***@north/foltr'"}
    monkeypatch.setenv("FOLTR_DB_URL", url)
    assert values_of(Settings(db_url=url)) == {"URL": '"$FOLTR_DB_URL"'}
    assert values_of(Settings(db_url="sqlite:///my file")) == {"URL": "'sqlite:///my file'"}
    assert values_of(Settings(credentials="me.json"))["FILE"] == "me.json"
    (tmp_path / "foltr-operator").mkdir()
    (tmp_path / "foltr-operator/operator.json").touch()
    assert values_of(Settings())["FILE"] == "foltr-operator/operator.json"


def test_the_verdict_comes_first_with_what_to_type():
    """In about a third of the screen; what does not fit is only named, who changed the leader last."""
    assert screen_lines(overview(), 80, 24)[0] == "OK         All is well."
    down = overview().with_received(heard(3, online=False))
    assert screen_lines(down, 80, 24)[:3] == [
        "DOWN",
        "down       No federator leads the federation. Nothing was stored for 2 s. 2",
        "           devices wait for it.",
    ]
    told = screen_lines(everything(), 80, 24)
    assert told[0] == "DOWN"
    others = "And erasure_needs_order, unlearning_paused, model_has_erased, devices_suspect of 5"
    assert others in " ".join(line.strip() for line in told[:14])


def test_the_screen_says_who_leads() -> None:
    """Beside whether the federator is there: which process leads, and how many wait to."""
    lease = Lease("north:47:5e0c93b2", OPENED, 2.5, OPENED)
    said = " ".join(screen_lines(overview(replace(CALM, lease=lease, standbys=["a", "b"])), 200, 40))
    assert "running, says the database; led by north:47:5e0c93b2, 2 stand by; last stored 2 s ago" in said
