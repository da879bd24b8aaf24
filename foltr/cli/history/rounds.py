"""``foltr rounds``: stored rounds, what the open one waits for, and whether a model can be reproduced."""

import hashlib
from collections.abc import Iterator, Sequence
from json import loads
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from foltr.cli import options
from foltr.cli.database import Listing, print_listing, reason_as_json, run_query
from foltr.cli.fields import argument, option
from foltr.cli.history.heartbeat import receive_status
from foltr.cli.operator.sending import send_order
from foltr.cli.options import OperatorFolder
from foltr.cli.output import Columns, print_json, print_record, print_rows, report, say, to_plain
from foltr.cli.progress import progress_reporter
from foltr.cli.settings import load_settings
from foltr.core.errors import SettingsError
from foltr.core.operator.next_commands import DEFAULT_OPERATOR_FOLDER
from foltr.core.protocol.fields import pack_vector
from foltr.operations.operator_access import open_authority

if TYPE_CHECKING:
    from foltr.storage.database import Database
    from foltr.storage.history_records import RoundHistoryRow

    Counted = tuple[RoundHistoryRow, int]
    """A round, and how many of its updates were erased since with clients."""
    from foltr.federator.closing.replay import ReplayResult

EVENT_COLUMNS = ("at", "kind", "code", "n", "client_id", "detail")
_CONTRIBUTION_COLUMNS = ("client_id", "n_interactions", "n_bytes", "received_at")
_SUM_COLUMNS: Columns = {
    **{name: itemgetter(name) for name in ("cohort", "n_clients", "n_out")},
    "norm_proofs": lambda row: None if row["n_norm_proofs_failed"] is None else f"{row['n_norm_proofs_failed']} failed",
    **{name: itemgetter(name) for name in ("helpers", "noise")},
    "fate": lambda row: row["fate"] and row["fate"].in_words,
    "share": itemgetter("share"),
}
_HIGHEST_ROUND = 2**31 - 1
_LONGEST_S = 30 * 86_400


# Fits 80 columns; `rounds show` and --json have everything. Updates later removed from a round are counted, too.
_ROUND_COLUMNS = {
    "round": lambda counted: counted[0].round,
    "state": lambda counted: counted[0].state + (f": {counted[0].reason}" if counted[0].reason else ""),
    "opened": lambda counted: f"{counted[0].opened_at:%m-%d %H:%M}",
    "lasted": lambda counted: None if counted[0].duration_s is None else f"{counted[0].duration_s:.1f} s",
    "updates": lambda counted: _n_updates(*counted),
    "refused": lambda counted: counted[0].n_rejected,
    "model": lambda counted: counted[0].model_version,
}
_FATE_COLUMNS = {
    "client_id": lambda row: row.client_id,
    "n_interactions": lambda row: row.n_interactions,
    "fate": lambda row: row.fate and row.fate.in_words,
    "share": lambda row: None if row.share is None else f"{row.share:.1%}",
    "score": lambda row: None if row.score is None else f"{row.score:.4g}",
    "reason": lambda row: row.fate_reason,
}


_SHOWN_AFTER_S = 2.0


def rounds_list(
    db: options.Db = None,
    federation: options.Federation = None,
    limit: options.Limit = None,
    json: options.Json = False,
) -> None:
    """List the rounds, newest last, from the view round_history, and how many updates were erased since."""
    from foltr.storage.queries import erased_updates, list_rounds

    async def read(database: "Database", name: str, most: int) -> "list[Counted]":
        rows = await list_rounds(database, name, limit=most)
        erased = await erased_updates(database, name, rows[0].round, rows[-1].round) if rows else {}
        return [(row, erased.get(row.round, 0)) for row in rows]

    async def n_all(_database: "Database", _name: str, rows: "Sequence[Counted]") -> int:
        return rows[-1][0].round if rows else 0

    listing = Listing("Rounds", _ROUND_COLUMNS, read, n_all, plain=_plain, notes=_notes)
    print_listing(listing, db, federation, limit, json)


def rounds_why(
    db: options.Db = None,
    federation: options.Federation = None,
    credentials: options.Credentials = None,
    broker: options.Broker = None,
    json: options.Json = False,
) -> None:
    """Say what the open round waits for, and whether its federator is running.

    The broker knows at once whether it runs. The command asks it as the operator whose folder is in the working
    directory, as the user of --credentials, or with --broker.
    """
    from foltr.operations.explanations import explain
    from foltr.operations.reading import read_situation

    settings = load_settings(credentials=credentials, broker_url=broker)

    async def query(database: "Database", name: str) -> None:
        situation = (await read_situation(database, name)).with_received(await receive_status(settings, name))
        sentences = explain(situation)
        life = {name: getattr(situation, name) for name in ("awaited", "n_not_asked", "federator", "overdue_s")}
        report(json, {**to_plain(situation), **life, "in_words": " ".join(sentences)}, *sentences)

    run_query(db, federation, query)


def rounds_show(
    which: Annotated[str, argument("The round's number, or the newest that ended", metavar="NUMBER|latest")],
    show_all: options.All = False,
    db: options.Db = None,
    federation: options.Federation = None,
    json: options.Json = False,
) -> None:
    """Show one round: its row, rule, contributors, the outcome of each update, refusals and erasures."""
    from foltr.operations.round_sums import sum_lines
    from foltr.operations.round_words import round_in_words
    from foltr.storage.queries import erased_updates, get_aggregation, get_round, list_contributions, list_events

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
            both = {"contributions": contributions, "sums": sums, "events": events}
            print_json({"round": _plain((row, n_erased)), "aggregation": parsed, **both})
            return
        print_record(row, title=f"Round {number} of {name}")
        for sentence in round_in_words(row, made):
            say(sentence)
        everything = None if show_all else f"foltr rounds show {number} --all"
        columns = _FATE_COLUMNS if any(line.fate is not None for line in contributions) else _CONTRIBUTION_COLUMNS
        print_rows(contributions, columns, title="Contributions", all_with=everything)
        if sums:
            print_rows(sums, _SUM_COLUMNS, title="Sums")
        if n_erased:
            say(f"Updates taken out since, with clients that were forgotten: {n_erased}; see: foltr erasure list")
        print_rows(events, EVENT_COLUMNS, title="Events", all_with=everything, newest=True)

    run_query(db, federation, query)


def deadline(
    number: Annotated[int, argument("The round's number", min=1, max=_HIGHEST_ROUND)],
    max_time: Annotated[float, option("Seconds from its opening to its deadline", min=0.0, max=_LONGEST_S)],
    operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER,
    broker: options.Broker = None,
) -> None:
    """Change the deadline of one round by a signed order."""
    if max_time == 0:
        raise SettingsError(f"max_time: {max_time:g}; give more than 0 and at most {_LONGEST_S} seconds")
    with open_authority(operator) as authority:
        answer = send_order(authority, authority.deadline(number, max_time), broker)
        say(
            f"Order {answer.number} is obeyed: round {number} of {authority.federation} lasts {max_time:g} s from its "
            f"opening; see: foltr rounds show {number}"
        )


def _check_round(which: str) -> None:
    if which != "latest" and not (which.isascii() and which.isdigit() and 0 < int(which) <= _HIGHEST_ROUND):
        raise SettingsError(f"round: {which!r} is neither a number from 1 on nor 'latest'; see: foltr rounds list")


async def _number(database: "Database", name: str, which: str) -> int:
    from foltr.storage.pages import latest_ended_round

    if which != "latest":
        return int(which)
    number = await latest_ended_round(database, name)
    if number is None:
        raise SettingsError(f"no round of federation {name!r} has ended yet; see: foltr rounds why")
    return number


def _n_updates(row: "RoundHistoryRow", n_erased: int) -> str:
    return f"{row.n_updates} of {row.n_updates + n_erased}" if n_erased else str(row.n_updates)


def _notes(rows: "Sequence[Counted]") -> Iterator[str]:
    if any(n_erased for _, n_erased in rows):
        yield "1 of 4: one of 4 updates is stored, the others were erased with clients; see: foltr erasure list"


def _plain(counted: "Counted") -> dict[str, object]:
    row, n_erased = counted
    return {**to_plain(row), "n_erased": n_erased}


def replay(
    number: Annotated[int, argument("The round to aggregate again", metavar="ROUND", min=1, max=2**31 - 1)],
    db: options.Db = None,
    federation: options.Federation = None,
    keys: options.Keys = None,
    json: options.Json = False,
) -> None:
    """Aggregate a stored round again; exit code 0 if its model follows bit for bit from what is stored, else 1.

    If clients in it were erased since, it says so, and the exit code is 0: no model can be compared, and nothing is
    wrong. Nothing is stored in the database.
    """

    from foltr.federator.closing.collected_updates import load_recipes
    from foltr.federator.closing.replay import ErasedSinceError, replay_round

    async def query(database: "Database", name: str) -> None:
        asked = {"federation": name, "round": number, "equal": None}
        with reason_as_json(json, asked), progress_reporter(after_s=_SHOWN_AFTER_S) as tell:
            recipes = await load_recipes(database, name)
            try:
                found = await replay_round(database, recipes, number, lambda done: tell(f"round {done}"))
            except ErasedSinceError as error:
                report(json, {**asked, "erased_since": True, "reason": str(error)}, f"Erased since: {error}")
                return
        _tell_replayed(found, json=json)
        if found.differs:
            raise typer.Exit(1)

    run_query(db, federation, query, keys=keys, opens=True)


def _tell_replayed(found: "ReplayResult", *, json: bool) -> None:
    row, stored, made = found.round, _digest(found.stored), _digest(found.made)
    what = f"Model {row.model_version} from the {row.n_updates} updates of round {row.number} ({row.aggregation})"
    told: tuple[str, ...] = (f"{what}: equal, SHA-256 {made}",)
    if found.differs:
        told = (
            f"{what} differs: {'; '.join(found.differs)}",
            f"SHA-256 of the stored weights {stored}, of the replayed {made}",
            "Another processor or version of NumPy can round otherwise",
        )
    result = {
        "federation": row.federation,
        "round": row.number,
        "model": row.model_version,
        "aggregation": row.aggregation,
        "n_updates": row.n_updates,
        "equal": not found.differs,
        "differs": found.differs,
        "sha256": {"stored": stored, "replayed": made},
    }
    report(json, result, *told)


def _digest(weights: NDArray[np.float32]) -> str:
    """Return SHA-256 of the weights as stored, little-endian float32, in hex."""
    return hashlib.sha256(pack_vector(weights)).hexdigest()
