"""``foltr db``: create and upgrade the tables, remove remains of deleted rows, replace data keys."""

import asyncio
import time
from typing import TYPE_CHECKING

import typer

from foltr.cli import options
from foltr.cli.database import run_query
from foltr.cli.output import report, require_existing, say
from foltr.cli.progress import progress_reporter
from foltr.cli.settings import load_settings
from foltr.core.errors import UnavailableError

if TYPE_CHECKING:
    from foltr.storage.database import Database


def upgrade(db: options.Db = None, give_up_after: options.GiveUpAfter = None) -> None:
    """Create the tables or bring them up to this version. Safe to repeat."""
    from foltr.storage.database import Database
    from foltr.storage.migrate import current, head
    from foltr.storage.migrate import upgrade as upgrade_database

    settings = load_settings(db_url=db, give_up_after_s=give_up_after)

    async def run() -> None:
        async with await Database.connect(settings.db_url, retry_for_s=settings.give_up_after_s or 0) as database:
            before = await current(database)
            await upgrade_database(database)
            after = f"from revision {before or 'none'} to {head()}" if before != head() else f"at {head()} already"
            say(f"{database.location}: {after}")

    asyncio.run(run())


def vacuum(db: options.Db = None) -> None:
    """Rewrite the whole database: nothing is left of what was deleted, and its space is given back.

    A federator that forgets a client needs no such thing for the name. Run it while none is running: all others wait,
    SQLite for about 15 s a gigabyte, and the disk needs room for a second copy.
    """
    from foltr.storage.database import Database

    settings = load_settings(db_url=db)
    require_existing(settings.db_url)

    async def run() -> None:
        async with await Database.connect(settings.db_url) as database:
            if not await database.vacuum():
                raise UnavailableError(
                    f"{database.location} is in use: stop the federator and whoever reads it, and run this again"
                )
            say(f"{database.location}: rewritten")

    asyncio.run(run())


def rekey(db: options.Db = None, keys: options.Keys = None, federation: options.Federation = None) -> None:
    """Give each client another data key, and seal its stored updates with it.

    A stolen copy of the keys opens nothing that is stored from then on. Stop the federator first: one that runs ends at
    its next write. Those that stand by wait until this is done. Where this is killed, run it again. Older backups of
    the database are sealed with the former keys: make both backups anew. Exit code 1: a client's key is missing.
    """
    from foltr.federator.leading.keeper import LeaseKeeper, new_holder
    from foltr.storage.rekeying import rekey as give_other_keys

    n_without_key = 0

    async def query(database: "Database", name: str) -> None:
        nonlocal n_without_key
        with progress_reporter() as tell:

            def on_client(done: int, n_clients: int) -> None:
                tell(f"client {done} of {n_clients}")

            # Holding the lease keeps standbys waiting until this is done.
            holder = new_holder()
            async with LeaseKeeper(database, name, holder, is_well=lambda: True):
                done = await give_other_keys(database, name, time.time(), on_client, holder)
        n_without_key = done.n_without_key
        say(
            f"{done.n_clients} clients have another data key, and {done.n_updates} stored updates are sealed with it. "
            "Back up database and keys anew, apart; then destroy the older backups, which the former keys open"
        )
        if n_without_key:
            say(f"Of {n_without_key} clients the key is missing: nothing of them was changed; which: foltr doctor")

    run_query(db, federation, query, keys=keys, opens=True)
    if n_without_key:
        raise typer.Exit(1)


def current(db: options.Db = None, json: options.Json = False) -> None:
    """Print the database's revision and the newest this version knows."""
    from foltr.storage.database import Database
    from foltr.storage.migrate import current as current_revision
    from foltr.storage.migrate import head

    settings = load_settings(db_url=db)
    require_existing(settings.db_url)

    async def run() -> None:
        async with await Database.connect(settings.db_url) as database:
            revision = await current_revision(database)
            advice = "" if revision == head() else "; run: foltr db upgrade"
            report(
                json,
                {"db": database.location, "revision": revision, "head": head()},
                f"{database.location}: revision {revision or 'none'}, newest {head()}{advice}",
            )

    asyncio.run(run())
