"""The verdict has every reason that an overview gives, the gravest first, with the culprit by name."""

from dataclasses import replace
from datetime import timedelta

import pytest
from support.overviews import CALM, NOW, OPENED, ROUND, overview

from foltr.cli.status import federator_in_words
from foltr.core.errors import UnavailableError
from foltr.core.protocol.events import EventKind
from foltr.core.protocol.heartbeat import FederatorStatus
from foltr.core.protocol.states import AbandonReason, JobState, RoundState, Strategy
from foltr.core.protocol.verdicts import Ending, Finding, Level, Reason, Verdict, as_rows
from foltr.operations.situation import ReceivedStatus
from foltr.operations.verdict import MANY_REFUSALS, judge, verdict_without_database
from foltr.storage.activity_records import (
    ErasureCounts,
    JobProgress,
    LatelyHappened,
    MemberCounts,
    NewestModel,
    RefusedSender,
    RevokedClient,
)
from foltr.storage.erasure_records import HeldReset
from foltr.storage.errors import DatabaseGoneError, SchemaNewerError, SchemaOlderError
from foltr.storage.history_records import ProposalRow
from foltr.storage.leases import Lease
from foltr.storage.sum_records import FailedRounds

LED = Lease("north:47:5e0c93b2", NOW - timedelta(hours=1), 2.5, NOW)
CHANGED = replace(LED, taken_at=NOW - timedelta(seconds=9), taken_from="south:1:a")
MALLORY = RefusedSender("mallory", MANY_REFUSALS, "malformed_message")
SEVERAL = [RefusedSender(f"m{i}", 50, "malformed_message") for i in range(4)]
RESTORED = "helpers_refused: south: round_over: a set of round 40 was committed to"
RUNNING = JobProgress(3, JobState.RUNNING, Strategy.RELEARN, OPENED, 3, 40, None, None, None)
PAUSED = replace(RUNNING, state=JobState.PAUSED, strategy=Strategy.FED_ERASER)
REFUSED = FailedRounds(1, 11, AbandonReason.HELPERS_REFUSED, OPENED)
EVENT = LatelyHappened(1, NOW, "of 6 clients, 4 found it worse")


def reasons(found) -> list[tuple[str, str]]:
    return [(str(each.reason), each.culprit) for each in judge(found).findings]


def test_a_calm_federation_is_ok():
    """Led or not yet by a lease, and when it is over."""
    over = replace(ROUND, state=RoundState.COMPLETED, model_version=8, closed_at=NOW, n_updates=5, n_interactions=5)
    for situation in (CALM, replace(CALM, lease=LED), replace(CALM, round=over, lease=replace(LED, left_s=-9))):
        assert judge(overview(situation)) == Verdict()


@pytest.mark.parametrize(
    ("situation", "changed", "expected"),
    [
        ({"lease": replace(LED, left_s=-0.1)}, {}, ("federator_stopped", LED.holder)),
        ({"round": None}, {}, ("federator_stopped", "")),
        ({"broker": "silent", "broker_detail": "301 s"}, {}, ("federator_hangs", "")),
        ({"broker": "unreachable", "broker_detail": "mqtt://north:1883: refused"}, {}, ("broker_unreachable", "")),
        ({"lease": replace(LED, read_at=NOW + timedelta(hours=1))}, {}, ("clock_differs", "the clock of this machine")),
        ({"lease": replace(LED, left_s=3603.0)}, {}, ("clock_differs", LED.holder)),
        ({"policy_ends_at": NOW}, {}, ("policy_ended", "")),
        ({"policy_ends_at": NOW + timedelta(days=1)}, {}, ("policy_expires", "")),
        ({"lease": CHANGED}, {}, ("leader_changed", LED.holder)),
        ({}, {"n_failed_in_a_row": 3}, ("rounds_fail", "")),
        ({}, {"members": MemberCounts(12, 4, 0, 0, 0)}, ("too_few_devices", "")),
        ({}, {"refused_senders": [MALLORY]}, ("messages_refused", "mallory")),
        ({}, {"refused_senders": SEVERAL}, ("messages_refused", "")),
        ({}, {"revoked": [RevokedClient("device-003", NOW)]}, ("device_revoked", "device-003")),
        ({}, {"suspects": [ProposalRow("device-003", 3, OPENED, 9, "far away")]}, ("devices_suspect", "device-003")),
        ({}, {"lately": {EventKind.MODEL_ROLLED_BACK: EVENT}}, ("model_rolled_back", "")),
        ({}, {"database_older": EVENT}, ("database_older", "the database")),
        ({}, {"log_differs": EVENT}, ("audit_log_differs", "")),
        ({}, {"model": NewestModel(7, 11, OPENED, OPENED, NOW, None, None)}, ("model_has_erased", "")),
        ({}, {"erasures": ErasureCounts(0, 1, 0, 0, 1, OPENED)}, ("erasure_overdue", "")),
        ({}, {"held_reset": HeldReset(4, OPENED, 1, 9, 12, 3)}, ("erasure_needs_order", "")),
        ({}, {"job": PAUSED}, ("unlearning_paused", "")),
        ({}, {"job": RUNNING, "lately": {EventKind.UNLEARNING_STEP_MISSED: EVENT}}, ("unlearning_unanswered", "")),
        ({"failed": REFUSED, "failed_why": "helpers_refused: south: store_restored"}, {}, ("helper_awaited", "")),
        ({"failed": REFUSED, "failed_why": RESTORED}, {}, ("database_older", "the database")),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_each_reason_names_its_culprit(situation, changed, expected):
    """And is the only one: no reason brings another along."""
    assert reasons(overview(replace(CALM, **situation), **changed)) == [expected]


def test_what_the_leader_found_counts_while_it_leads():
    """A leader that is gone knows nothing any more, except that it is gone."""
    found = [Finding(Reason.DISK_LOW, "/data has 3 % left.", "/data", NOW)]
    assert reasons(overview(replace(CALM, lease=LED), found_by_leader=found)) == [("disk_low", "/data")]
    gone = overview(replace(CALM, lease=replace(LED, left_s=-1)), found_by_leader=found)
    assert reasons(gone) == [("federator_stopped", LED.holder)]
    # One that was started and waits for its broker, which refuses it, knows why nobody leads.
    refused = Finding(Reason.BROKER_UNREACHABLE, "login_refused since 03:04:05 UTC.", "mqtt://north:1883", NOW)
    waiting = replace(CALM, lease=replace(LED, left_s=-9), standbys=["north:48:a"])
    expected = [("broker_unreachable", "mqtt://north:1883"), ("federator_stopped", LED.holder)]
    assert reasons(overview(waiting, found_by_leader=[refused])) == expected


def test_a_federator_that_ended_by_itself_says_why():
    """With what to type for it: starting it again as it was would end in the same way."""
    lease = replace(LED, holder=None, left_s=0.0, ended=Ending.DATA_KEYS_MISSING, ended_detail="keys = '/keys': gone")
    verdict = judge(overview(replace(CALM, lease=lease)))
    (found,) = verdict.findings
    assert found.reason is Reason.FEDERATOR_STOPPED
    assert found.detail.startswith("Its folder of data keys lacks keys. keys = '/keys': gone. Nothing was stored")
    assert as_rows(verdict)[0]["command"] == found.command() == f"{Reason.FEDERATOR_STOPPED.command} --keys FOLDER"


def test_steps_that_nobody_answers_say_when_answers_may_come_again():
    """A device answers so many a day, by UTC; a job whose steps are answered says nothing."""
    (found,) = judge(overview(job=RUNNING, lately={EventKind.UNLEARNING_STEP_MISSED: EVENT})).findings
    assert "200 steps a day" in found.detail
    assert "answers come again from 2026-01-03 00:00 UTC on" in found.detail
    missed, nobody_online = {EventKind.UNLEARNING_STEP_MISSED: EVENT}, MemberCounts(9, 0, 0, 0, 0)
    nobody = judge(overview(job=RUNNING, lately=missed, members=nobody_online)).findings
    details = {each.reason: each.detail for each in nobody}
    assert "No device is online." in details[Reason.UNLEARNING_UNANSWERED]
    assert judge(overview(job=RUNNING)) == Verdict()


@pytest.mark.parametrize("leads", [True, False])
def test_a_federator_that_the_broker_refuses_is_not_running_by_the_broker(leads):
    """The broker may not have noticed, or know another federator; one verdict, and a screen that agrees with it."""
    refused = Finding(Reason.BROKER_UNREACHABLE, "login_refused.", "mqtt://north:1883", NOW)
    situation = replace(CALM, lease=LED if leads else replace(LED, left_s=-9), standbys=[] if leads else ["north:48:a"])
    for online in (True, False):
        status = FederatorStatus(
            federation="mail", online=online, at=NOW.timestamp(), interval_s=10.0, software_version="0.1"
        )
        seen = overview(situation, found_by_leader=[refused]).with_received(ReceivedStatus(status))
        stopped = [] if leads else [("federator_stopped", LED.holder)]
        assert reasons(seen) == [("broker_unreachable", "mqtt://north:1883"), *stopped]
        screen = " ".join([federator_in_words(seen.situation), *seen.waits_for])
        assert "says the broker" not in screen
        assert screen.startswith("running, says the database" if leads else "not running, says the database")


def test_a_leader_with_a_broker_outweighs_a_visitor_without():
    """A network may keep the visitor out; but none makes a certificate expire, so devices are refused, too."""
    leading = replace(CALM, lease=LED)
    seen = overview(leading).with_received(ReceivedStatus(unreachable="mqtt://north:1883: refused"))
    assert judge(seen).level is Level.OK
    refused = Finding(Reason.CERTIFICATE_REFUSED, "It has expired.", "broker mqtts://north:8883")
    heard = ReceivedStatus(unreachable="mqtts://north:8883: its certificate is not valid now", found=refused)
    for found in ([refused], []):
        judged = judge(overview(leading, found_by_leader=found).with_received(heard))
        assert (judged.level, judged.findings) == (Level.DEGRADED, (refused,)), found


def test_the_gravest_comes_first_and_counts():
    """Down before degraded, harm that may be done now before what was; the headline says how many more there are."""
    found = overview(refused_senders=[MALLORY], database_older=EVENT)
    assert [reason for reason, _ in reasons(found)] == ["messages_refused", "database_older"]
    low, full = (Finding(reason, "3 % left.", "/data") for reason in (Reason.DISK_LOW, Reason.DISK_FULL))
    verdict = Verdict.of([low, full, low])
    assert verdict.findings == (full, low)
    assert verdict.level is Level.DOWN
    assert verdict.headline == "The disk of the federator is full. 3 % left. And 1 more."
    assert Verdict().headline == "All is well."


def test_without_a_database_it_is_down():
    """Tables of another version have another next step than a database that is away."""
    for error, reason in (
        (UnavailableError("refused"), Reason.DATABASE_UNREACHABLE),
        (DatabaseGoneError("moved"), Reason.DATABASE_GONE),
        (SchemaOlderError("revision 0001"), Reason.SCHEMA_OLDER),
        (SchemaNewerError("revision 9999"), Reason.SCHEMA_NEWER),
    ):
        verdict = verdict_without_database(error, {}, "postgresql://north:5432/foltr")
        assert verdict.level is Level.DOWN
        assert [(each.reason, each.culprit) for each in verdict.findings] == [(reason, "postgresql://north:5432/foltr")]


def test_devices_that_send_nothing_may_refuse_the_federator():
    """If they are online and rounds end without any update; not if some came, or nobody is there."""
    asks = []
    for n_empty, n_online in ((3, 9), (2, 9), (3, 0)):
        found = overview(n_failed_in_a_row=3, n_empty_in_a_row=n_empty, members=MemberCounts(12, n_online, 0, 0, 0))
        details = {each.reason: each.detail for each in judge(found).findings}
        asks.append("9 devices are online and sent nothing" in details[Reason.ROUNDS_FAIL])
    assert asks == [True, False, False]


def test_commands_have_the_values_that_are_known():
    """Those of a reader, and the culprit; a placeholder stays if nobody knows better."""
    refused = Finding(Reason.MESSAGES_REFUSED, "", "mallory")
    away = Finding(Reason.BROKER_UNREACHABLE, "", "mqtt://north:1883")
    assert refused.command({"URL": "sqlite:///a.sqlite"}) == "foltr device show mallory --db sqlite:///a.sqlite"
    assert refused.command() == "foltr device show mallory --db URL"
    assert Finding(Reason.KEY_MISSING, "").command() == "foltr erasure request CLIENT"
    assert away.command({"URL": "x", "FILE": "operator.json"}) == "foltr doctor --credentials operator.json"
    known = overview(replace(CALM, lease=replace(LED, left_s=3603.0)), values={"FILE": "a"}, n_failed_in_a_row=3)
    assert judge(known).values == {"FILE": "a"}


def test_each_reason_has_a_level_a_command_and_a_place_in_the_runbook():
    """None is ok: then it would be no reason."""
    for reason in Reason:
        (row,) = as_rows(Verdict.of([Finding(reason, "")]))
        assert row["level"] in {"degraded", "down"}
        assert row["sentence"].endswith(".")
        assert row["command"]
        assert row["runbook"] == f"docs/runbook.md#{reason}"
