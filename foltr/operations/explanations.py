"""Sentences on what an open round waits for. Pure functions of the situation, without I/O."""

from datetime import datetime

from foltr.core.protocol.helper_messages import HelperRefusalCode
from foltr.core.protocol.policies import NEW_POLICY
from foltr.core.protocol.states import (
    AFTERMATH,
    ASKING_HELPERS,
    AbandonReason,
    Aftermath,
    Pacing,
    RoundState,
    TakesUpdates,
)
from foltr.operations.situation import Situation
from foltr.storage.records import RoundRow
from foltr.storage.sum_records import FailedRounds

_SHOWN_NAMES = 10
_START = "Start it: foltr federator run"
_NEW_POLICY = f"foltr helper keys at each helper, {NEW_POLICY}, foltr policy publish"
_ASK = "foltr rounds why --credentials foltr-operator/operator.json"
_OTHER_HELPERS = f"A policy with other helpers ends it: {NEW_POLICY}"
_RUN_HELPER = f"Run that helper, and read its log: foltr helper run. If it is lost for good: {NEW_POLICY}"
_ROUND_OVER = (
    "The database was restored: rounds pass until they are above that one. Faster: foltr rounds deadline N --max-time 1"
)
_SEE_LOG = f"The federator's log says more; a new policy lets rounds go on at once: {NEW_POLICY}"
_WHAT_TO_DO = {
    AbandonReason.HELPERS_SILENT: _RUN_HELPER,
    AbandonReason.HELPERS_REFUSED: _RUN_HELPER,
    AbandonReason.VERIFIERS_DISAGREE: f"No device is at fault: a lying helper makes all proofs fail. {_OTHER_HELPERS}",
    AbandonReason.SUM_IMPLAUSIBLE: f"Nothing of the sum was used. {_OTHER_HELPERS}",
    AbandonReason.COHORTS_TOO_SMALL: f"See who was taken out, and why: foltr rounds show N. {_OTHER_HELPERS}",
    AbandonReason.CLIENT_WITHDRAWN: "Nothing needs to be done.",
    AbandonReason.TOO_FEW_CLIENTS: "More devices must come, or set a smaller min_clients for the rounds to follow.",
    AbandonReason.TOO_FEW_FOR_RULE: "More devices must come, or choose another aggregation.",
    AbandonReason.ONLY_SUSPECTS: _SEE_LOG,
    AbandonReason.AGGREGATION_FAILED: _SEE_LOG,
}
"""What to do, for each reason after which rounds are held back."""
_ASKED = {RoundState.CHECKING: "check their tickets", RoundState.OPENING: "open their sums"}


def explain(situation: Situation) -> list[str]:
    """Return sentences, the most important first."""
    said, stored = _broker_says(situation), _stored(situation)
    if situation.broker == "away" and situation.is_over:
        return stored  # as stored
    return [*stored, *said] if situation.broker in ("there", None) else [*said, *stored]


def _broker_says(situation: Situation) -> list[str]:
    """Describe the broker's answer. The broker knows at once what the database shows only at the deadline."""
    is_, s = ("is", "s") if len(situation.connected) == 1 else ("are", "")
    waiting = f" {_names(situation.connected)} {is_} connected and wait{s} for it." if situation.connected else ""
    match situation.broker:
        case "away":
            return [f"Its federator is not running, or has lost the broker: the broker says so.{waiting} {_START}"]
        case "unknown":
            return [f"The broker knows of no federator of {situation.federation}.{waiting} {_START}"]
        case "silent":
            why = "it hangs, or cannot reach its database (or the clocks differ): read its log"
            return [f"Its federator has sent no heartbeat for {situation.broker_detail}: {why}.{waiting}"]
        case "there":
            return ["Its federator is running, says the broker."]
        case "unreachable":
            return [f"The broker could not be asked whether its federator is running: {situation.broker_detail}"]
        case None:
            is_open = situation.round is not None and not situation.is_over
            if is_open and situation.lease is not None:
                led = f"{situation.led_by[0].upper()}{situation.led_by[1:]}, says the database."
                return [led if situation.is_led else f"{led} {_START}"]
            return [f"The broker knows whether its federator is running: {_ASK}"] if is_open else []


def _stored(situation: Situation) -> list[str]:
    row = situation.round
    if row is None:
        return [f"{situation.federation} has had no round: its federator has not run. {_START}"]
    if row.state is RoundState.AGGREGATING:
        have = _updates(len(situation.contributed))
        return [f"Round {row.number} has {have}, takes no others, and is being aggregated.", *_life(situation)]
    if row.state in ASKING_HELPERS:
        have, asked = _updates(len(situation.contributed)), _ASKED[row.state]
        waits = "A helper that is silent for a minute ends it with nothing released."
        return [
            f"Round {row.number} has {have}, takes no others, and waits for helpers to {asked}.",
            waits,
            *_life(situation),
        ]
    if row.state is not RoundState.COLLECTING:
        return [_ended(row), *_life(situation)]
    if (ended_at := situation.policy_ends_at) is not None and ended_at <= row.opened_at:
        return [
            f"Round {row.number} waits, and no device takes part: its policy ended at {_time(ended_at)}.",
            f"Helpers have destroyed the keys that belong to it. Make another: {_NEW_POLICY}",
            *_life(situation),
        ]
    if situation.failed is not None and not situation.contributed:
        after = AFTERMATH[situation.failed.reason]
        if situation.held_until is not None or after is Aftermath.HELPERS_FIRST:
            return _held_back(situation, row, situation.failed)
    return [
        _collected(situation, row),
        _ends(situation, row),
        *_taken_by(situation),
        *_waits_for(situation, row),
        *_kept_out(situation, row),
        *_refused(situation),
        *_voted(situation, row),
        *_ending(situation),
        *_life(situation),
    ]


def _ending(situation: Situation) -> list[str]:
    """Say when the policy ends, if that is soon."""
    ends_at = situation.policy_ends_at
    if ends_at is None:
        return []
    return [f"Its policy ends at {_time(ends_at)}, and no round after that. Make another before: {_NEW_POLICY}"]


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"


def _voted(situation: Situation, row: RoundRow) -> list[str]:
    """Say how devices vote on the newest model, and whether they had the previous one taken back."""
    said = [] if situation.taken_back is None else [f"The round before it was abandoned: {situation.taken_back}."]
    votes = situation.votes
    if votes is None or not votes.n_voters:
        return said
    if row.base_version == row.anchor_version:
        return [*said, f"Devices have nothing to vote on yet: model {row.base_version} is the anchor itself."]
    compared = f"model {row.base_version} against model {row.anchor_version}, the anchor"
    decide = "more than half of the updates decide"
    if votes.n_tallies is not None:
        decide += ", by more than the noise can be"
    return [*said, f"Votes on {compared}: {votes.in_words}; {decide}."]


def _held_back(situation: Situation, row: RoundRow, failed: FailedRounds) -> list[str]:
    """Say that the round is held back from devices: until when, why, and what to do."""
    until = situation.held_until
    waits = [] if until is None else [f"in {duration(_seconds(situation.at, until))}"]
    if AFTERMATH[failed.reason] is Aftermath.HELPERS_FIRST:
        waits.append("once all helpers have answered")
    ended = "one round has failed" if failed.n_rounds == 1 else f"{failed.n_rounds} rounds have failed"
    heard = f"Round {row.number} has no update; devices hear of it {' and '.join(waits)}"
    return [
        f"{heard}: {ended} since the last model, the newest as {situation.failed_why}.",
        "Each such round costs its devices a participation.",
        _ROUND_OVER if HelperRefusalCode.ROUND_OVER in situation.failed_why else _WHAT_TO_DO[failed.reason],
        *_life(situation),
    ]


def _collected(situation: Situation, row: RoundRow) -> str:
    n = len(situation.contributed)
    have = "no update" if n == 0 else _updates(n)
    what = "The buffer of round" if row.pacing is Pacing.BUFFERED else "Round"
    age = duration(_seconds(row.opened_at, situation.at))
    return (
        f"{what} {row.number} has {have} of at least {row.min_clients} (at most {row.max_clients}), opened {age} ago."
    )


def _ends(situation: Situation, row: RoundRow) -> str:
    missing, overdue = row.min_clients - len(situation.contributed), situation.overdue_s
    if situation.federator == "stopped" and overdue is not None:
        return (
            f"It should have ended {duration(overdue)} ago and is still open: its federator is not running, or cannot "
            f"reach this database. {_START}; nothing accepted is lost"
        )
    if overdue is not None:
        return "It is due and about to end."
    left = duration(-_seconds(row.closes_at, situation.at))
    until_min = row.min_time_s - _seconds(row.opened_at, situation.at)
    if situation.is_enough:
        return f"It has enough updates and ends in {duration(until_min)}."
    from_then = "" if until_min <= 0 else f" (in {duration(until_min)} at the earliest)"
    have = f"{missing} more {'has' if missing == 1 else 'have'} contributed"
    if row.period_s is not None:
        model = f": with a model if {have} by then" if missing > 0 else ", with a model"
        return f"It ends with {row.max_clients} updates{from_then}, else in {left}{model}."
    buffered = (
        f" Updates count that were made on one of the last {row.staleness_limit + 1} models."
        if row.pacing is Pacing.BUFFERED
        else ""
    )
    return f"It ends as soon as {have}{from_then}, and at the latest in {left}, then without a model.{buffered}"


def _taken_by(situation: Situation) -> list[str]:
    """Say who receives updates, if there are or should be ingest workers."""
    workers = situation.workers
    if workers is None:
        return []
    are = "ingest worker is" if workers.n_workers == 1 else "ingest workers are"
    if workers.takes_updates is TakesUpdates.WRITER:
        idle = f"{workers.n_workers} {are} idle, because its federator runs without --role leader."
        return [idle] if workers.n_workers else []
    if workers.n_workers:
        return [f"{workers.n_workers} {are} running to take its updates."]
    return ["No ingest worker is running, so no update is stored. Start one: foltr federator run --role ingest"]


def _waits_for(situation: Situation, row: RoundRow) -> list[str]:
    if row.period_s is not None:
        every = duration(row.period_s)
        return [f"Devices connect only for visits, about every {every}, so nobody is known to be online."]
    n_online, awaited = len(situation.online), situation.awaited
    if not n_online:
        return _nobody_online(situation, row)
    asked = f"; {situation.n_not_asked} were not asked" if situation.n_not_asked else ""
    of = f"(of {n_online} online member{'s' * (n_online != 1)}{asked})"
    if not awaited:
        short = len(situation.contributed) < row.min_clients
        hint = " More devices must come, or set a smaller min_clients for the rounds to follow." if short else ""
        return [f"Everybody online who was asked has contributed {of}.{hint}"]
    return [f"Online and not yet heard from: {_names(awaited)} {of}."]


def _nobody_online(situation: Situation, row: RoundRow) -> list[str]:
    """Say why no member is online. The federator records who connects, if it runs."""
    if situation.federator == "stopped" or situation.broker == "silent":
        return []
    if situation.quarantined_online:
        return ["Only members in quarantine are online: more devices must come."]
    if situation.federator == "silent":
        unheard = f"Nothing was stored for {duration(situation.silence_s)}, and no member was online then"
        return [f"{unheard}: no device came, or the federator is not running, and devices may be waiting for it."]
    known = {*situation.contributed, *situation.quarantined}
    strangers = [name for name in situation.connected if name not in known]
    if strangers:
        are = "is" if len(strangers) == 1 else "are"
        who = f"{_names(strangers)} {are} connected but no member"
        return [f"No member is online. {who}; see: foltr rounds show {row.number}"]
    return ["No member is online: start devices, or check the broker with: foltr doctor"]


def _kept_out(situation: Situation, row: RoundRow) -> list[str]:
    """Say who is in quarantine, and what to do if the quorum is missing because of that."""
    if not situation.quarantined:
        return []
    said = f"In quarantine, so their updates do not count: {_names(situation.quarantined)}."
    n_left, n_more = len({*situation.contributed, *situation.awaited}), len(situation.quarantined_online)
    if n_left >= row.min_clients or not n_more:
        return [said]  # nothing is missing: offline clients contribute nothing anyway
    can = f"Only {n_left} can contribute, fewer than min_clients ({row.min_clients})"
    if n_left + n_more < row.min_clients:
        return [f"{said} {can}, and these would not be enough: add devices, or set a smaller min_clients."]
    out = "let one out with foltr device quarantine NAME --lift"
    return [f"{said} {can}: {out}, add devices, or set a smaller min_clients for the rounds to follow."]


def _refused(situation: Situation) -> list[str]:
    if not situation.refused or situation.round is None:
        return []
    counts = ", ".join(f"{code} {n}" for code, n in situation.refused.items())
    return [f"Refused in this round: {counts}; see: foltr rounds show {situation.round.number}"]


def _ended(row: RoundRow) -> str:
    is_abandoned = row.state is RoundState.ABANDONED
    how = f"abandoned ({row.reason})" if is_abandoned else f"completed with model {row.model_version}"
    when = "" if row.closed_at is None else f" on {row.closed_at:%Y-%m-%d %H:%M:%S}"
    return (
        f"No round is open: round {row.number}, the newest, was {how}{when}. A federator opens the next round when "
        "one ends, so it was ordered to stop after this one: run it again without --rounds, or with more"
    )


def dated_ahead(situation: Situation) -> str:
    """Say that stored times are in the future and so tell nothing; empty if none is."""
    if situation.dated_until is None:
        return ""
    ahead = duration(_seconds(situation.at, situation.dated_until))
    return (
        f"Rows are dated up to {ahead} in the future, by a clock that is or was ahead; they do not count as activity."
    )


def _life(situation: Situation) -> list[str]:
    if situation.last_activity is None:
        return list(filter(None, [dated_ahead(situation)]))
    started = (
        "never" if situation.started_at is None else f"{duration(_seconds(situation.started_at, situation.at))} ago"
    )
    last = (
        f"Last stored {duration(_seconds(situation.last_activity, situation.at))} ago, last federator start {started}."
    )
    state = None if situation.round is None else situation.round.state
    if situation.federator == "stopped" and state in (None, RoundState.AGGREGATING):
        last += f" Its federator is not running. {_START}; it continues where it stopped"
    elif situation.federator == "silent" and state is RoundState.COLLECTING:
        last += " That is usual while no device sends anything; at the deadline the database shows whether it runs."
    return list(filter(None, [last, dated_ahead(situation)]))


def _names(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(names[:_SHOWN_NAMES]) + more


def _updates(n: int) -> str:
    return f"{n} update{'s' * (n != 1)}"


def _seconds(since: datetime, at: datetime) -> float:
    return (at - since).total_seconds()


def duration(seconds: float) -> str:
    """Format a duration."""
    seconds = max(0.0, seconds)
    if seconds < 600:
        return f"{seconds:.0f} s"
    if seconds < 3 * 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 72 * 3600 else f"{seconds / 86_400:.0f} days"
