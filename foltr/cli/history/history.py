"""``foltr rounds``, ``foltr clients``, ``foltr models``: what the database remembers."""

from datetime import UTC, datetime
from json import loads
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from foltr.cli import options
from foltr.cli.history.query import no_such_client, run_query
from foltr.cli.history.why import Standing, explain
from foltr.cli.output import console, print_json, print_record, print_rows, to_plain
from foltr.cli.settings import load_settings
from foltr.errors import SettingsError
from foltr.protocol.fields import unpack_vector
from storage.events import EventKind

if TYPE_CHECKING:
    from storage.database import Database
    from storage.records import ClientHistoryRow, ClientRow, RoundAggregationRow, RoundHistoryRow


rounds_app = typer.Typer(help="Look at rounds.", no_args_is_help=True)
clients_app = typer.Typer(help="Look at clients.", no_args_is_help=True)
models_app = typer.Typer(help="Look at model versions, and export one.", no_args_is_help=True)

Limit = Annotated[int, typer.Option("--limit", min=1, help="At most so many, the newest")]
# As many as a terminal of 80 columns holds; `rounds show` and --json have all of them.
_ROUND_COLUMNS = ("round", "state", "opened", "lasted", "updates", "refused", "model")
_CLIENT_COLUMNS = ("client_id", "membership", "online", "joined_at", "last_seen_at", "sdk_version")
_HISTORY_COLUMNS = ("round", "round_state", "n_interactions", "n_bytes", "received_at", "model_version")
_FATE_COLUMNS = ("client_id", "n_interactions", "fate", "share", "score", "reason")
_EVENT_COLUMNS = ("at", "kind", "code", "client_id", "detail")
_MODEL_COLUMNS = ("version", "base_version", "round", "created_at", "published_at", "withdrawn_at")


@rounds_app.command("list")
def rounds_list(
    db: options.Db = None,
    federation: options.Federation = None,
    limit: Limit = 1000,
    json: options.Json = False,
) -> None:
    """The rounds, newest last, from the view round_history, and how many updates were erased since with clients."""
    from storage.erasure.erasures import erased_updates
    from storage.queries import list_rounds

    async def query(database: "Database", name: str) -> None:
        rows = await list_rounds(database, name, limit=limit)
        erased = await erased_updates(database, name, rows[0].round, rows[-1].round) if rows else {}
        if json:
            print_json([to_plain(row) | {"n_erased": erased.get(row.round, 0)} for row in rows])
            return
        lines = [_line(row, erased.get(row.round, 0)) for row in rows]
        print_rows(lines, _ROUND_COLUMNS, title=f"Rounds of {name}", as_json=False)
        if erased:
            _say("1 of 4: one of 4 updates is stored, the others were erased with clients; see: foltr erasures list")

    run_query(db, federation, query)


@rounds_app.command("why")
def rounds_why(
    db: options.Db = None,
    federation: options.Federation = None,
    json: options.Json = False,
) -> None:
    """What the open round waits for, and whether its federator is running."""

    async def query(database: "Database", name: str) -> None:
        standing = await _standing(database, name)
        sentences = explain(standing)
        if json:
            parts = {"awaited": standing.awaited, "n_not_asked": standing.n_not_asked}
            life = {"federator": standing.federator, "overdue_s": standing.overdue_s}
            print_json({**to_plain(standing), **parts, **life, "in_words": " ".join(sentences)})
            return
        for sentence in sentences:
            _say(sentence)

    run_query(db, federation, query)


@rounds_app.command("show")
def rounds_show(
    number: Annotated[int, typer.Argument(min=1, help="The round's number")],
    db: options.Db = None,
    federation: options.Federation = None,
    json: options.Json = False,
) -> None:
    """One round: its row, its rule, who contributed, what became of each update, what was refused, what was erased."""
    from storage.erasure.erasures import erased_updates
    from storage.queries import get_aggregation, get_round, list_contributions, list_events

    async def query(database: "Database", name: str) -> None:
        row = await get_round(database, name, number)
        if row is None:
            raise SettingsError(f"federation {name!r} has no round {number}; see: foltr rounds list")
        contributions = await list_contributions(database, name, round_number=number)
        events = await list_events(database, name, round_number=number, limit=1000)
        made = await get_aggregation(database, name, number)
        n_erased = (await erased_updates(database, name, number, number)).get(number, 0)
        if json:
            parsed = None if made is None else to_plain(made) | {"parameters": loads(made.parameters)}
            shown = to_plain(row) | {"n_erased": n_erased}
            print_json({"round": shown, "aggregation": parsed, "contributions": contributions, "events": events})
            return
        print_record(row, title=f"Round {number} of {name}", as_json=False)
        if made is not None:
            _say(_in_words(row.aggregation, made))
        columns = ("client_id", *_HISTORY_COLUMNS[2:5])
        if any(line.fate is not None for line in contributions):
            print_rows(
                [_fate_line(line) for line in contributions], _FATE_COLUMNS, title="Contributions", as_json=False
            )
        else:
            print_rows(contributions, columns, title="Contributions", as_json=False)
        if n_erased:
            _say(f"Updates taken out since, with clients that were forgotten: {n_erased}; see: foltr erasures list")
        print_rows(events, _EVENT_COLUMNS, title="Events", as_json=False)

    run_query(db, federation, query)


@clients_app.command("list")
def clients_list(db: options.Db = None, federation: options.Federation = None, json: options.Json = False) -> None:
    """The clients that ever joined, and who of them is in quarantine."""
    from storage.queries import list_clients

    async def query(database: "Database", name: str) -> None:
        rows = await list_clients(database, name)
        if json:
            print_json(rows)
        else:
            print_rows([_client_line(row) for row in rows], _CLIENT_COLUMNS, title=f"Clients of {name}", as_json=False)

    run_query(db, federation, query)


@clients_app.command("show")
def clients_show(
    client_id: Annotated[str, typer.Argument(help="The client's name")],
    db: options.Db = None,
    federation: options.Federation = None,
    json: options.Json = False,
) -> None:
    """One client: its row, what it contributed (view client_history), what rules made of that, and its events."""
    from storage.queries import count_fates, get_client, list_contributions, list_events

    async def query(database: "Database", name: str) -> None:
        row = await get_client(database, name, client_id)
        if row is None:
            raise await no_such_client(database, name, client_id)
        contributions = await list_contributions(database, name, client_id=client_id)
        events = await list_events(database, name, client_id=client_id, limit=1000)
        fates = await count_fates(database, name, client_id)
        n_completed = sum(line.round_state == "completed" for line in contributions)
        if json:
            counts = {"fates": fates, "n_completed_rounds": n_completed}
            print_json({"client": row, **counts, "contributions": contributions, "events": events})
            return
        print_record(row, title=f"Client {client_id} of {name}", as_json=False)
        columns: tuple[str, ...] = _HISTORY_COLUMNS
        if any(fates.values()):
            columns = (*columns, "fate", "fate_reason")
        if n_completed:
            _say(_fates_in_words(fates, n_completed))
        print_rows(contributions, columns, title="Contributions", as_json=False)
        print_rows(events, _EVENT_COLUMNS, title="Events", as_json=False)

    run_query(db, federation, query)


def show_quarantine(db: str | None, federation: str | None, *, json: bool) -> None:
    """Print who is in quarantine, and who is proposed for it and why."""
    from storage.queries import list_proposals, list_quarantined

    async def query(database: "Database", name: str) -> None:
        quarantined = await list_quarantined(database, name)
        there = {row.client_id for row in quarantined}
        proposed = [row for row in await list_proposals(database, name) if row.client_id not in there]
        if json:
            print_json({"quarantined": quarantined, "proposed": proposed})
            return
        columns: tuple[str, ...] = ("client_id", "quarantined_at", "quarantine_reason")
        print_rows(quarantined, columns, title=f"In quarantine in {name}", as_json=False)
        columns = ("client_id", "n", "at", "round", "detail")
        print_rows(proposed, columns, title="Proposed for quarantine", as_json=False)

    run_query(db, federation, query)


def check_client(db: str | None, federation: str, client_id: str) -> bool:
    """Look a client up; False if no database was named and the default one knows nothing of the federation.

    Raises:
        SettingsError: there is no such client, or the database that was named cannot be asked.
    """
    from storage.queries import get_client

    unknown: SettingsError | None = None

    async def query(database: "Database", name: str) -> None:
        nonlocal unknown
        if await get_client(database, name, client_id) is None:
            unknown = await no_such_client(database, name, client_id)

    try:
        run_query(db, federation, query)
    except SettingsError:
        if "db_url" in load_settings(db_url=db).model_fields_set:
            raise
        return False  # an operator's machine need not be the federator's
    if unknown is not None:
        raise unknown
    return True


@models_app.command("list")
def models_list(
    db: options.Db = None,
    federation: options.Federation = None,
    limit: Limit = 1000,
    json: options.Json = False,
) -> None:
    """The model versions, newest first."""
    from storage.models import list_models

    async def query(database: "Database", name: str) -> None:
        rows = await list_models(database, name, limit=limit)
        print_rows(rows, _MODEL_COLUMNS, title=f"Models of {name}", as_json=json)

    run_query(db, federation, query)


@models_app.command("export")
def models_export(
    out: Annotated[Path, typer.Option("--out", help="The .npy file to write: float32, one weight a feature")],
    version: Annotated[int | None, typer.Option(min=0, help="The version; default: the newest")] = None,
    db: options.Db = None,
    federation: options.Federation = None,
) -> None:
    """Write the weights of one model version as a NumPy array."""
    from storage.models import get_model, latest_model

    async def query(database: "Database", name: str) -> None:
        model = await (latest_model(database, name) if version is None else get_model(database, name, version))
        if model is None:
            raise SettingsError(f"federation {name!r} has no model {version}; see: foltr models list")
        if model.withdrawn_at is not None:
            raise SettingsError(
                f"version: {model.version} was withdrawn on {model.withdrawn_at:%Y-%m-%d}: a client that was forgotten "
                "was in it, and its weights are deleted; see: foltr models list"
            )
        np.save(out, unpack_vector(model.weights))
        console.print(f"wrote version {model.version} ({model.n_features} weights) to {out}", soft_wrap=True)

    if not out.resolve().parent.is_dir():
        raise SettingsError(f"out: there is no folder {out.resolve().parent}")
    run_query(db, federation, query)


def _line(row: "RoundHistoryRow", n_erased: int) -> SimpleNamespace:
    """A round as a line of a table; updates that were taken out of it are counted beside those that are stored."""
    return SimpleNamespace(
        round=row.round,
        state=row.state if row.reason is None else f"{row.state}: {row.reason}",
        opened=f"{row.opened_at:%m-%d %H:%M:%S}",
        lasted=None if row.duration_s is None else f"{row.duration_s:.1f} s",
        updates=f"{row.n_updates} of {row.n_updates + n_erased}" if n_erased else row.n_updates,
        refused=row.n_rejected,
        model=row.model_version,
    )


def _client_line(row: "ClientRow") -> SimpleNamespace:
    """A client as a line of a table."""
    quarantine = "" if row.quarantined_at is None else ", in quarantine"
    shown = {column: getattr(row, column) for column in _CLIENT_COLUMNS}
    return SimpleNamespace(**shown | {"membership": row.membership + quarantine})


def _fates_in_words(fates: dict[str, int], n_completed: int) -> str:
    """In how many of its rounds a client was left out or shortened; a rule records nothing where it kept everybody."""
    told = f"Completed rounds it contributed to: {n_completed}"
    n_told = sum(fates.values())
    if not n_told:
        return f"{told}. Nobody was left out or shortened in any of them"
    others = f"; in the {n_completed - n_told} others nobody was left out or shortened" if n_told < n_completed else ""
    counts = f"dropped in {fates['dropped']}, clipped in {fates['clipped']}, kept in {fates['kept']}"
    return f"{told}; {counts}{others}"


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


def _in_words(configured: str, made: "RoundAggregationRow") -> str:
    """By which rule a round was aggregated, with what, and why not by another."""
    if configured == "adaptive" and made.rule == "mean":
        n_counted = made.n_kept + made.n_clipped
        if n_counted + made.n_dropped == made.n_kept:
            return f"adaptive: mean of all {made.n_kept}, nobody left out or shortened"
        n = n_counted + made.n_dropped
        return f"adaptive: mean of {n_counted} of {n}, {made.n_dropped} left out, {made.n_clipped} shortened"
    values = loads(made.parameters)
    parameters = ", ".join(f"{name} = {value:g}" for name, value in values.items() if value is not None)
    shown = f"Aggregated by {made.rule}" + (f" ({parameters})" if parameters else "")
    counts = f"{made.n_kept} kept, {made.n_clipped} clipped, {made.n_dropped} dropped"
    because = "" if made.fallback_reason is None else f" Fallback: {made.fallback_reason}."
    return f"{shown}: {counts}.{because}"


def _say(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


async def _standing(database: "Database", name: str) -> Standing:
    from storage.queries import count_rejections, last_activity, list_events, list_quarantined, online_members
    from storage.rounds import latest_round, load_open_round

    found = await load_open_round(database, name)
    row, committed = (await latest_round(database, name), []) if found is None else found
    started = await list_events(database, name, kind=EventKind.FEDERATOR_STARTED, limit=1)
    return Standing(
        at=datetime.now(UTC),
        federation=name,
        round=row,
        contributed=[client_id for client_id, _ in committed],
        online=await online_members(database, name),
        quarantined=[row.client_id for row in await list_quarantined(database, name) if row.membership == "joined"],
        refused={} if row is None else await count_rejections(database, name, row.number),
        started_at=started[0].at if started else None,
        last_activity=await last_activity(database, name),
    )
