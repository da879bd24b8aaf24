"""Judges a federation: all that an overview, the leader and the broker say becomes one verdict.

`foltr status`, the HTTP API, its page and its metrics show the same one. Pure functions, without I/O.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from foltr.core.protocol.events import EventKind
from foltr.core.protocol.helper_messages import HelperRefusalCode
from foltr.core.protocol.states import JobState, RoundState
from foltr.core.protocol.verdicts import Finding, Reason, Verdict
from foltr.core.unlearning.schedule import STEPS_A_DAY
from foltr.operations.explanations import dated_ahead, duration
from foltr.operations.overview import Overview
from foltr.operations.situation import MOST_APART, Situation
from foltr.storage.errors import DatabaseGoneError, SchemaNewerError, SchemaOlderError

# Each device may have a few refusals a minute, such as those of rounds that ended before it was heard.
MANY_REFUSALS: Final = 200
_MANY_FROM_EACH: Final = 10
_FAILED_ROUNDS: Final = 3
_REVOKED_LATELY: Final = timedelta(minutes=10)
_CHANGED_LATELY: Final = timedelta(minutes=2)
_SHOWN_NAMES: Final = 5


def judge(overview: Overview) -> Verdict:
    """Return the verdict on a federation whose database answers."""
    return Verdict.of(_findings(overview), overview.values)


def _findings(overview: Overview) -> list[Finding]:
    situation = overview.situation
    if situation.is_over:
        return [*_erasures(overview), *_clocks(situation)]
    return [
        *overview.found_now,
        *_federator(situation),
        *_clocks(situation),
        *_policy(situation),
        *_leaders(overview),
        *_rounds(overview),
        *_devices(overview),
        *_models(overview),
        *_erasures(overview),
    ]


def verdict_without_database(error: Exception, values: Mapping[str, str], address: str = "") -> Verdict:
    """Return the verdict if the database cannot be read: UnavailableError, DatabaseGoneError or SchemaDiffersError.

    Args:
        values: for the command (`Finding.command`).
        address: of the database; empty for readers who may not know it.
    """
    match error:
        case SchemaOlderError():
            reason = Reason.SCHEMA_OLDER
        case SchemaNewerError():
            reason = Reason.SCHEMA_NEWER
        case DatabaseGoneError():
            reason = Reason.DATABASE_GONE
        case _:
            reason = Reason.DATABASE_UNREACHABLE
    return Verdict.of([Finding(reason, _sentence(str(error)), address)], values)


def _federator(situation: Situation) -> Iterator[Finding]:
    """Whether a federator leads and does its work, and whether the broker is there."""
    holder = "" if situation.lease is None or situation.lease.holder is None else situation.lease.holder
    if situation.lease is not None and situation.lease.is_in_future:
        pass  # by this clock nobody can tell whether it leads; `_clocks` says so
    elif situation.federator == "stopped":
        if situation.last_activity is not None:
            detail = f"Nothing was stored for {duration(situation.silence_s)}."
        else:
            detail = "It has never run." if situation.dated_until is None else ""
        detail = " ".join(filter(None, (detail, dated_ahead(situation))))
        if situation.connected:
            detail += f" {len(situation.connected)} devices wait for it."
        ended = None if situation.lease is None else situation.lease.ended
        if situation.lease is not None and ended is not None:
            detail = f"{ended.sentence} {_sentence(situation.lease.ended_detail)} {detail}"
        command = "" if ended is None else ended.command
        yield Finding(Reason.FEDERATOR_STOPPED, detail, holder, situation.last_activity, command)
    elif situation.federator == "silent":
        since = situation.broker_detail if situation.broker == "silent" else duration(situation.silence_s)
        yield Finding(Reason.FEDERATOR_HANGS, f"It has shown no sign of life for {since}.", holder)
    # A leader that is connected knows better than a visitor whom a network may keep out.
    if situation.broker == "unreachable" and not situation.is_led:
        yield Finding(Reason.BROKER_UNREACHABLE, _sentence(situation.broker_detail))
    if situation.broker_found is not None:
        yield situation.broker_found
    failed = situation.failed
    if failed is not None and situation.failed_why and failed.reason.startswith("helpers_"):
        why = _sentence(situation.failed_why)
        if HelperRefusalCode.ROUND_OVER in why:
            # A helper that answers: the database is older than what it has opened.
            yield Finding(Reason.DATABASE_OLDER, f"{why} Rounds pass until they are above that.", "the database")
        else:
            yield Finding(Reason.HELPER_AWAITED, why)


def _clocks(situation: Situation) -> Iterator[Finding]:
    """Compare this machine's clock with the database's, and a leader's with both."""
    lease = situation.lease
    if lease is None:
        return
    ahead_s = (situation.at - lease.read_at).total_seconds()
    if abs(ahead_s) > MOST_APART.total_seconds():
        how = "ahead of" if ahead_s > 0 else "behind"
        yield Finding(
            Reason.CLOCK_DIFFERS, f"It is {duration(abs(ahead_s))} {how} the database's.", "the clock of this machine"
        )
    if lease.holder is not None and lease.is_in_future:
        yield Finding(
            Reason.CLOCK_DIFFERS, f"Its clock is ahead: its lease ends {duration(lease.left_s)} from now.", lease.holder
        )


def _policy(situation: Situation) -> Iterator[Finding]:
    ends_at = situation.policy_ends_at
    if ends_at is not None:
        has_ended = ends_at <= situation.at
        reason = Reason.POLICY_ENDED if has_ended else Reason.POLICY_EXPIRES
        yield Finding(reason, f"It {'ended' if has_ended else 'ends'} at {_time(ends_at)}.")


def _leaders(overview: Overview) -> Iterator[Finding]:
    """Whether another federator took over lately, as after a crash, or again and again, as two of them do."""
    lease, started = overview.situation.lease, overview.lately.get(EventKind.FEDERATOR_STARTED)
    if lease is None or not lease.is_held or overview.as_of - lease.taken_at > _CHANGED_LATELY:
        return
    if lease.taken_from is None:
        return  # it is the first one, or the one before it ended in order
    n = 0 if started is None else started.n
    often = f" Federators started {n} times within 5 minutes: do two take over from each other?" if n > 2 else ""
    yield Finding(
        Reason.LEADER_CHANGED,
        f"It leads since {_time(lease.taken_at)}, after {lease.taken_from}.{often}",
        lease.holder or "",
    )


def _rounds(overview: Overview) -> Iterator[Finding]:
    row, members = overview.situation.round, overview.members
    if overview.n_failed_in_a_row >= _FAILED_ROUNDS:
        detail = f"{overview.n_failed_in_a_row} in a row have failed."
        if overview.n_empty_in_a_row >= _FAILED_ROUNDS and members.n_online:
            detail += f" {members.n_online} devices are online and sent nothing: do they refuse the federator?"
        yield Finding(Reason.ROUNDS_FAIL, detail)
    if row is None or row.state is not RoundState.COLLECTING or row.period_s is not None:
        return
    if members.n_online < row.min_clients:
        yield Finding(
            Reason.TOO_FEW_DEVICES, f"{members.n_online} are online, round {row.number} needs {row.min_clients}."
        )


def _devices(overview: Overview) -> Iterator[Finding]:
    """Who floods, who was revoked, and who is suspect."""
    senders = overview.refused_senders
    n_refused = sum(each.n for each in senders)
    flooding = [each for each in senders if each.n >= MANY_REFUSALS]
    for each in flooding[:_SHOWN_NAMES]:
        yield Finding(
            Reason.MESSAGES_REFUSED,
            f"{each.n:,} of its messages were refused within 5 minutes ({each.code}).",
            each.client_id,
        )
    if not flooding and n_refused >= max(MANY_REFUSALS, _MANY_FROM_EACH * overview.members.n_members):
        yield Finding(Reason.MESSAGES_REFUSED, f"{n_refused:,} of {len(senders)} senders within 5 minutes.")
    for revoked in overview.revoked:
        if overview.as_of - revoked.revoked_at <= _REVOKED_LATELY:
            yield Finding(
                Reason.DEVICE_REVOKED, f"Revoked at {_time(revoked.revoked_at)}.", revoked.client_id, revoked.revoked_at
            )
    for suspect in overview.suspects[:_SHOWN_NAMES]:
        yield Finding(Reason.DEVICES_SUSPECT, "The evidence against it is strong.", suspect.client_id)


def _models(overview: Overview) -> Iterator[Finding]:
    rolled_back = overview.lately.get(EventKind.MODEL_ROLLED_BACK)
    if rolled_back is not None:
        yield Finding(Reason.MODEL_ROLLED_BACK, _sentence(rolled_back.detail), since=rolled_back.at)
    if (older := overview.database_older) is not None:
        yield Finding(Reason.DATABASE_OLDER, _sentence(older.detail), "the database", older.at)
    if (differs := overview.log_differs) is not None:
        yield Finding(Reason.AUDIT_LOG_DIFFERS, _sentence(differs.detail), since=differs.at)
    model = overview.model
    if model is not None and model.tainted_at is not None:
        yield Finding(Reason.MODEL_HAS_ERASED, f"Model {model.version} is in service.", since=model.tainted_at)


def _erasures(overview: Overview) -> Iterator[Finding]:
    counts, job = overview.erasures, overview.job
    if counts.n_overdue:
        yield Finding(Reason.ERASURE_OVERDUE, f"{counts.n_overdue} are.", since=counts.oldest_at)
    if overview.held_reset is not None:
        yield Finding(Reason.ERASURE_NEEDS_ORDER, _sentence(overview.held_reset.in_words))
    if job is not None and job.state is JobState.PAUSED:
        why = "" if job.reason is None else f": {job.reason}"
        yield Finding(Reason.UNLEARNING_PAUSED, f"Job {job.number} is at step {job.step} of {job.n_steps}{why}.")
    missed = overview.lately.get(EventKind.UNLEARNING_STEP_MISSED)
    if missed is not None and job is not None and job.state is JobState.RUNNING:
        tomorrow = overview.as_of.astimezone(UTC).replace(hour=0, minute=0, second=0) + timedelta(days=1)
        why = (
            f"A device answers {STEPS_A_DAY} steps a day, also counting those that a restored database has lost. If "
            f"that is why, answers come again from {_time(tomorrow)} on; until then steps are skipped."
        )
        if not overview.members.n_online:
            why = "No device is online."
        yield Finding(Reason.UNLEARNING_UNANSWERED, f"{_sentence(missed.detail)} {why}", since=missed.at)


def _sentence(text: str | None) -> str:
    said = (text or "").strip()
    return said if said.endswith((".", "!", "?")) or not said else f"{said}."


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
