"""Who is in quarantine, and whether there is such a client: what `foltr clients quarantine` looks up."""

from typing import TYPE_CHECKING

from foltr.cli.history.query import no_such_client, run_query
from foltr.cli.output import print_json, print_rows
from foltr.cli.settings import load_settings
from foltr.errors import SettingsError

if TYPE_CHECKING:
    from storage.database import Database


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


def check_client(db: str | None, federation: str, client_id: str) -> None:
    """Look a client up, unless no database was named and the default one knows nothing of the federation.

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
        return  # an operator's machine need not be the federator's; the federator will say
    if unknown is not None:
        raise unknown
