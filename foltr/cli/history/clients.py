"""``foltr clients``: what the database remembers of clients."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated

import typer

from foltr.aggregation.fates import Fate
from foltr.cli import options
from foltr.cli.history.orders import quarantine
from foltr.cli.history.query import no_such_client, run_query
from foltr.cli.history.streams import check_stream, stream_records
from foltr.cli.listed import fitting, print_some, rows_to_list, say_more
from foltr.cli.output import console, print_json, print_record, print_rows
from foltr.protocol.states import Membership, RoundState

if TYPE_CHECKING:
    from storage.database import Database
    from storage.history_records import ClientHistoryRow
    from storage.records import ClientRow

app = typer.Typer(help="Look at clients.", no_args_is_help=True)

# As many as a terminal of 80 columns holds; `clients show` and --json have all of them.
_CLIENT_COLUMNS = ("client_id", "membership", "online", "joined", "last_seen")
_HISTORY_COLUMNS = ("round", "state", "interactions", "received", "model")
_EVENT_COLUMNS = ("at", "kind", "code", "client_id", "detail")


@app.command("list")
def clients_list(
    db: options.Db = None,
    federation: options.Federation = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            min=1,
            max=1_000_000,
            help="At most so many, by name; default: what fits the screen, of JSON 1000",
        ),
    ] = None,
    watch: options.WatchLines = False,
    json: options.Json = False,
    jsonl: options.Jsonl = False,
) -> None:
    """The clients that ever joined, by name, and who of them is in quarantine, has left or was revoked."""
    from storage.activity import count_members
    from storage.queries import list_clients

    check_stream(watch=watch, json=json, jsonl=jsonl)
    if jsonl:

        async def read(database: "Database", name: str, most: int) -> "list[ClientRow]":
            return await list_clients(database, name, limit=most)

        stream_records(db, federation, read, "client_id", limit, watch=watch)
        return

    async def query(database: "Database", name: str) -> None:
        rows = await list_clients(database, name, limit=rows_to_list(limit, json=json))
        if json:
            print_json(rows)
            return
        lines = fitting([_client_line(row) for row in rows], _CLIENT_COLUMNS, limit, newest=False)
        print_rows(lines, _CLIENT_COLUMNS, title=f"Clients of {name}", as_json=False)
        members = await count_members(database, name)
        n_all = members.n_members + members.n_left + members.n_revoked
        say_more(n_all - len(lines), "Clients", f"--limit {n_all}")

    run_query(db, federation, query)


@app.command("show")
def clients_show(
    client_id: Annotated[str, typer.Argument(help="The client's name")],
    show_all: options.All = False,
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
        n_completed = sum(line.round_state is RoundState.COMPLETED for line in contributions)
        if json:
            counts = {"fates": fates, "n_completed_rounds": n_completed}
            print_json({"client": row, **counts, "contributions": contributions, "events": events})
            return
        print_record(row, title=f"Client {client_id} of {name}", as_json=False)
        columns: tuple[str, ...] = _HISTORY_COLUMNS
        if any(fates.values()):
            columns = (*columns, "fate", "reason")
        if n_completed:
            console.print(fates_in_words(fates, n_completed), markup=False, highlight=False, soft_wrap=True)
        option = f"foltr clients show {client_id} --all"
        lines = [_contribution_line(row) for row in contributions]
        print_some(lines, columns, title="Contributions", option=option, show_all=show_all, newest=True)
        print_some(events, _EVENT_COLUMNS, title="Events", option=option, show_all=show_all, newest=True)

    run_query(db, federation, query)


app.command("quarantine")(quarantine)


def _client_line(row: "ClientRow") -> SimpleNamespace:
    """A client as a line of a table."""
    quarantine = "" if row.quarantined_at is None else ", in quarantine"
    return SimpleNamespace(
        client_id=row.client_id,
        membership=membership_in_words(row) + quarantine,
        online="yes" if row.online else "no",
        joined=f"{row.joined_at:%m-%d %H:%M:%S}",
        last_seen=f"{row.last_seen_at:%m-%d %H:%M:%S}",
    )


def _contribution_line(row: "ClientHistoryRow") -> SimpleNamespace:
    return SimpleNamespace(
        round=row.round,
        state=row.round_state,
        interactions=row.n_interactions,
        received=f"{row.received_at:%m-%d %H:%M:%S}",
        model=row.model_version,
        fate=row.fate,
        reason=row.fate_reason,
    )


def membership_in_words(row: "ClientRow") -> str:
    """How a client stands: one that was revoked has not left of its own accord."""
    return "revoked" if row.membership is Membership.LEFT and row.revoked_at is not None else str(row.membership)


def fates_in_words(fates: dict[str, int], n_completed: int) -> str:
    """In how many of its rounds a client was left out or shortened; a rule records nothing where it kept everybody."""
    told = f"Completed rounds it contributed to: {n_completed}"
    n_told = sum(fates.values())
    if not n_told:
        return f"{told}. Nobody was left out or shortened in any of them"
    others = f"; in the {n_completed - n_told} others nobody was left out or shortened" if n_told < n_completed else ""
    counts = f"dropped in {fates[Fate.DROPPED]}, clipped in {fates[Fate.CLIPPED]}, kept in {fates[Fate.KEPT]}"
    return f"{told}; {counts}{others}"
