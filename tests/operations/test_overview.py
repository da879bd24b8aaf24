"""The overview of a federation, as the command line and the HTTP API show it."""

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from support.history_database import OPENED, made_history
from support.long_histories import N_CLIENTS, long_history, steps_of
from support.secure_policies import policy

from foltr.core.errors import SettingsError
from foltr.core.protocol.heartbeat import FederatorStatus
from foltr.core.protocol.states import OrderOutcome, RoundState
from foltr.operations import reading
from foltr.operations.overview import NEWEST_ROUNDS, Budget, activity_of, read_overview
from foltr.operations.situation import ReceivedStatus
from foltr.storage.activity_records import ErasureCounts, MemberCounts, RecentRound
from foltr.storage.arrivals import commit_batch
from foltr.storage.database import Database
from foltr.storage.erasure.erasures import erase_client
from foltr.storage.erasure_records import ErasureRequest
from foltr.storage.federations import claim_federation
from foltr.storage.policies import adopt_policy
from foltr.storage.records import Batch, MembershipChange, NewEvent, NewOrder
from foltr.storage.sum_records import PolicyRecord


@pytest.fixture
async def made(migrated_url):
    """The database of `history_database`: a, b in quarantine, c proposed for it; round 2 is open."""
    await made_history(migrated_url, "mail")
    async with await Database.connect(migrated_url) as db:
        yield db


def beat(overview, seconds_ago: float, *, online: bool = True) -> ReceivedStatus:
    at = overview.as_of.timestamp() - seconds_ago
    return ReceivedStatus(
        FederatorStatus(federation="mail", online=online, at=at, interval_s=10.0, software_version="0.1"), ["a"]
    )


async def test_it_says_how_a_federation_is(made):
    """Who is there, which round is open, the newest model, who is suspected; and nothing of what there is not."""
    found = await read_overview(made, "mail")
    assert found.members == MemberCounts(n_members=3, n_online=3, n_quarantined=1, n_left=0, n_revoked=0)
    assert (found.situation.round.number, found.situation.online) == (2, ["a", "c"])
    assert found.situation.quarantined_online == ["b"]
    assert (found.model.version, found.model.round, found.model.published_at) == (1, 1, None)
    assert [(each.client_id, each.n, each.round) for each in found.suspects] == [("c", 1, 1)]
    assert found.erasures == ErasureCounts(0, 0, 0, 0, 0, None)
    assert (found.job, found.held_reset, found.budget, dict(found.refusals.by_reason)) == (None, None, None, {})
    assert found.as_of - found.refusals.since == timedelta(hours=1)
    with pytest.raises(SettingsError, match="has no federation 'post'"):
        await read_overview(made, "post")


async def test_the_two_clocks_are_read_at_one_moment(made, monkeypatch):
    """This machine's and the database's: a reading that takes seconds is no clock that is wrong."""
    noted = []

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            noted.append("now")
            return datetime.now(tz)

    def noting(name, read):
        async def note(*arguments):
            noted.append(name)
            return await read(*arguments)

        return note

    for name in ("started_at", "find_lease", "list_quarantined", "online_members", "last_activity", "list_standbys"):
        monkeypatch.setattr(reading, name, noting(name, getattr(reading, name)))
    monkeypatch.setattr(reading, "datetime", Clock)
    await read_overview(made, "mail")
    assert noted[noted.index("find_lease") + 1] == "now", noted


async def test_what_a_clock_that_was_ahead_has_stored_is_no_activity(made):
    """It stays in the future for an hour, and a federator that died meanwhile must not look alive."""
    before = (await read_overview(made, "mail")).situation
    epoch = await claim_federation(made, "mail", 1.0)
    ahead = before.at + timedelta(hours=1)
    await commit_batch(made, "mail", epoch, Batch(events=[NewEvent(ahead, "intake_full")]))
    after = (await read_overview(made, "mail")).situation
    assert (before.dated_until, after.dated_until) == (None, ahead)
    assert after.last_activity == before.last_activity
    assert after.silence_s >= before.silence_s > 0


async def test_a_cut_audit_log_is_found_until_its_erasures_are_ordered_again(made):
    """Not for an hour: nobody may have looked. Other orders, and those of before, are no answer to it."""
    epoch = await claim_federation(made, "mail", 1.0)
    at = datetime.now(UTC) - timedelta(days=1)

    async def found_after(*batches: Batch):
        for batch in batches:
            await commit_batch(made, "mail", epoch, batch)
        found = (await read_overview(made, "mail")).log_differs
        return None if found is None else found.detail

    def order(number: int, kind: str, seconds: float) -> Batch:
        given = at + timedelta(seconds=seconds)
        return Batch(orders=[NewOrder(number, kind, None, bytes(32), OrderOutcome.OBEYED, given)])

    assert await found_after(order(1, "forget_client", -9)) is None
    differs = Batch(events=[NewEvent(at, "audit_log_differs", "entry 4 is missing")])
    assert await found_after(differs, order(2, "lift_quarantine", 5)) == "entry 4 is missing"
    assert await found_after(order(3, "forget_client", 9)) is None
    again = Batch(events=[NewEvent(at + timedelta(hours=1), "audit_log_differs", "entry 9 is missing")])
    assert await found_after(again) == "entry 9 is missing"
    assert await found_after(order(4, "forget_tombstone", 3601)) is None


async def test_an_older_database_is_found_until_its_rounds_pass_the_announced_one(made):
    """However often the federator was started meanwhile: the broker knows only its own rounds then."""
    epoch = await claim_federation(made, "mail", 1.0)
    at = datetime.now(UTC) - timedelta(days=1)
    found = []
    for announced in (1, 2, 3):  # round 2 is open
        events = [NewEvent(at, "database_older", f"round {announced} was announced", round=announced)]
        await commit_batch(made, "mail", epoch, Batch(events=events))
        older = (await read_overview(made, "mail")).database_older
        found.append(None if older is None else older.detail)
    now = "and the newest round of the database is 2"
    assert found == [None, f"round 2 was announced, {now}", f"round 3 was announced, {now}"]


async def test_what_was_refused_lately_is_counted_by_reason(made):
    """Within the hour; what is there already was not refused, and an event without a code goes by its kind."""
    at = (await read_overview(made, "mail")).as_of
    epoch = await claim_federation(made, "mail", 1.0)
    events = [
        NewEvent(at, "update_rejected", "", "late", "a", 2, 3),
        NewEvent(at, "update_rejected", "", "late", "c", 2),
        NewEvent(at, "update_rejected", "", "duplicate", "a", 2),
        NewEvent(at, "message_refused", "", "bad_signature", "x"),
        NewEvent(at, "intake_full"),
        NewEvent(at, "client_joined", client_id="a"),
        NewEvent(OPENED, "update_rejected", "", "stale", "a", 2),
    ]
    await commit_batch(made, "mail", epoch, Batch(events=events))
    found = await read_overview(made, "mail")
    assert found.refusals.by_reason == {"bad_signature": 1, "intake_full": 1, "late": 4}


async def test_a_decided_proposal_is_no_suspicion_until_the_next_one(made):
    """It is counted from the decision on, as `foltr device quarantine` does."""
    epoch = await claim_federation(made, "mail", 1.0)
    decided = NewEvent(OPENED, "proposal_dismissed", client_id="c")
    await commit_batch(made, "mail", epoch, Batch(events=[decided]))
    assert (await read_overview(made, "mail")).suspects == []
    again = [NewEvent(OPENED, "quarantine_proposed", f"in round {n}", client_id="c", round=n) for n in (3, 4)]
    await commit_batch(made, "mail", epoch, Batch(events=again))
    assert [(each.n, each.detail) for each in (await read_overview(made, "mail")).suspects] == [(2, "in round 4")]


async def test_clients_erasures_and_the_newest_policy_are_counted(made):
    """A revoked client is not one that left, and a stranger is neither; nobody took part under the policy yet."""
    epoch = await claim_federation(made, "mail", 1.0)
    changes = [MembershipChange("a", "revoked", OPENED), MembershipChange("c", "left", OPENED, sequence=9)]
    stranger = NewEvent(OPENED, "message_refused", "", "not_enrolled", "x")
    await commit_batch(made, "mail", epoch, Batch(membership=changes, events=[stranger]))
    found = await read_overview(made, "mail")
    assert found.members == MemberCounts(n_members=1, n_online=1, n_quarantined=1, n_left=1, n_revoked=1)
    await erase_client(made, "mail", epoch, ErasureRequest("a", "a" * 32, OPENED, "device", OPENED))
    signed = policy()
    await adopt_policy(made, "mail", epoch, PolicyRecord(signed.hash, signed.version, signed.signed, OPENED))
    found = await read_overview(made, "mail")
    assert found.erasures == ErasureCounts(1, 0, 0, 0, 0, OPENED)
    assert found.budget == Budget(1, 8.0, 1e-6, 20, 0)


async def test_the_broker_knows_better_whether_the_federator_is_there(made):
    """Its word replaces what follows from the database; who is connected waits for a federator that is away."""
    found = await read_overview(made, "mail")
    assert found.federator == "stopped"  # the round of January is open still
    assert found.with_received(None) == found
    away = found.with_received(beat(found, 1.0, online=False))
    assert away.federator == "stopped"
    assert away.waits_for[0].startswith(
        "Its federator is not running, or has lost the broker: the broker says so. a is"
    )
    assert found.with_received(ReceivedStatus(unreachable="refused")).situation.broker == "unreachable"
    assert found.with_received(beat(found, 31.0)).situation.broker == "silent"
    assert found.with_received(beat(found, 1.0)).situation.broker == "there"


def test_rates_are_of_the_hour_or_of_what_is_known():
    """A federation of half an hour ago has twice as many an hour; one of a moment ago has no rate yet."""
    at = OPENED + timedelta(hours=5)

    def closed(number: int, minutes_ago: float, n_updates: int, state=RoundState.COMPLETED) -> RecentRound:
        ended = at - timedelta(minutes=minutes_ago)
        opened = ended - timedelta(minutes=1)
        return RecentRound(number, state, None, opened, ended, n_updates, None)

    recent = [closed(3, 1, 4), closed(2, 10, 0, RoundState.ABANDONED), closed(1, 29, 8)]
    found = activity_of(recent, at)
    assert (found.n_completed, found.n_abandoned, found.n_updates) == (2, 1, 12)
    assert (found.completed_per_hour, found.updates_per_hour) == (4.0, 24.0)
    earlier = activity_of([*recent, closed(0, 90, 50)], at)
    assert (earlier.n_updates, earlier.updates_per_hour) == (12, 12.0)
    fast = [closed(5000 - i, i / 100, 2) for i in range(NEWEST_ROUNDS)]
    assert activity_of(fast, at).updates_per_hour == pytest.approx(12_000, rel=0.01)
    assert activity_of([], at).updates_per_hour is None


async def test_its_cost_does_not_grow_with_history(tmp_path):
    """Six times as many rounds, updates and events than are looked back at cost no more to read."""
    overview = partial(read_overview, name="mail")
    async with await long_history(f"sqlite:///{tmp_path / 'short'}", NEWEST_ROUNDS) as short:
        _, few = await steps_of(short, overview)
    async with await long_history(f"sqlite:///{tmp_path / 'long'}", 6 * NEWEST_ROUNDS) as long:
        found, n_steps = await steps_of(long, overview)
        assert found.members.n_members == N_CLIENTS + 3
        assert n_steps < 1.2 * few
