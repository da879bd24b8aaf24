"""Restores a backup's database: who uses the present one, what is newer in it, and what remains to do."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from foltr.core.erasure.pseudonyms import pseudonym
from foltr.core.errors import SettingsError, UnavailableError
from foltr.core.user_files import resolve
from foltr.operations.backups import Manifest
from foltr.storage.cipher import require_keys
from foltr.storage.copies import Contents, OnBytes, read_contents, replace_sqlite
from foltr.storage.database import Database, is_transient
from foltr.storage.erasure.erasures import unreadable_clients
from foltr.storage.federations import list_federations
from foltr.storage.keys import KeyStore
from foltr.storage.leases import find_lease, list_standbys
from foltr.storage.migrate import head, is_known
from foltr.storage.postgres_programs import RESTORING, other_sessions, replace_postgres
from foltr.storage.tables import clients
from foltr.storage.urls import in_words, read_url

_N_SHOWN = 10
_SESSION_ENDS_S = 1.0


@dataclass(frozen=True)
class Present:
    """The database that a restore replaces.

    Attributes:
        location: its address for messages.
        contents: without a revision if it is missing or empty.
        problem: why it cannot be read; empty if it can.
    """

    location: str
    contents: Contents
    problem: str = ""


def look(db_url: str, manifest: Manifest) -> Present:
    """Look at the database in the place of a backup.

    Raises:
        SettingsError: the backup is of the other kind of database, or of a newer foltr.
        UnavailableError: it cannot be reached; or a federator leads or stands by, or foltr is connected to PostgreSQL.
    """
    url = read_url(db_url)
    location, is_file = in_words(url), url.get_backend_name() == "sqlite"
    if url.get_backend_name() != manifest.database:
        raise SettingsError(f"db_url: {location} is not {manifest.database}, which the backup is of; name another one")
    if not is_known(manifest.revision):
        raise SettingsError(
            f"schema revision {manifest.revision} of the backup is unknown: install foltr {manifest.foltr}"
        )
    if is_file and not Path(url.database or "").exists():
        return Present(location, Contents(None))
    try:
        contents, users = asyncio.run(_contents_and_users(db_url))
    except (UnavailableError, SQLAlchemyError) as error:
        if not is_file or is_transient(error):
            raise
        # A damaged file is why somebody restores.
        return Present(location, Contents(None), str(error).splitlines()[0])
    if users:
        raise UnavailableError(
            f"{location} is in use: {'; '.join(users)}. Stop the federator, its standbys and workers, and "
            "foltr api run; if one was killed, wait 15 s. Then run this again"
        )
    return Present(location, contents)


async def _contents_and_users(db_url: str) -> tuple[Contents, list[str]]:
    async with await Database.connect(db_url, process=RESTORING) as database:
        async with database.reading() as connection:
            contents = await connection.run_sync(read_contents)
        sessions = await other_sessions(database)
        if sessions:
            # PostgreSQL lists one that has ended for a moment.
            await asyncio.sleep(_SESSION_ENDS_S)
            sessions = await other_sessions(database)
        users = [f"{session} is connected" for session in sessions]
        for name in (each.name for each in contents.federations):
            lease = await find_lease(database, name)
            if lease is not None and lease.is_held:
                users.append(f"{lease.holder} leads {name}")
            users += [f"{holder} stands by for {name}" for holder in await list_standbys(database, name)]
        return contents, users


def erased_since(present: Present, manifest: Manifest) -> dict[str, set[str]]:
    """Return the pseudonyms of those who were forgotten since a backup, by federation."""
    then = {each.name: each.erased for each in manifest.federations}
    return {each.name: {*each.erased}.difference(then.get(each.name, ())) for each in present.contents.federations}


def what_is_newer(present: Present, manifest: Manifest) -> Iterator[str]:
    """Compare the present database with a backup, which takes its place."""
    if present.problem:
        yield f"The present database cannot be read, so what is newer in it is unknown: {present.problem}"
    then = {each.name: each for each in manifest.federations}
    for now in present.contents.federations:
        if (backup := then.get(now.name)) is None:
            yield f"{now.name} is not in the backup: all its {now.newest_round} rounds go"
            continue
        yield (
            f"{now.name}, now and in the backup: round {now.newest_round} and {backup.newest_round}, "
            f"epoch {now.epoch} and {backup.epoch}, roster {now.roster_version} and {backup.roster_version}, "
            f"order {now.last_order} and {backup.last_order}, "
            f"{len(now.erased)} and {len(backup.erased)} clients forgotten"
        )
        if since := sorted(erased_since(present, manifest)[now.name]):
            shown = ", ".join(since[:_N_SHOWN]) + (", ..." if len(since) > _N_SHOWN else "")
            yield f"The backup has the names and data of those forgotten since. Their pseudonyms: {shown}"
    if manifest.database == "postgresql" and present.contents.federations:
        yield "PostgreSQL keeps nothing of the present tables: to keep them, restore into another database"


def restore_database(db_url: str, copy: Path, on_bytes: OnBytes) -> Path | None:
    """Put a copy in the place of the database; return where SQLite's former file is kept."""
    url = read_url(db_url)
    if url.get_backend_name() == "sqlite":
        return replace_sqlite(copy, resolve(Path(url.database or "")), on_bytes)
    n_bytes = copy.stat().st_size

    async def run() -> None:
        async with await Database.connect(db_url, process=RESTORING) as database:
            await replace_postgres(database, copy, lambda: on_bytes(0, n_bytes))

    asyncio.run(run())
    return None


def next_steps(db_url: str, keys: KeyStore, present: Present, manifest: Manifest) -> list[str]:
    """Return what remains to do after a restore, in order."""
    steps, again = [], "everybody with a newer receipt"
    if manifest.revision != head():
        steps.append("Upgrade the tables: foltr db upgrade. Then foltr doctor says whose keys are missing")
    if not keys.folder.is_dir():
        where = "" if manifest.keys_to is None else f", which this backup left in {manifest.keys_to}"
        steps.append(f"Put the newest copy of the data keys into {keys.folder}{where}")
    elif manifest.revision == head():
        names, problems = asyncio.run(_to_forget(db_url, keys, erased_since(present, manifest)))
        steps += problems
        again = ", ".join(names[:_N_SHOWN]) + (f" and {len(names) - _N_SHOWN} more" if len(names) > _N_SHOWN else "")
    steps.append("Start the federator. Devices send again what they still have since the backup")
    if again:
        steps.append(f"Forget again, with foltr erasure request: {again}. Enrol none of these names before")
    if any(each.roster_version for each in (*manifest.federations, *present.contents.federations)):
        steps.append("Send what the operator signed since again: foltr operator publish")
    return steps


async def _to_forget(db_url: str, keys: KeyStore, erased: dict[str, set[str]]) -> tuple[list[str], list[str]]:
    """Find the clients of a restored database who were forgotten since, and what is wrong with its keys."""
    found, problems = set[str](), []
    async with await Database.connect(db_url, keys=keys) as database:
        for row in await list_federations(database):
            async with database.reading() as connection:
                names = await connection.scalars(select(clients.c.client_id).where(clients.c.federation == row.name))
            key, gone = row.pseudonym_key, erased.get(row.name, set())
            found |= {name for name in names if key is not None and pseudonym(key, name) in gone}
            try:
                await require_keys(database, row.name)
                found |= set(await unreadable_clients(database, row.name))
            except SettingsError as error:
                problems.append(f"Find the data keys: {error}")
    return sorted(found), problems
