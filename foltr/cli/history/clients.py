"""``foltr device``: show devices under their client names, and manage quarantine."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from foltr.cli import options
from foltr.cli.database import Listing, no_such_client, print_listing, run_query
from foltr.cli.fields import argument, option
from foltr.cli.history.rounds import EVENT_COLUMNS
from foltr.cli.operator.sending import send_order
from foltr.cli.options import OperatorFolder
from foltr.cli.output import print_json, print_record, print_rows, say
from foltr.core.aggregation.fates import Fate
from foltr.core.errors import SettingsError
from foltr.core.operator.next_commands import DEFAULT_OPERATOR_FOLDER
from foltr.core.protocol.states import Membership, RoundState
from foltr.operations.operator_access import open_authority

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
    "fate": lambda row: row.fate and row.fate.in_words,
    "reason": lambda row: row.fate_reason,
}


def clients_list(
    db: options.Db = None,
    federation: options.Federation = None,
    limit: options.Limit = None,
    json: options.Json = False,
) -> None:
    """List the devices that have joined, and show which are in quarantine, have left or were revoked."""
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
    client_id: Annotated[str, argument("The client's name")],
    show_all: options.All = False,
    db: options.Db = None,
    federation: options.Federation = None,
    json: options.Json = False,
) -> None:
    """Show one client: its row, contributions (view client_history), how rules judged them, and its events."""
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
    """Describe a client's membership: revoked is distinguished from left."""
    return "revoked" if row.membership is Membership.LEFT and row.revoked_at is not None else str(row.membership)


def fates_in_words(fates: dict[str, int], n_completed: int) -> str:
    """Say in how many rounds a client's update was left out or shortened. A rule that keeps all records nothing."""
    told = f"Completed rounds it contributed to: {n_completed}"
    n_told = sum(fates.values())
    if not n_told:
        return f"{told}. Nobody was left out or shortened in any of them"
    others = f"; in the {n_completed - n_told} others nobody was left out or shortened" if n_told < n_completed else ""
    counts = ", ".join(f"{fate.in_words} in {fates[fate]}" for fate in reversed(Fate))
    return f"{told}; {counts}{others}"


def quarantine(
    client: Annotated[str | None, argument("The client's name; default: list who is in quarantine")] = None,
    reason: Annotated[str | None, option("The reason, which is kept with the quarantine")] = None,
    lift: Annotated[bool, option("Count the client's updates again", "--lift")] = False,
    dismiss: Annotated[bool, option("Dismiss a proposed quarantine, for what was found so far", "--dismiss")] = False,
    operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER,
    broker: options.Broker = None,
    db: options.Db = None,
    federation: options.Federation = None,
    json: options.Json = False,
) -> None:
    """Exclude a client's updates from rounds by a signed order; without a client, list quarantines and proposals."""
    if client is None:
        if reason is not None or lift or dismiss:
            raise SettingsError("client: name the client that --reason, --lift or --dismiss is about")
        _show(db, federation, json=json)
        return
    if (reason is not None) + lift + dismiss != 1:
        raise SettingsError("reason: give exactly one of --reason, --lift and --dismiss")
    with open_authority(operator, federation) as authority:
        if reason is not None:
            order, done = authority.quarantine(client, reason), "is in quarantine"
        elif lift:
            order, done = authority.lift_quarantine(client), "is out of quarantine"
        else:
            order, done = authority.dismiss(client), ("is no longer proposed for quarantine, by what was found so far")
        answer = send_order(authority, order, broker)
        say(
            f"Order {answer.number} is obeyed: {client} of {authority.federation} {done}; "
            f"see: foltr device show {client}"
        )


def _show(db: str | None, federation: str | None, *, json: bool) -> None:
    """Print who is in quarantine, and who is proposed for it and why."""
    from foltr.storage.queries import list_proposals, list_quarantined

    async def query(database: "Database", name: str) -> None:
        quarantined = await list_quarantined(database, name)
        there = {row.client_id for row in quarantined}
        proposed = [row for row in await list_proposals(database, name) if row.client_id not in there]
        if json:
            print_json({"quarantined": quarantined, "proposed": proposed})
            return
        why = ("client_id", "quarantined_at", "quarantine_reason")
        print_rows(quarantined, why, title=f"In quarantine in {name}")
        print_rows(proposed, ("client_id", "n", "at", "round", "detail"), title="Proposed for quarantine")

    run_query(db, federation, query)
