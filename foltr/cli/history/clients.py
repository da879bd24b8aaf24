"""``foltr device``: what the database remembers of devices, by their names as clients of the federation."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from foltr.cli import options
from foltr.cli.database import no_such_client, run_query
from foltr.cli.history.rounds import EVENT_COLUMNS
from foltr.cli.listing import Listing, print_listing
from foltr.cli.output import print_json, print_record, print_rows, say
from foltr.core.aggregation.fates import Fate
from foltr.core.protocol.states import Membership, RoundState

if TYPE_CHECKING:
    from foltr.storage.database import Database
    from foltr.storage.records import ClientRow


_CLIENT_COLUMNS = {
    "client_id": lambda row: row.client_id,
    "membership": lambda row: membership_in_words(row) + ("" if row.quarantined_at is None else ", in quarantine"),
    "online": lambda row: "yes" if row.online else "no",
    "joined": lambda row: f"{row.joined_at:%m-%d %H:%M:%S}",
    "last_seen": lambda row: f"{row.last_seen_at:%m-%d %H:%M:%S}",
}
_CONTRIBUTION_COLUMNS = {
    "round": lambda row: row.round,
    "state": lambda row: row.round_state,
    "interactions": lambda row: row.n_interactions,
    "received": lambda row: f"{row.received_at:%m-%d %H:%M:%S}",
    "model": lambda row: row.model_version,
    "fate": lambda row: row.fate,
    "reason": lambda row: row.fate_reason,
}


def clients_list(
    db: options.Db = None,
    federation: options.Federation = None,
    limit: options.Limit = None,
    json: options.Json = False,
) -> None:
    """The devices that ever joined, by name, and which of them are in quarantine, have left or were revoked."""
    from foltr.storage.activity import count_members
    from foltr.storage.queries import list_clients

    async def read(database: "Database", name: str, most: int) -> "list[ClientRow]":
        return await list_clients(database, name, limit=most)

    async def n_all(database: "Database", name: str, _rows: "Sequence[ClientRow]") -> int:
        members = await count_members(database, name)
        return members.n_members + members.n_left + members.n_revoked

    listing = Listing("Clients", _CLIENT_COLUMNS, read, n_all, newest=False)
    print_listing(listing, db, federation, limit, json)


def clients_show(
    client_id: Annotated[str, typer.Argument(help="The client's name")],
    show_all: options.All = False,
    db: options.Db = None,
    federation: options.Federation = None,
    json: options.Json = False,
) -> None:
    """One client: its row, what it contributed (view client_history), what rules made of that, and its events."""
    from foltr.storage.queries import count_fates, get_client, list_contributions, list_events

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
        print_record(row, title=f"Client {client_id} of {name}")
        if n_completed:
            say(fates_in_words(fates, n_completed))
        everything = None if show_all else f"foltr device show {client_id} --all"
        print_rows(contributions, _CONTRIBUTION_COLUMNS, title="Contributions", all_with=everything, newest=True)
        print_rows(events, EVENT_COLUMNS, title="Events", all_with=everything, newest=True)

    run_query(db, federation, query)


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
