"""``foltr backup``: make a backup, check it, and restore its database."""

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from foltr.cli import options
from foltr.cli.fields import argument, option
from foltr.cli.output import report, require_existing, say, warn
from foltr.cli.progress import progress_reporter
from foltr.cli.settings import load_settings
from foltr.core.errors import SettingsError
from foltr.core.user_files import resolve

if TYPE_CHECKING:
    from foltr.operations.backups import Manifest, Tell
    from foltr.storage.copies import OnBytes

_BESIDE: Final = (
    "An erasure destroys a client's key, so that no copy of the database can be read. A copy of the keys in one backup "
    "with the database's undoes that"
)
_SHOWN_AFTER_S: Final = 2.0
Folder = Annotated[Path, argument("The folder of one backup, as create has printed it", metavar="FOLDER")]


def create(
    dest: Annotated[Path, argument("The folder in which each backup gets a folder of its own", metavar="DEST")],
    db: options.Db = None,
    keys: options.Keys = None,
    keys_to: Annotated[Path | None, option("Also bring the copy of the data keys in this folder up to date")] = None,
    keys_beside_database: Annotated[
        bool, option("Allow --keys-to within DEST or beside it", "--keys-beside-database")
    ] = False,
    operator: Annotated[Path | None, option("Also copy this operator's folder", "--operator")] = None,
) -> None:
    """Copy the database, and on request the data keys and the operator's folder. The federator may run.

    The data keys go to another folder, which has one copy of them: keys that were destroyed are destroyed there, too.
    An erasure destroys a client's key, so that no backup can be read; a backup with both would undo it. PostgreSQL
    needs pg_dump on this machine. A helper's store is never copied: if it goes back, the helper answers twice for a
    round and spends privacy twice.
    """
    from foltr.operations.backups import COPY_NAMES, UNFINISHED, Manifest, copy_keys, copy_operator, make_backup
    from foltr.storage.copies import check_sqlite, copy_sqlite
    from foltr.storage.keys import keys_folder
    from foltr.storage.postgres_programs import copy_postgres
    from foltr.storage.urls import read_url

    settings = load_settings(db_url=db, keys=keys)
    require_existing(settings.db_url)
    url, source = read_url(settings.db_url), keys_folder(settings.db_url, settings.keys)
    is_file = url.get_backend_name() == "sqlite"
    if keys_to is not None:
        _check_apart(dest, keys_to, source, is_allowed=keys_beside_database)
        asyncio.run(_require_keys(settings.db_url, source))
    for unfinished in dest.glob(f"*{UNFINISHED}"):
        warn(f"{unfinished} is of a backup that did not end; if none is running, delete it")
    n_keys, left_out = 0, list[str]()
    with progress_reporter(after_s=_SHOWN_AFTER_S) as tell:

        def fill(folder: Path) -> Manifest:
            nonlocal n_keys, left_out
            made_at, copy, roster = datetime.now(UTC), folder / COPY_NAMES[url.get_backend_name()], None
            if is_file:
                copy_sqlite(Path(url.database or ""), copy, _bytes(tell))
                tell("checking the copy")
                contents = check_sqlite(copy)
            else:
                contents = asyncio.run(copy_postgres(settings.db_url, copy, _bytes(tell)))
            if contents.revision is None:
                raise SettingsError("db_url: the database has no tables of foltr; name another one with --db")
            if keys_to is not None:
                # After the database: what is sealed in its copy has its key here, unless it was erased since.
                n_keys = copy_keys(source, keys_to, tell)
            if operator is not None:
                roster, left_out = copy_operator(operator, folder / "operator")
            return Manifest(
                made_at=made_at,
                database="sqlite" if is_file else "postgresql",
                revision=contents.revision,
                federations=contents.federations,
                operator_roster=roster,
                keys_to=None if keys_to is None else str(resolve(keys_to)),
            )

        path, manifest = make_backup(dest, fill, tell)
    say(f"{path} is complete. {_summary(manifest)}")
    if left_out:
        say(
            f"Not copied from {operator}: {', '.join(left_out)}. If a helper's store goes back, it answers twice "
            "for a round and spends privacy twice"
        )
    if keys_to is None:
        say("It has no data keys. To copy them to another place, add --keys-to FOLDER")
    else:
        say(f"{keys_to} has the {n_keys} data keys of now. Destroy all other copies of the keys")
    say(f"To check it: foltr backup verify {path}")


def verify(folder: Folder, json: options.Json = False) -> None:
    """Check that a backup is complete and can be restored. Exit code 1: it cannot, and why.

    Every file has its SHA-256, SQLite finds its copy whole, and pg_restore can read PostgreSQL's.
    """
    from foltr.operations.backups import verify_backup
    from foltr.operations.explanations import duration

    with progress_reporter(after_s=_SHOWN_AFTER_S) as tell:
        manifest, others = verify_backup(folder, tell)
    age_s = (datetime.now(UTC) - manifest.made_at).total_seconds()
    found = {**manifest.model_dump(mode="json", exclude={"files"}), "age_s": age_s, "not_of_it": others}
    extra = f"Not of this backup, and not checked: {', '.join(others)}" if others else ""
    report(json, found, f"{folder} is whole, made {duration(age_s)} ago. {_summary(manifest)}", extra)


def restore(
    folder: Folder,
    db: options.Db = None,
    keys: options.Keys = None,
    yes: Annotated[bool, option("Do not ask", "--yes")] = False,
) -> None:
    """Put a backup's database in the place of the present one, after saying what is newer in that.

    Stop the federator, its standbys and workers, and the API first. SQLite's present file stays under another name.
    PostgreSQL replaces views and tables in one transaction; to keep them, restore into another database. If this is
    killed, the database is the present one or the backup's: run it again. The data keys and the operator's folder stay
    as they are.
    """
    from foltr.operations.backups import read_manifest, verify_backup
    from foltr.operations.restores import look, next_steps, restore_database, what_is_newer
    from foltr.storage.keys import KeyStore, keys_folder

    settings = load_settings(db_url=db, keys=keys)
    data_keys = KeyStore(keys_folder(settings.db_url, settings.keys))
    present = look(settings.db_url, read_manifest(folder))
    with progress_reporter(after_s=_SHOWN_AFTER_S) as tell:
        manifest, _ = verify_backup(folder, tell)
    say(f"{present.location} is to be replaced by {folder}: {_summary(manifest)}")
    for sentence in what_is_newer(present, manifest):
        say(sentence)
    if not yes and not sys.stdin.isatty():
        raise SettingsError("yes: nobody is here to confirm the restore; look at the above, then add --yes")
    if not yes and not typer.confirm("Restore it?"):
        say("Nothing was changed")
        raise typer.Exit(1)
    with progress_reporter(after_s=_SHOWN_AFTER_S) as tell:
        kept = restore_database(settings.db_url, folder / manifest.copy_name, _bytes(tell))
    say("Restored")
    if kept is not None:
        say(f"The former database is {kept}; delete it when nothing in it is needed")
    for number, step in enumerate(next_steps(settings.db_url, data_keys, present, manifest), 1):
        say(f"{number}. {step}")


def _summary(manifest: "Manifest") -> str:
    n_bytes = sum(n for n, _ in manifest.files.values())
    parts = [f"{each.name} at round {each.newest_round}, {len(each.erased)} forgotten" for each in manifest.federations]
    if manifest.operator_roster is not None:
        parts.append(f"the operator's folder at roster {manifest.operator_roster}")
    return f"{n_bytes / 2**20:,.1f} MiB: {'; '.join(parts) or 'no federation'}"


def _bytes(tell: "Tell") -> "OnBytes":
    return lambda done, n_all: tell(f"database: {done >> 20:,} of about {n_all >> 20:,} MiB")


def _check_apart(dest: Path, keys_to: Path, source: Path, *, is_allowed: bool) -> None:
    """Raise SettingsError if the copy of the data keys would be with the database's copy."""
    if not source.is_dir():
        raise SettingsError(f"keys: there is no folder {source}; name the folder of the data keys with --keys")
    dest, other, source = resolve(dest), resolve(keys_to), resolve(source)
    if other.is_relative_to(source) or source.is_relative_to(other):
        raise SettingsError(f"keys-to: {keys_to} has the data keys themselves; name another folder")
    is_beside = dest.parent == other.parent != Path("/")
    if not (is_beside or other.is_relative_to(dest) or dest.is_relative_to(other)):
        return
    if not is_allowed:
        raise SettingsError(
            f"keys-to: {keys_to} is within {dest} or beside it. {_BESIDE}. Name a folder elsewhere, best on another "
            "disk, or add --keys-beside-database"
        )
    warn(f"{keys_to} is within {dest} or beside it. {_BESIDE}")


async def _require_keys(db_url: str, source: Path) -> None:
    """Raise SettingsError if a client's key is missing: its copy, which may be the last, would be destroyed."""
    from foltr.storage.database import Database
    from foltr.storage.erasure.erasures import unreadable_clients
    from foltr.storage.federations import list_federations
    from foltr.storage.keys import KeyStore
    from foltr.storage.migrate import require_head

    async with await Database.connect(db_url, keys=KeyStore(source)) as database:
        await require_head(database)
        for row in await list_federations(database):
            if without := await unreadable_clients(database, row.name):
                raise SettingsError(
                    f"keys: {source} lacks the keys of {len(without)} clients of {row.name}, and the copy keeps them: "
                    "name the right folder with --keys, or forget again who was forgotten. Who: foltr doctor"
                )
