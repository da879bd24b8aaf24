"""``foltr db``: create the tables, bring them up to date, leave nothing of what was deleted."""

import asyncio

import typer

from foltr.cli import options
from foltr.cli.output import console, print_json, require_existing
from foltr.cli.settings import load_settings
from foltr.errors import UnavailableError

app = typer.Typer(help="Create and upgrade the database, and write it anew.", no_args_is_help=True)


@app.command("upgrade")
def upgrade(db: options.Db = None, give_up_after: options.GiveUpAfter = None) -> None:
    """Create the tables or bring them up to this version. Safe to repeat."""
    from storage.database import Database
    from storage.migrate import current, head
    from storage.migrate import upgrade as upgrade_database

    settings = load_settings(db_url=db, give_up_after_s=give_up_after)

    async def run() -> None:
        async with await Database.connect(settings.db_url, retry_for_s=settings.give_up_after_s or 0) as database:
            before = await current(database)
            await upgrade_database(database)
            after = f"from revision {before or 'none'} to {head()}" if before != head() else f"at {head()} already"
            console.print(f"{database.location}: {after}", soft_wrap=True)

    asyncio.run(run())


@app.command("vacuum")
def vacuum(db: options.Db = None) -> None:
    """Write the whole database anew: nothing is left of what was deleted, and its space is given back.

    A federator that forgets a client needs no such thing for the name. Run it while none is running: all others wait,
    SQLite for about 15 s a gigabyte, and the disk needs room for a second copy.
    """
    from storage.database import Database

    settings = load_settings(db_url=db)
    require_existing(settings.db_url)

    async def run() -> None:
        async with await Database.connect(settings.db_url) as database:
            if not await database.vacuum():
                raise UnavailableError(
                    f"{database.location} is in use: stop the federator and whoever reads it, and run this again"
                )
            console.print(f"{database.location}: written anew", soft_wrap=True)

    asyncio.run(run())


@app.command("current")
def current(db: options.Db = None, json: options.Json = False) -> None:
    """Print the database's revision and the newest this version knows."""
    from storage.database import Database
    from storage.migrate import current as current_revision
    from storage.migrate import head

    settings = load_settings(db_url=db)
    require_existing(settings.db_url)

    async def run() -> None:
        async with await Database.connect(settings.db_url) as database:
            revision = await current_revision(database)
            if json:
                print_json({"db": database.location, "revision": revision, "head": head()})
            else:
                advice = "" if revision == head() else "; run: foltr db upgrade"
                console.print(
                    f"{database.location}: revision {revision or 'none'}, newest {head()}{advice}",
                    soft_wrap=True,
                )

    asyncio.run(run())
