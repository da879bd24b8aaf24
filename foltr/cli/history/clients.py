"""``foltr clients``: what the database remembers of clients."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated

import typer

from foltr.aggregation.fates import Fate
from foltr.cli import options
from foltr.cli.history.orders import quarantine
from foltr.cli.history.query import no_such_client, run_query
from foltr.cli.output import console, print_json, print_record, print_rows
from foltr.protocol.states import RoundState

if TYPE_CHECKING:
    from storage.database import Database
    from storage.records import ClientRow

app = typer.Typer(help="Look at clients.", no_args_is_help=True)

_CLIENT_COLUMNS = ("client_id", "membership", "online", "joined_at", "last_seen_at", "sdk_version")
_HISTORY_COLUMNS = ("round", "round_state", "n_interactions", "n_bytes", "received_at", "model_version")
_EVENT_COLUMNS = ("at", "kind", "code", "client_id", "detail")


@app.command("list")
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


@app.command("show")
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
        n_completed = sum(line.round_state is RoundState.COMPLETED for line in contributions)
        if json:
            counts = {"fates": fates, "n_completed_rounds": n_completed}
            print_json({"client": row, **counts, "contributions": contributions, "events": events})
            return
        print_record(row, title=f"Client {client_id} of {name}", as_json=False)
        columns: tuple[str, ...] = _HISTORY_COLUMNS
        if any(fates.values()):
            columns = (*columns, "fate", "fate_reason")
        if n_completed:
            console.print(fates_in_words(fates, n_completed), markup=False, highlight=False, soft_wrap=True)
        print_rows(contributions, columns, title="Contributions", as_json=False)
        print_rows(events, _EVENT_COLUMNS, title="Events", as_json=False)

    run_query(db, federation, query)


app.command("quarantine")(quarantine)


def _client_line(row: "ClientRow") -> SimpleNamespace:
    """A client as a line of a table."""
    quarantine = "" if row.quarantined_at is None else ", in quarantine"
    shown = {column: getattr(row, column) for column in _CLIENT_COLUMNS}
    return SimpleNamespace(**shown | {"membership": row.membership + quarantine})


def fates_in_words(fates: dict[str, int], n_completed: int) -> str:
    """In how many of its rounds a client was left out or shortened; a rule records nothing where it kept everybody."""
    told = f"Completed rounds it contributed to: {n_completed}"
    n_told = sum(fates.values())
    if not n_told:
        return f"{told}. Nobody was left out or shortened in any of them"
    others = f"; in the {n_completed - n_told} others nobody was left out or shortened" if n_told < n_completed else ""
    counts = f"dropped in {fates[Fate.DROPPED]}, clipped in {fates[Fate.CLIPPED]}, kept in {fates[Fate.KEPT]}"
    return f"{told}; {counts}{others}"
