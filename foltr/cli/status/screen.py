"""The one screen of ``foltr status``: an overview as lines of text. No I/O."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from foltr.cli.output import wrapped
from foltr.core.protocol.states import JobState
from foltr.operations.overview import Activity, Effectiveness, Overview
from foltr.operations.situation import Situation
from foltr.operations.why import span

_LABEL = 11
_SHOWN_NAMES = 5
_HOUR_S = 3600


def screen_lines(overview: Overview, width: int, height: int) -> list[str]:
    """Return the lines of a screen, none longer than ``width``, no more than ``height`` of them.

    What the open round waits for has the lines that the rest leaves; where these are too few, the last one says which
    command tells all of it. A word that is longer than a line, as a long name may be, is broken.
    """
    head, facts = _head(overview, width), _lines(_facts(overview), width)
    waits = _field("Waits for", "\n".join(overview.waits_for), width)
    room = max(3, height - len(head) - len(facts) - 1)
    if len(waits) > room:
        facts = [*facts, *_lines(_votes(overview), width)]
        room = max(3, height - len(head) - len(facts) - 1)
        waits = [*waits[: room - 1], " " * _LABEL + "... all of it: foltr rounds why"]
    return [*head, *waits, *facts][:height]


def _lines(facts: Iterable[tuple[str, str]], width: int) -> list[str]:
    return [line for label, text in facts for line in _field(label, text, width)]


def _head(overview: Overview, width: int) -> list[str]:
    as_of = f"as of {overview.as_of:%Y-%m-%d %H:%M:%S} UTC"
    what = f"{overview.federation}: {overview.method}, {overview.ranker}, {overview.n_features} features"
    what += f", {overview.privacy}"
    first = f"{what}  {as_of:>{max(0, width - len(what) - 2)}}"
    lines = [first]
    if len(first) > width:
        lines = [*(part for line in wrapped(what, width).splitlines() for part in _broken(line, width)), as_of]
    return [*lines, *_field("Federator", federator_in_words(overview.situation), width)]


def _facts(overview: Overview) -> Iterator[tuple[str, str]]:
    yield "Members", _members(overview)
    yield "Rounds", _rounds(overview.activity, overview.as_of)
    yield "Refused", _refused(overview)
    yield "Model", _model(overview)
    if (effectiveness := overview.effectiveness) is not None:
        yield "Reward", _reward(effectiveness)
    if overview.erasures.n_done or overview.erasures.oldest_at is not None:
        yield "Forgotten", _forgotten(overview)
    if (job := overview.job) is not None and (job.closed_at is None or job.state is JobState.FAILED):
        why = "" if job.reason is None else f": {job.reason}"
        yield "Unlearning", f"job {job.number} ({job.strategy}) {job.state}, step {job.step} of {job.n_steps}{why}"
    if (held := overview.held_reset) is not None:
        yield "Order", held.in_words
    if (budget := overview.budget) is not None:
        spent = f"at most {budget.n_spent} of {budget.max_participations} participations spent under it"
        yield "Budget", f"policy {budget.policy_version}, epsilon {budget.epsilon:g}: {spent}"
    if overview.suspects:
        names = _names([each.client_id for each in overview.suspects])
        yield "Suspects", f"{names}; see: foltr device quarantine"


def _votes(overview: Overview) -> Iterator[tuple[str, str]]:
    """Give what the sentences have at their end, where these are cut."""
    if (votes := overview.situation.votes) is not None and votes.n_voters:
        yield "Votes", votes.in_words


def federator_in_words(situation: Situation) -> str:
    """Say whether the federator is there, and who says so."""
    stored = "nothing was ever stored"
    if situation.last_activity is not None:
        stored = f"last stored {span(situation.silence_s)} ago"
    match situation.broker:
        case "there":
            says = "it is there, as the broker says"
        case "away":
            says = "ended, as it was told to" if situation.is_over else "not running, as the broker says"
        case "unknown":
            says = "not running: the broker has heard none"
        case "silent":
            says = f"hangs: no beat for {situation.broker_detail}"
        case _:
            says = _by_the_database(situation)
    if situation.broker != "there" and situation.federator == "stopped" and not situation.is_over:
        says += f"; {len(situation.connected)} devices wait for it" if situation.connected else ""
    return "; ".join(filter(None, (says, situation.led_by, stored)))


def _by_the_database(situation: Situation) -> str:
    why = "" if situation.broker is None else " (the broker cannot be reached)"
    if situation.is_over:
        return f"no round is open{why}"
    if situation.federator == "stopped":
        return f"not running, as the database shows{why}"
    if situation.is_led:
        return f"it is there, as the database shows{why}"
    if situation.federator == "active":
        return f"it was there when it last stored something{why}"
    return f"not known before the deadline, as far as the database shows{why}"


def _members(overview: Overview) -> str:
    members = overview.members
    row = overview.situation.round
    there = f"{members.n_online} of {members.n_members} online"
    if row is not None and row.period_s is not None:
        there = f"{members.n_members}, which come by every {span(row.period_s)} or so"
    said = [there]
    counts = (("in quarantine", members.n_quarantined), ("left", members.n_left), ("revoked", members.n_revoked))
    return ", ".join([*said, *(f"{n} {what}" for what, n in counts if n)])


def _rounds(activity: Activity, as_of: datetime) -> str:
    ended = f"{activity.n_completed} completed, {activity.n_abandoned} abandoned"
    said = f"{ended} {_since(activity.since, as_of)}, with {activity.n_updates} updates"
    if activity.completed_per_hour is None or activity.updates_per_hour is None:
        return said
    return f"{said}; per hour: {activity.completed_per_hour:.0f} completed, {activity.updates_per_hour:.0f} updates"


def _refused(overview: Overview) -> str:
    counts = sorted(overview.refusals.by_reason.items(), key=lambda item: -item[1])
    said = ", ".join(f"{reason} {n}" for reason, n in counts) or "nothing"
    return f"{said} {_since(overview.refusals.since, overview.as_of)}"


def _since(moment: datetime, as_of: datetime) -> str:
    seconds = (as_of - moment).total_seconds()
    return "in the last hour" if seconds >= _HOUR_S else f"in the last {span(seconds)}"


def _model(overview: Overview) -> str:
    model = overview.model
    if model is None:
        return "none"
    if model.restored_version is not None:
        origin = f"the weights of model {model.restored_version} again"
    elif model.unlearning_job is not None:
        origin = f"of unlearning job {model.unlearning_job}"
    else:
        origin = "the first one" if model.round is None else f"of round {model.round}"
    said = f"{model.version}, {origin}, {span((overview.as_of - model.created_at).total_seconds())} old"
    said += "" if model.published_at is not None else ", not published yet"
    return said if model.tainted_at is None else f"{said}, has learned from somebody forgotten"


def _reward(effectiveness: Effectiveness) -> str:
    """Say how well the ranker does, beside the base order and the rounds before."""
    newest = effectiveness.newest
    noise = "" if newest.evaluation_deviation is None else f" ± {newest.evaluation_deviation:.2f}"
    said = f"{newest.reward:.2f}{noise} in round {newest.round}, base order {newest.base_reward:.2f}"
    # Where there is noise a share may be below nothing, or above all.
    noisy = f"{newest.clicked:.2f} of lists clicked, each as noisy"
    said += f", {noisy if noise else f'{newest.clicked:.0%} of lists clicked'}"
    if effectiveness.mean_before is None:
        return said
    return f"{said}; {effectiveness.mean_before:.2f} in the {effectiveness.n_before} before"


def _forgotten(overview: Overview) -> str:
    counts = overview.erasures
    erasing = f"{counts.n_erasing} being erased, " if counts.n_erasing else ""
    said = f"{counts.n_done} done, {erasing}{counts.n_waiting} waiting, {counts.n_unlearning} being unlearned"
    if counts.oldest_at is not None:
        said += f"; the oldest was asked for {span((overview.as_of - counts.oldest_at).total_seconds())} ago"
    return f"{said}; {counts.n_overdue} overdue: foltr erasure list" if counts.n_overdue else said


def _names(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(names[:_SHOWN_NAMES]) + more


def _field(label: str, text: str, width: int) -> list[str]:
    room = max(20, width - _LABEL)
    sentences = (wrapped(sentence, room) for sentence in text.splitlines())
    lines = [part for sentence in sentences for line in sentence.splitlines() for part in _broken(line, room)]
    return [f"{label if i == 0 else '':{_LABEL}}{line}" for i, line in enumerate(lines)]


def _broken(line: str, room: int) -> list[str]:
    return [line[i : i + room] for i in range(0, len(line), room)]


def needs_attention(overview: Overview) -> bool:
    """Say whether somebody has to do something: as the operator is waited for, or there is no federator."""
    job, situation = overview.job, overview.situation
    is_gone = overview.federator == "stopped" or situation.broker == "silent"
    return (
        (is_gone and not situation.is_over)
        or overview.erasures.n_overdue > 0
        or overview.held_reset is not None
        or (job is not None and job.state is JobState.PAUSED)
    )
