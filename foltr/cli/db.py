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
    """Rewrite the whole database, so that no bytes of deleted rows remain and their space is freed.

    Erasing a client does not need this. Stop the federator first: every other process waits, with SQLite about 15 s
    a gigabyte, and the disk needs room for a second copy.
    """
    from foltr.storage.database import Database

    settings = load_settings(db_url=db)
    require_existing(settings.db_url)

    async def run() -> None:
        async with await Database.connect(settings.db_url) as database:
            if not await database.vacuum():
                raise UnavailableError(
                    f"{database.location} is in use: stop the federator and all readers, then run this again"
                )
            say(f"{database.location}: rewritten")

    asyncio.run(run())


def rekey(db: options.Db = None, keys: options.Keys = None, federation: options.Federation = None) -> None:
    """Give each client a new data key, and encrypt its stored updates with it.

    A stolen copy of the former keys then opens nothing that is stored. Stop the federator first: a running one ends
    at its next write, and standbys wait until this is done. If this is interrupted, run it again. Older backups of
    the database need the former keys: make new backups of both. Exit code 1: a client's key is missing.
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
            f"{done.n_clients} clients have a new data key, and {done.n_updates} stored updates are encrypted with "
            "it. Make new, separate backups of database and keys; then destroy the older backups, which the former "
            "keys open"
        )
        if n_without_key:
            say(
                f"The keys of {n_without_key} clients are missing, so their updates are unchanged; foltr doctor "
                "says which"
            )

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
