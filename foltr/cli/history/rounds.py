"""``foltr rounds``: what the database remembers of rounds, and what the open one waits for."""

from json import loads
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated

import typer

from foltr.cli import options
from foltr.cli.history.heartbeat import hear
from foltr.cli.history.orders import deadline
from foltr.cli.history.query import run_query
from foltr.cli.history.sums import COLUMNS as SUM_COLUMNS
from foltr.cli.history.sums import sum_lines
from foltr.cli.history.watched import watch_rounds
from foltr.cli.listed import fitting, print_some, rows_to_list, say_more
from foltr.cli.output import print_json, print_jsonl, print_record, print_rows, say, to_plain
from foltr.cli.settings import load_settings
from foltr.errors import SettingsError

if TYPE_CHECKING:
    from storage.database import Database
    from storage.history_records import ClientHistoryRow, RoundAggregationRow, RoundHistoryRow

app = typer.Typer(help="Look at rounds.", no_args_is_help=True)

# As many as a terminal of 80 columns holds; `rounds show` and --json have all of them.
_ROUND_COLUMNS = ("round", "state", "opened", "lasted", "updates", "refused", "model")
_CONTRIBUTION_COLUMNS = ("client_id", "n_interactions", "n_bytes", "received_at")
_FATE_COLUMNS = ("client_id", "n_interactions", "fate", "share", "score", "reason")
_EVENT_COLUMNS = ("at", "kind", "code", "client_id", "detail")
_VOTES = "votes 3/1/2: of its updates 3 found the newest model worse than the anchor, 2 better, 1 neither"
_VOTES_OF_SUMS = (
    "votes 30/2 ± 9: of its updates about 30 found the newest model worse than the anchor, about 2 better, with noise "
    "of standard deviation 9 in each, which may take it below 0"
)
_REWARD = "reward 0.61/0.55: mean reciprocal rank of the first click, as shown, and of these clicks in the base order"
_REWARD_OF_SUMS = (
    "reward 0.61/0.55 ± 0.04: likewise, with noise of standard deviation 0.04 in each, which may take it below 0 or "
    "above 1"
)
_HIGHEST_ROUND = 2**31 - 1


@app.command("list")
def rounds_list(
    db: options.Db = None,
    federation: options.Federation = None,
    limit: options.Limit = None,
    watch: Annotated[bool, typer.Option("--watch", help="Go on with each round that ends, until Ctrl-C")] = False,
    json: options.Json = False,
    jsonl: options.Jsonl = False,
) -> None:
    """The rounds, newest last, from the view round_history, and how many updates were erased since with clients."""
    from storage.queries import erased_updates, list_rounds

    if watch:
        if json:
            raise SettingsError("json: a stream has a line of JSON for each round: --jsonl --watch")
        watch_rounds(db, federation, limit, jsonl=jsonl)
        return

    async def query(database: "Database", name: str) -> None:
        rows = await list_rounds(database, name, limit=rows_to_list(limit, json=json or jsonl))
        erased = await erased_updates(database, name, rows[0].round, rows[-1].round) if rows else {}
        if json or jsonl:
            plain = [to_plain(row) | {"n_erased": erased.get(row.round, 0)} for row in rows]
            if json:
                print_json(plain)
            for each in plain if jsonl else ():
                print_jsonl(each)
            return
        lines = [_line(row, erased.get(row.round, 0)) for row in rows]
        has_votes = any(line.votes is not None for line in lines)
        has_rewards = any(line.reward is not None for line in lines)
        columns = _ROUND_COLUMNS + ("votes",) * has_votes + ("reward",) * has_rewards
        is_noisy = any(row.evaluation_deviation is not None for row in rows)
        if has_votes and has_rewards:  # 80 columns hold no more; when the next one opened tells how long it lasted, too
            left_out = ("lasted", "refused") if is_noisy else ("lasted",)
            columns = tuple(column for column in columns if column not in left_out)
        lines = fitting(lines, columns, limit)
        print_rows(lines, columns, title=f"Rounds of {name}", as_json=False)
        say_more(lines[0].round - 1 if lines else 0, "Earlier rounds", f"--limit {rows[-1].round if rows else 0}")
        if has_votes:
            say(_VOTES_OF_SUMS if any(row.tally_worse is not None for row in rows) else _VOTES)
        if has_rewards:
            say(_REWARD)
            if is_noisy:
                say(_REWARD_OF_SUMS)
        if erased:
            say("1 of 4: one of 4 updates is stored, the others were erased with clients; see: foltr erasures list")

    run_query(db, federation, query)


@app.command("why")
def rounds_why(
    db: options.Db = None,
    federation: options.Federation = None,
    credentials: options.Credentials = None,
    broker: options.Broker = None,
    json: options.Json = False,
) -> None:
    """What the open round waits for, and whether its federator is running.

    The broker knows at once whether it is: it is asked as the operator whose folder is in the working directory, or as
    the user of --credentials, or with --broker.
    """
    from operations.reading import read_situation
    from operations.why import explain

    settings = load_settings(credentials=credentials, broker_url=broker)

    async def query(database: "Database", name: str) -> None:
        situation = (await read_situation(database, name)).with_heard(await hear(settings, name))
        sentences = explain(situation)
        if json:
            parts = {"awaited": situation.awaited, "n_not_asked": situation.n_not_asked}
            life = {"federator": situation.federator, "overdue_s": situation.overdue_s}
            print_json({**to_plain(situation), **parts, **life, "in_words": " ".join(sentences)})
            return
        for sentence in sentences:
            say(sentence)

    run_query(db, federation, query)


@app.command("show")
def rounds_show(
    which: Annotated[str, typer.Argument(metavar="NUMBER|latest", help="The round's number, or the newest round")],
    show_all: options.All = False,
    db: options.Db = None,
    federation: options.Federation = None,
    json: options.Json = False,
) -> None:
    """One round: its row, its rule, who contributed, what became of each update, what was refused, what was erased."""
    from storage.queries import erased_updates, get_aggregation, get_round, list_contributions, list_events

    _check_round(which)

    async def query(database: "Database", name: str) -> None:
        number = await _number(database, name, which)
        row = await get_round(database, name, number)
        if row is None:
            raise SettingsError(f"federation {name!r} has no round {number}; see: foltr rounds list")
        contributions = await list_contributions(database, name, round_number=number)
        events = await list_events(database, name, round_number=number, limit=1000)
        made = await get_aggregation(database, name, number)
        sums = await sum_lines(database, name, number)
        n_erased = (await erased_updates(database, name, number, number)).get(number, 0)
        if json:
            parsed = None if made is None else to_plain(made) | {"parameters": loads(made.parameters)}
            shown = to_plain(row) | {"n_erased": n_erased}
            both = {"contributions": contributions, "sums": sums, "events": events}
            print_json({"round": shown, "aggregation": parsed, **both})
            return
        print_record(row, title=f"Round {number} of {name}", as_json=False)
        if made is not None:
            say(rule_in_words(row.aggregation, made))
        if row.anchor_version not in {None, row.base_version}:
            votes = _votes_in_words(row)
            say(f"Votes on model {row.base_version} against model {row.anchor_version}, the anchor: {votes}")
        if row.reward is not None:
            say(_evaluation_in_words(row))
        option = f"foltr rounds show {number} --all"
        has_fates = any(line.fate is not None for line in contributions)
        columns = _FATE_COLUMNS if has_fates else _CONTRIBUTION_COLUMNS
        shown_lines = [_fate_line(line) if has_fates else line for line in contributions]
        print_some(shown_lines, columns, title="Contributions", option=option, show_all=show_all)
        if sums:
            print_rows(sums, SUM_COLUMNS, title="Sums", as_json=False)
        if n_erased:
            say(f"Updates taken out since, with clients that were forgotten: {n_erased}; see: foltr erasures list")
        print_some(events, _EVENT_COLUMNS, title="Events", option=option, show_all=show_all, newest=True)

    run_query(db, federation, query)


app.command("deadline")(deadline)


def _check_round(which: str) -> None:
    if which != "latest" and not (which.isascii() and which.isdigit() and 0 < int(which) <= _HIGHEST_ROUND):
        raise SettingsError(f"round: {which!r} is neither a number from 1 on nor 'latest'; see: foltr rounds list")


async def _number(database: "Database", name: str, which: str) -> int:
    from storage.rounds import latest_round

    if which != "latest":
        return int(which)
    row = await latest_round(database, name)
    if row is None:
        raise SettingsError(f"federation {name!r} has no round yet; see: foltr rounds why")
    return row.number


def _line(row: "RoundHistoryRow", n_erased: int) -> SimpleNamespace:
    """A round as a line of a table; updates that were taken out of it are counted beside those that are stored."""
    return SimpleNamespace(
        round=row.round,
        state=row.state if row.reason is None else f"{row.state}: {row.reason}",
        opened=f"{row.opened_at:%m-%d %H:%M}",
        lasted=None if row.duration_s is None else f"{row.duration_s:.1f} s",
        updates=f"{row.n_updates} of {row.n_updates + n_erased}" if n_erased else row.n_updates,
        refused=row.n_rejected,
        model=row.model_version,
        votes=_votes_of(row),
        reward=_reward_of(row),
    )


def _reward_of(row: "RoundHistoryRow") -> str | None:
    """What a round's lists have earned in a cell of a table; None where nobody says so."""
    if row.reward is None:
        return None
    noise = "" if row.evaluation_deviation is None else f" ± {row.evaluation_deviation:.2f}"
    return f"{row.reward:.2f}/{row.base_reward or 0.0:.2f}{noise}"


def _votes_of(row: "RoundHistoryRow") -> str | None:
    """The votes of a round in a cell of a table; None where there are none."""
    if row.tally_worse is not None:
        return f"{round(row.tally_worse)}/{round(row.tally_better or 0.0)} ± {row.tally_deviation:.0f}"
    return f"{row.n_worse}/{row.n_none}/{row.n_better}" if row.n_worse + row.n_none + row.n_better else None


def _votes_in_words(row: "RoundHistoryRow") -> str:
    if row.tally_worse is None:
        return f"{row.n_worse} worse, {row.n_none} none, {row.n_better} better"
    worse, better = round(row.tally_worse), round(row.tally_better or 0.0)
    found = f"about {worse} worse and {better} better of {row.tally_n_updates} updates"
    return f"{found}, with noise of standard deviation {row.tally_deviation:.1f} in each"


def _evaluation_in_words(row: "RoundHistoryRow") -> str:
    """How well the ranker did by the clicks of a round's users, beside the base order."""
    noise = "" if row.evaluation_deviation is None else f", each with noise of deviation {row.evaluation_deviation:.3f}"
    found = f"reward {row.reward:.3f}, {row.base_reward:.3f} in the base order, {row.clicked:.1%} of lists clicked"
    return f"By {row.n_evaluations} updates: {found}{noise}"


def _fate_line(row: "ClientHistoryRow") -> SimpleNamespace:
    """A contribution, and what a rule made of it, as a line of a table."""
    return SimpleNamespace(
        client_id=row.client_id,
        n_interactions=row.n_interactions,
        fate=row.fate,
        share=None if row.share is None else f"{row.share:.1%}",
        score=None if row.score is None else f"{row.score:.4g}",
        reason=row.fate_reason,
    )


def rule_in_words(configured: str, made: "RoundAggregationRow") -> str:
    """By which rule a round was aggregated, with what, and why not by another."""
    if configured == "adaptive" and made.rule == "mean":
        n_counted = made.n_kept + made.n_clipped
        if n_counted + made.n_dropped == made.n_kept:
            return f"adaptive: mean of all {made.n_kept}, nobody left out or shortened"
        n = n_counted + made.n_dropped
        return f"adaptive: mean of {n_counted} of {n}, {made.n_dropped} left out, {made.n_clipped} clipped"
    values = loads(made.parameters)
    parameters = ", ".join(f"{name} = {value:g}" for name, value in values.items() if value is not None)
    shown = f"Aggregated by {made.rule}" + (f" ({parameters})" if parameters else "")
    counts = f"{made.n_kept} kept, {made.n_clipped} clipped, {made.n_dropped} dropped"
    because = "" if made.fallback_reason is None else f" Fallback: {made.fallback_reason}."
    return f"{shown}: {counts}.{because}"
