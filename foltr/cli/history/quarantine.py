"""``foltr device quarantine``: who is kept out of the rounds and why, and the order that keeps a client out."""

from typing import TYPE_CHECKING, Annotated

import typer

from foltr.cli import options
from foltr.cli.database import no_such_client, run_query
from foltr.cli.operator.access import OperatorFolder
from foltr.cli.operator.sending import send_order
from foltr.cli.output import print_json, print_rows, say
from foltr.cli.settings import load_settings
from foltr.core.errors import SettingsError
from foltr.core.operator.next_commands import DEFAULT_OPERATOR_FOLDER
from foltr.operations.operator_access import open_authority

if TYPE_CHECKING:
    from foltr.storage.database import Database


def quarantine(
    client: Annotated[str | None, typer.Argument(help="The client's name; without one, who is in quarantine")] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Why, for whoever reads it later")] = None,
    lift: Annotated[bool, typer.Option("--lift", help="Take the client's updates again")] = False,
    dismiss: Annotated[
        bool, typer.Option("--dismiss", help="Decide against a quarantine for what was found so far")
    ] = False,
    operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER,
    broker: options.Broker = None,
    db: options.Db = None,
    federation: options.Federation = None,
    json: options.Json = False,
) -> None:
    """Keep a client's updates out of the rounds, signed by the operator; or see who is, and who is proposed and why."""
    if client is None:
        if reason is not None or lift or dismiss:
            raise SettingsError("client: name the client that --reason, --lift or --dismiss is about")
        _show(db, federation, json=json)
        return
    if (reason is not None) + lift + dismiss != 1:
        raise SettingsError(
            "reason: say why with --reason, let the client out with --lift, or close what it was proposed for with "
            "--dismiss; one of them"
        )
    with open_authority(operator, federation) as authority:
        _check_client(db, authority.federation, client)
        if reason is not None:
            order, done = authority.quarantine(client, reason), "is in quarantine"
        elif lift:
            order, done = authority.lift_quarantine(client), "is out of quarantine"
        else:
            order, done = authority.dismiss(client), "is proposed for quarantine no more, by what was found so far"
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


def _check_client(db: str | None, federation: str, client_id: str) -> None:
    """Look a client up, unless no database was named and the default one knows nothing of the federation.

    Raises:
        SettingsError: there is no such client, or the database that was named cannot be asked.
    """
    from foltr.storage.queries import get_client

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
