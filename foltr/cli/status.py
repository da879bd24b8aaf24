"""``foltr status``: the state of a federation on one screen, once or repeatedly."""

import asyncio
import math
import os
import shlex
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from typing import Annotated, Any, Final

import typer
from rich.live import Live
from rich.text import Text

from foltr.cli import options
from foltr.cli.database import answering, open_federation
from foltr.cli.fields import option
from foltr.cli.history.heartbeat import receive_status
from foltr.cli.output import console, print_json, print_jsonl, to_plain, wrapped
from foltr.cli.settings import DB_URL_VARIABLE, Settings, load_settings
from foltr.core.errors import SettingsError, UnavailableError
from foltr.core.operator.next_commands import DEFAULT_OPERATOR_FOLDER
from foltr.core.protocol.states import JobState
from foltr.core.protocol.verdicts import Finding, Level, Verdict, as_rows
from foltr.operations.explanations import dated_ahead, duration
from foltr.operations.overview import Activity, Effectiveness, Overview, read_overview
from foltr.operations.situation import ReceivedStatus, Situation
from foltr.operations.verdict import judge, verdict_without_database
from foltr.storage.errors import SchemaDiffersError
from foltr.storage.sqlite_file import identify
from foltr.storage.urls import address_of, in_words, read_url, without_password

# Reading the database takes a tenth of a second. A longer time means that it does not answer.
_LOOK_S = 10.0
_MOST_LINES = 1000
# Each time a new connection: retained messages change only as often as the federator's heartbeat.
_ASK_BROKER_EVERY_S = 5.0
_NEVER = "never"


EXIT_CODES: Final = {Level.OK: 0, Level.DEGRADED: 1, Level.DOWN: 3}
_COLOURS: Final = {Level.OK: "green", Level.DEGRADED: "yellow", Level.DOWN: "red"}
_LABEL = 11
_SHOWN_NAMES = 5
_HOUR_S = 3600


def status(
    watch: Annotated[bool, option("Repeat until Ctrl-C", "--watch")] = False,
    every: Annotated[float, option("Seconds between two looks", min=0.2, max=3600)] = 2.0,
    db: options.Db = None,
    federation: options.Federation = None,
    credentials: options.Credentials = None,
    broker: options.Broker = None,
    json: options.Json = False,
    jsonl: Annotated[bool, option("Print a line of JSON, with --watch one for each look", "--jsonl")] = False,
) -> None:
    """Show on one screen how a federation is: the verdict, what to type, its round, its devices, its erasures.

    The broker is asked as `foltr rounds why` does. Exit codes: 0 ok; 1 degraded, somebody has to act; 3 down.
    """
    if json and watch:
        raise SettingsError("json: --json cannot be combined with --watch; use --jsonl --watch")
    settings = load_settings(db_url=db, federation=federation, credentials=credentials, broker_url=broker)
    if watch:
        asyncio.run(_watch(settings, every, named=federation is not None, jsonl=jsonl))
        return
    try:
        found = asyncio.run(_once(settings, named=federation is not None))
    except (UnavailableError, SchemaDiffersError) as error:
        _show_down(_without_database(error, settings), json=json, jsonl=jsonl)
        raise typer.Exit(EXIT_CODES[Level.DOWN]) from error
    if json or jsonl:
        (print_json if json else print_jsonl)(_plain(found))
    else:
        # A mail or a file has room for each finding.
        height = console.height if console.is_terminal or "LINES" in os.environ else _MOST_LINES
        console.print(_screen(found, height), soft_wrap=True)
    if code := EXIT_CODES[judge(found).level]:
        raise typer.Exit(code)


def _show_down(verdict: Verdict, *, json: bool, jsonl: bool) -> None:
    """Show the verdict on a federation whose database does not answer."""
    if json or jsonl:
        (print_json if json else print_jsonl)({"verdict": plain_verdict(verdict)})
    else:
        console.print(_coloured(verdict_lines(verdict, console.width), verdict.level), soft_wrap=True)


def _without_database(error: Exception, settings: Settings) -> Verdict:
    return verdict_without_database(error, values_of(settings), address_of(read_url(settings.db_url)))


def values_of(settings: Settings) -> dict[str, str]:
    """Return what to type for the placeholders of commands, without the database's password."""
    values = {}
    if without_password(settings.db_url) == settings.db_url:
        values["URL"] = shlex.quote(settings.db_url)
    elif os.environ.get(DB_URL_VARIABLE) == settings.db_url:
        values["URL"] = f'"${DB_URL_VARIABLE}"'
    else:
        values["URL"] = shlex.quote(without_password(settings.db_url))
    credentials = settings.credentials
    if credentials is None and (usual := DEFAULT_OPERATOR_FOLDER / "operator.json").exists():
        credentials = str(usual)
    if credentials is not None:
        values["FILE"] = shlex.quote(credentials)
    return values


def _coloured(lines: list[str], level: Level) -> Text:
    """Join lines; the first one, the verdict, has its colour."""
    text = Text("\n".join(lines))
    text.stylize(f"bold {_COLOURS[level]}", 0, len(lines[0]))
    return text


async def _once(settings: Settings, *, named: bool) -> "Overview":
    async with _looking(settings, named=named) as look:
        return await look()


async def _watch(settings: Settings, every_s: float, *, named: bool, jsonl: bool) -> None:
    """Show the status repeatedly. On an error show it, with the time of the last success.

    After one success, a missing file, federation or schema is not fatal: the database is being restored or upgraded.
    """
    as_of = _NEVER
    live = Live(console=console, auto_refresh=False, screen=True) if console.is_terminal and not jsonl else None
    with live or nullcontext():
        while True:
            started = time.monotonic()
            try:
                async with _looking(settings, named=named) as look:
                    while True:
                        started = time.monotonic()
                        found = await look()
                        as_of = f"{found.as_of:%Y-%m-%d %H:%M:%S} UTC"
                        _show(found, live, jsonl=jsonl)
                        await asyncio.sleep(max(0.0, every_s - (time.monotonic() - started)))
            except (SettingsError, UnavailableError) as error:
                if isinstance(error, SettingsError) and as_of == _NEVER:
                    raise
                verdict = _without_database(error, settings)
                _show_away(verdict, str(error), as_of, live, jsonl=jsonl)
            await asyncio.sleep(max(0.0, every_s - (time.monotonic() - started)))


@asynccontextmanager
async def _looking(settings: Settings, *, named: bool) -> "AsyncIterator[Callable[[], Awaitable[Overview]]]":
    """Connect to the database. Yields a function that reads it, and asks the broker every few seconds.

    Raises:
        UnavailableError: no answer in time; drivers limit the connection, `answering` limits each read.
    """
    url = read_url(settings.db_url)
    if url.get_backend_name() == "sqlite":
        identify(url.database, in_words(url))  # elsewhere a missing file is a wrong setting, here it is a verdict
    async with open_federation(settings, named=named) as (database, name):
        heard: ReceivedStatus | None = None
        asked_at = -math.inf
        values = values_of(settings)

        async def look() -> "Overview":
            nonlocal heard, asked_at
            async with answering(database, _LOOK_S):
                await database.follow_file()
                if time.monotonic() - asked_at >= _ASK_BROKER_EVERY_S:
                    heard, asked_at = await receive_status(settings, name), time.monotonic()
                found = replace(await read_overview(database, name), values=values)
                return found.with_received(heard)

        yield look


def _show(found: "Overview", live: Live | None, *, jsonl: bool) -> None:
    if jsonl:
        print_jsonl(_plain(found))
    elif live is None:
        console.print(_screen(found, console.height), end="\n\n", soft_wrap=True)
    else:
        live.update(_screen(found, console.height - 1), refresh=True)


def _show_away(verdict: Verdict, cause: str, as_of: str, live: Live | None, *, jsonl: bool) -> None:
    if jsonl:
        down = plain_verdict(verdict)
        print_jsonl({"verdict": down, "as_of": None, "unavailable": cause, "last_as_of": as_of})
        return
    again = wrapped(f"Looking again; the last answer is as of {as_of}.", console.width).splitlines()
    text = _coloured([*verdict_lines(verdict, console.width), *again], verdict.level)
    if live is None:
        console.print(text, end="\n\n", soft_wrap=True)
    else:
        live.update(text, refresh=True)


def _screen(found: "Overview", height: int) -> Text:
    return _coloured(screen_lines(found, console.width, height), judge(found).level)


def _plain(found: "Overview") -> Any:
    """Return the overview for JSON, with the clients that the round waits for."""
    situation = found.situation
    judged = {"awaited": situation.awaited, "n_not_asked": situation.n_not_asked, "overdue_s": situation.overdue_s}
    plain = to_plain(found)
    del plain["values"]
    return {"verdict": plain_verdict(judge(found))} | plain | {"situation": plain["situation"] | judged}


def screen_lines(overview: Overview, width: int, height: int) -> list[str]:
    """Return the lines of a screen, at most ``height`` and none longer than ``width``.

    The reasons that the open round waits get the lines that remain. If these are too few, the last line names the
    command that shows all. A word longer than a line, such as a long name, is broken.
    """
    head = [*verdict_lines(judge(overview), width, height // 3), *_head(overview, width)]
    facts = _lines(_facts(overview), width)
    waits = _field("Waits for", "\n".join(overview.waits_for), width)
    room = max(3, height - len(head) - len(facts) - 1)
    if len(waits) > room:
        facts = [*facts, *_lines(_votes(overview), width)]
        room = max(3, height - len(head) - len(facts) - 1)
        waits = [*waits[: room - 1], " " * _LABEL + "... all of it: foltr rounds why"]
    return [*head, *waits, *facts][:height]


def verdict_lines(verdict: Verdict, width: int, room: int = 24) -> list[str]:
    """Return the findings of a verdict, each with who causes it and the next command.

    After ``room`` lines the others are only named.
    """
    lines = [f"{verdict.level.upper():{_LABEL}}{'' if verdict.findings else verdict.headline}".rstrip()]
    for i, each in enumerate(verdict.findings):
        culprit = f"{each.culprit}: " if each.culprit else ""
        said = _field(each.reason.level, f"{culprit}{each.reason.sentence} {each.detail}", width)
        said += _field("", f"Type: {each.command(verdict.values)}", width)
        if i and len(lines) + len(said) + (i + 1 < len(verdict.findings)) > room:
            others = ", ".join(_others(verdict.findings[i:]))
            return [*lines, *_field("", f"And {others}: foltr status --json", width)]
        lines += said
    return lines


def _others(findings: Sequence[Finding]) -> Iterator[str]:
    """Name reasons with their culprit, or with how many culprits they have."""
    for reason, alike in groupby(findings, lambda each: each.reason):
        culprits = [each.culprit for each in alike]
        yield reason + (f" of {len(culprits)}" if len(culprits) > 1 else f" of {culprits[0]}" if culprits[0] else "")


def plain_verdict(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict for JSON, as the HTTP API has it."""
    return {
        "level": verdict.level,
        "headline": verdict.headline,
        "findings": as_rows(verdict),
    }


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
    """Yield the votes separately, as the sentences that end with them may be cut."""
    if (votes := overview.situation.votes) is not None and votes.n_voters:
        yield "Votes", votes.in_words


def federator_in_words(situation: Situation) -> str:
    """Say whether the federator runs, and by which source."""
    stored = "nothing was ever stored" if situation.dated_until is None else ""
    if situation.last_activity is not None:
        stored = f"last stored {duration(situation.silence_s)} ago"
    match situation.broker:
        case "there":
            says = "running, says the broker"
        case "away":
            says = "ended as ordered" if situation.is_over else "not running, says the broker"
        case "unknown":
            says = "not running: the broker knows of none"
        case "silent":
            says = f"hangs: no heartbeat for {situation.broker_detail}"
        case _:
            says = _by_the_database(situation)
    if situation.broker != "there" and situation.federator == "stopped" and not situation.is_over:
        says += f"; {len(situation.connected)} devices wait for it" if situation.connected else ""
    return "; ".join(filter(None, (says, situation.led_by, stored, dated_ahead(situation).rstrip("."))))


def _by_the_database(situation: Situation) -> str:
    why = "" if situation.broker is None else " (the broker cannot be reached)"
    if situation.is_over:
        return f"no round is open{why}"
    if situation.federator == "stopped":
        return f"not running, says the database{why}"
    if situation.is_led:
        return f"running, says the database{why}"
    if situation.federator == "active":
        return f"it ran when it last stored something{why}"
    return f"unknown before the deadline, says the database{why}"


def _members(overview: Overview) -> str:
    members = overview.members
    row = overview.situation.round
    there = f"{members.n_online} of {members.n_members} online"
    if row is not None and row.period_s is not None:
        there = f"{members.n_members}, which come by every {duration(row.period_s)} or so"
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
    return "in the last hour" if seconds >= _HOUR_S else f"in the last {duration(seconds)}"


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
    said = f"{model.version}, {origin}, {duration((overview.as_of - model.created_at).total_seconds())} old"
    said += "" if model.published_at is not None else ", not published yet"
    return said if model.tainted_at is None else f"{said}, has learned from a forgotten client"


def _reward(effectiveness: Effectiveness) -> str:
    """Compare the ranker's reward with the base order and earlier rounds."""
    newest = effectiveness.newest
    noise = "" if newest.evaluation_deviation is None else f" ± {newest.evaluation_deviation:.2f}"
    said = f"{newest.reward:.2f}{noise} in round {newest.round}, base order {newest.base_reward:.2f}"
    # With noise, a share may be below 0 or above 1.
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
        said += f"; the oldest was asked for {duration((overview.as_of - counts.oldest_at).total_seconds())} ago"
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
