"""What an open round waits for, in words, in the situations that an operator may meet."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from foltr.core.aggregation.vote_result import VoteResult
from foltr.core.protocol.client_selection import cutoff, is_selected, round_seed
from foltr.core.protocol.states import PAUSING, AbandonReason, Pacing, RoundState, TakesUpdates
from foltr.operations.explanations import explain
from foltr.operations.situation import ReceivedStatus, Situation
from foltr.storage.ingest_records import WorkersRow
from foltr.storage.leases import Lease
from foltr.storage.records import RoundRow
from foltr.storage.sum_records import FailedRounds

OPENED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ROUND = RoundRow(
    "mail", 12, RoundState.COLLECTING, 7, 5, 20, 30.0, 600.0, OPENED, OPENED + timedelta(seconds=600), None, None,
    None, None, None, Pacing.DEADLINE, 0, 0.5, None, None, None, None, "mean", 0.2, "{}", "median",
)  # fmt: skip


def at(seconds: float) -> datetime:
    return OPENED + timedelta(seconds=seconds)


def devices(*numbers: int) -> list[str]:
    return [f"device-{i}" for i in numbers]


def standing(now: float, row: RoundRow | None = ROUND, last: float | None = None, **more) -> Situation:
    active = at(now if last is None else last)
    return Situation(at(now), "mail", row, started_at=at(-100), last_activity=active, **more)


def words(found: Situation) -> str:
    return " ".join(explain(found))


def failed(n_rounds=1, reason=AbandonReason.HELPERS_SILENT, detail="south said nothing for 60 s"):
    """What a situation says of rounds that have failed."""
    return {"failed": FailedRounds(n_rounds, 11, reason, at(0)), "failed_why": f"{reason}: {detail}"}


OF_FIVE, KEPT_OUT = devices(1, 2, 3, 4, 5), {"quarantined": devices(8, 9), "quarantined_online": devices(8)}
AGGREGATING = replace(ROUND, state=RoundState.AGGREGATING)
BUFFERED = replace(ROUND, pacing=Pacing.BUFFERED, staleness_limit=10)
LONG = replace(ROUND, max_time_s=86_400.0 * 5, closes_at=at(86_400 * 5))
COMPLETED = replace(ROUND, state=RoundState.COMPLETED, model_version=8, closed_at=at(300), n_updates=5)
VISITED = replace(ROUND, period_s=7200.0)
ANCHORED = replace(ROUND, anchor_version=4)
SITUATIONS = [
    (
        standing(40, contributed=devices(1, 2, 4), online=devices(*range(1, 10)), refused={"late": 2, "stale": 1}),
        "Round 12 has 3 updates of at least 5 (at most 20), opened 40 s ago.",
        "It ends as soon as 2 more have contributed, and at the latest in 560 s",
        "from: device-3, device-5, device-6, device-7, device-8, device-9 (of 9 online members)",
        "Refused in this round: late 2, stale 1; see: foltr rounds show 12",
        "last federator start 140 s ago",
    ),
    (standing(10, online=devices(1)), "5 more have contributed (in 20 s at the earliest), and"),
    (standing(40), "No member is online: start devices", "- quarantine"),
    (
        standing(40, contributed=devices(1), online=devices(1)),
        "Everybody online who was asked has contributed (of 1 online member). More devices must come",
    ),
    (
        standing(40, contributed=devices(1), online=devices(1, 2, 3, 4), **KEPT_OUT),
        "In quarantine, so their updates do not count: device-8, device-9.",
        "Only 4 can contribute, fewer than min_clients (5): let one out with foltr device quarantine NAME",
    ),
    (
        standing(40, contributed=devices(1), online=devices(2, 3, 4, 5), quarantined=devices(8)),
        "do not count: device-8.",
        "- --lift",
    ),
    (standing(40, online=devices(1), **KEPT_OUT), "and these would not be enough: add devices", "- --lift"),
    # To let somebody out who is away brings no update: devices are missing.
    (
        standing(40, quarantined=devices(8)),
        "No member is online: start devices",
        "do not count: device-8.",
        "- min_clients",
    ),
    (
        standing(40, quarantined=devices(8), quarantined_online=devices(8)),
        "Only members in quarantine are online: more devices must come.",
    ),
    # Nobody has written down who came since; without a broker that says more, both are possible until the deadline.
    (
        standing(300, last=100),
        "Nothing was stored for 200 s, and no member was online then: no device came, or the federator is not running",
        "- start devices",
    ),
    (standing(635, last=600), "- start devices"),
    (standing(300, last=100, broker="there"), "start devices"),
    # Where no device sends, nothing is stored; the deadline will tell.
    (standing(300, last=100, online=devices(1)), "at the deadline the database shows whether it runs"),
    (standing(300, last=100, online=devices(1), broker="there"), "- at the deadline"),
    (
        standing(40, broker="there", connected=devices(1, 2)),
        "device-1, device-2 are connected but no member; see: foltr rounds show 12",
    ),
    (standing(40, online=devices(*range(30))), "device-9 and 20 more (of 30 online members)"),
    (standing(602), "due and about to end"),
    (standing(640, last=639), "due and about to end"),
    (standing(40, AGGREGATING, contributed=devices(1, 2)), "being aggregated"),
    (
        standing(400, AGGREGATING, last=40, contributed=devices(1, 2)),
        "foltr federator run; it continues where it stopped",
    ),
    (
        standing(40, BUFFERED, contributed=devices(1)),
        "The buffer of round 12 has 1 update of at least 5",
        "one of the last 11 models",
    ),
    (Situation(at(0), "mail", None), "foltr federator run"),
    (
        standing(400, COMPLETED),
        "No round is open: round 12, the newest, was completed with model 8 on 2026-01-02 03:09:05.",
        "without --rounds",
        "- --credentials",
    ),
    (
        standing(400, replace(COMPLETED, state=RoundState.ABANDONED, reason="no_updates", model_version=None)),
        "abandoned (no_updates)",
    ),
    # It was told to stop after its last round.
    (standing(40, COMPLETED, broker="away"), "No round is", "- or has lost"),
    (standing(3600, LONG), "opened 60 min ago", "at the latest in 5 days"),
    *(
        (
            standing(40, replace(ROUND, state=state, policy_hash=bytes(32), clip_norm=1.0), contributed=devices(1, 2)),
            f"Round 12 has 2 updates, takes no others, and waits for helpers to {asked}",
        )
        for state, asked in ((RoundState.CHECKING, "check their"), (RoundState.OPENING, "open their"))
    ),
    # Devices are online and have not heard of it; what they are waited for would mislead.
    (
        standing(5, online=devices(1, 2), **failed()),
        "devices hear of it once all helpers have answered: one round has failed",
        "south said nothing for 60 s",
        "foltr helper run",
        "- not yet heard from",
    ),
    (standing(5, online=devices(1, 2), contributed=devices(1), **failed()), "- helpers"),
    (
        standing(10, ANCHORED, votes=VoteResult(9, 40, 12, 8)),
        "Votes on model 7 against model 4, the anchor: of 9 clients by their 40 updates, 12 found it worse",
    ),
    (
        standing(10, ANCHORED, votes=VoteResult(0, 0, 0, 0), taken_back="model 7 has the weights of model 4 again"),
        "The round before it was abandoned: model 7 has the weights of model 4 again.",
        "- Votes",
    ),
    (standing(10), "- Votes"),
    (
        standing(10, replace(ROUND, anchor_version=7), votes=VoteResult(9, 40, 0, 0)),
        "nothing to vote on yet: model 7 is the anchor itself",
    ),
    # Where devices are connected for moments, how often they come takes the place of who is there.
    (
        standing(10.0, VISITED, contributed=devices(1)),
        "Devices connect only for visits, about every 120 min",
        "It ends with 20 updates (in 20 s at the earliest), else in 590 s: with a model if 4 more have",
        "- No member is online",
    ),
    # Only its target ends such a round before its deadline.
    (standing(40.0, VISITED, contributed=OF_FIVE), "It ends with 20 updates, else in 560 s, with a model."),
]


def test_situations_in_words():
    """What is said of each, and what is not."""
    for found, *texts in SITUATIONS:
        for said in texts:
            assert (said.removeprefix("- ") in words(found)) != said.startswith("- "), said


def test_who_takes_updates_is_said_where_workers_should():
    """A leader without a worker stores no update; workers of a federator that takes updates by itself store none."""

    def said(takes_updates: TakesUpdates, n_workers: int) -> str:
        return words(standing(40, workers=WorkersRow(takes_updates, 0, n_workers, None, OPENED)))

    assert "No ingest worker is running, so no update is stored. Start one: foltr federator run --role ingest" in said(
        TakesUpdates.WORKERS, 0
    )
    assert "2 ingest workers are running to take its updates." in said(TakesUpdates.LEADER, 2)
    assert "1 ingest worker is idle" in said(TakesUpdates.WRITER, 1)
    assert "ingest" not in said(TakesUpdates.WRITER, 0)
    assert "ingest" not in words(standing(40))


def test_a_round_that_has_enough_ends_soon():
    """Of a young one min_time_s has not passed; one that only its target or its deadline ends is not overdue."""
    for contributed, online in ((OF_FIVE, OF_FIVE), (devices(*range(20)), [])):
        young = standing(10, contributed=contributed, online=online)
        assert explain(young)[1] == "It has enough updates and ends in 20 s."
        assert young.overdue_s is None
    assert standing(40.0, VISITED, contributed=OF_FIVE).overdue_s is None


def test_who_was_not_asked_is_not_waited_for():
    """A selection leaves some out, and everybody can compute whom."""
    online = devices(*range(1, 10))
    seed = round_seed(bytes(32), 12)
    highest = cutoff(seed, online, 7)
    row = replace(ROUND, selection_seed=seed, selection_cutoff=highest, n_selected=7, n_eligible=9)
    found = standing(40, row, online=online)
    assert found.awaited == [name for name in online if is_selected(seed, highest, name)]
    assert len(found.awaited) == 7
    assert "(of 9 online members; 2 were not asked)" in words(found)


def test_a_round_that_is_due_and_open_has_no_federator():
    """Past its deadline, or past min_time_s with a quorum: a federator ends it within moments."""
    for now, contributed in ((635, ()), (635, (1, 2)), (95, (1, 2, 3, 4, 5))):
        found = standing(now, last=now - 35, contributed=devices(*contributed))
        assert found.federator == "stopped", now
        assert "its federator is not running" in words(found), now
        assert "foltr federator run" in words(found), now
        assert "35 s ago" in words(found), now
    assert standing(400, AGGREGATING, last=40, contributed=devices(1, 2)).federator == "stopped"
    assert standing(40, contributed=devices(1, 2, 4)).federator == "active"
    assert standing(300, last=100, online=devices(1)).federator == "silent"


def test_a_round_that_is_held_back_says_for_how_long_and_what_to_do():
    """Devices are online and do not hear of it; once one has sent all the same, it is a round as any other."""
    counts = ((1, "one round has failed"), (3, "3 rounds have failed"))
    for reason, (n, ended) in itertools.product(PAUSING, counts):
        held = {"online": devices(1, 2), "held_until": at(65), **failed(n, reason, "south lied")}
        said = words(standing(5, **held))
        assert "devices hear of it in 60 s" in said
        assert f": {ended} since the last model, the newest as {reason}: south lied. Each such round costs" in said
        assert "not yet heard from" not in said
        assert str(reason) not in words(standing(5, contributed=devices(1), **held))


def test_what_the_broker_says_of_the_federator_comes_first_unless_it_is_there():
    """The database shows it at the deadline only, and nobody has written down which devices came since."""
    said = explain(standing(40, broker="there"))
    assert said[0].startswith("Round 12 has no update")
    assert said[-1] == "Its federator is running, says the broker."
    assert "No member is online: start devices, or check the broker with: foltr doctor" in said
    said = explain(standing(400, last=35, broker="silent", broker_detail="300 s", connected=devices(1)))
    assert said[0].startswith("Its federator has sent no heartbeat for 300 s: it hangs, or cannot reach its database")
    assert said[0].endswith("device-1 is connected and waits for it.")
    said = explain(standing(40, last=35, broker="away", connected=devices(1, 2)))
    assert said[0] == (
        "Its federator is not running, or has lost the broker: the broker says so. device-1, device-2 are connected "
        "and wait for it. Start it: foltr federator run"
    )
    assert "No member is online" not in " ".join(said)
    assert standing(40, last=35, broker="away").federator == "stopped"
    # A broker may still retain that a revoked device is online; nobody will answer it.
    found = standing(40, revoked=devices(1)).with_received(ReceivedStatus(None, devices(1, 2)))
    assert " device-2 is connected and waits for it." in explain(found)[0]
    assert explain(standing(40, broker="unknown"))[0].startswith("The broker knows of no federator of mail. Start it")


def test_whom_to_ask_is_said_where_the_broker_was_not():
    """Whoever is online; and a broker that is away is no federator that is, but comes first, since nothing arrives."""
    for online in ([], devices(1)):
        assert explain(standing(40, online=online))[-1].endswith(
            "whether its federator is running: foltr rounds why --credentials foltr-operator/operator.json"
        )
    said = explain(standing(40, broker="unreachable", broker_detail="MQTT broker mqtt://b:1: refused"))
    assert said[0] == "The broker could not be asked whether its federator is running: MQTT broker mqtt://b:1: refused"


def led(left_s: float, holder: str | None = "north:47:5e0c93b2") -> Lease:
    return Lease(holder, at(0), left_s, at(0))


def test_the_lease_says_whether_a_federator_runs_where_the_broker_is_not_asked() -> None:
    """A lease that is held is a process that runs; one that is over is none, long before the round's deadline."""
    quiet = {"last": 0.0, "online": devices(1)}
    there = standing(100, lease=led(2.5), standbys=["south:1:00"], **quiet)
    assert (there.federator, there.led_by) == ("active", "led by north:47:5e0c93b2, 1 stands by")
    assert "Led by north:47:5e0c93b2, 1 stands by, says the database." in words(there)
    for over in (led(-1), led(0, None), led(3600)):
        gone = standing(100, lease=over, **quiet)
        assert (gone.federator, gone.led_by) == ("stopped", "nobody leads")
        assert "Nobody leads, says the database. Start it: foltr federator run" in words(gone)
    # The broker's word is newer than a lease: of a federator that it has just lost, say.
    assert standing(100, lease=led(2.5), broker="away", **quiet).federator == "stopped"
    assert standing(100, lease=led(-1), broker="there", **quiet).federator == "active"
    ended = replace(ROUND, state=RoundState.COMPLETED, closed_at=at(50), model_version=8)
    assert standing(60, ended, 50, lease=led(0, None)).federator == "active"
