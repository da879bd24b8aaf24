"""``foltr db``: create the tables, bring them up to date."""

import asyncio

import typer

from foltr.cli import options
from foltr.cli.output import console, print_json, require_existing
from foltr.cli.settings import load_settings

app = typer.Typer(help="Create and upgrade the database.", no_args_is_help=True)


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
