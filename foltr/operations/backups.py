"""A backup is a folder with a copy of the database, perhaps of the operator's folder, and a manifest of both.

A folder gets its name when it is complete. Data keys are not in it: with them it would open the updates of clients that
are forgotten later. Stores of helpers are never copied: a helper whose store goes back would answer twice for a round,
and spend its devices' privacy twice.
"""

import asyncio
import contextlib
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from foltr.core.errors import DataError, SettingsError
from foltr.core.operator.folder import open_authority
from foltr.core.user_files import FileKind, read_beginning, read_file, read_json_file
from foltr.core.version import __version__
from foltr.storage.copies import Contents, FederationState, check_sqlite, flush
from foltr.storage.postgres_programs import check_postgres

MANIFEST_NAME: Final = "backup.json"
COPY_NAMES: Final = {"sqlite": "foltr.sqlite", "postgresql": "foltr.dump"}
UNFINISHED: Final = ".unfinished"
_VERSION: Final = 1
_PIECE_BYTES: Final = 2**22
_SQLITE_MAGIC: Final = b"SQLite format 3\0"
_LOGS: Final = ("-wal", "-shm", "-journal")
_KEY_NAME: Final = re.compile(r"[0-9a-f]{64}(\.next)?")

Tell = Callable[[str], None]


class Manifest(BaseModel):
    """What a backup holds.

    Attributes:
        foltr: the version that made it.
        made_at: when its copy began, UTC.
        revision: of the database's schema.
        operator_roster: the version of the roster in the copied operator's folder; None if that is not in it.
        keys_to: the folder to which the data keys were copied; None: to none.
        files: by path within the backup, the number of bytes and SHA-256 in hex.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    version: Literal[1] = 1
    foltr: str = __version__
    made_at: datetime
    database: Literal["sqlite", "postgresql"]
    revision: str
    federations: tuple[FederationState, ...]
    operator_roster: int | None = None
    keys_to: str | None = None
    files: dict[str, tuple[int, str]] = {}

    @property
    def copy_name(self) -> str:
        """The name of the database's copy."""
        return COPY_NAMES[self.database]


def make_backup(dest: Path, fill: Callable[[Path], Manifest], tell: Tell) -> tuple[Path, Manifest]:
    """Make a backup's folder below ``dest``, named by its time; nothing is left of one that fails.

    Args:
        fill: puts the copies into the folder that it is given, and returns the manifest without files.
    """
    dest.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(UNFINISHED, "foltr-", dest))
    try:
        manifest = fill(folder)
        files = {name: _measure(folder / name, tell) for name in _files_in(folder)}
        manifest = manifest.model_copy(update={"files": files})
        (folder / MANIFEST_NAME).touch(mode=0o600)
        (folder / MANIFEST_NAME).write_text(manifest.model_dump_json(indent=2) + "\n")
        os.sync()
        path = folder.rename(dest / f"foltr-{manifest.made_at:%Y%m%dT%H%M%S.%fZ}")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    flush(dest)
    return path, manifest


def copy_operator(source: Path, copy: Path) -> tuple[int, list[str]]:
    """Copy an operator's folder while no other command uses it.

    Returns:
        the version of its roster; and what was left out: stores, which a helper or a device keeps there.
    """
    left_out = []
    with open_authority(source) as authority:
        for name in _files_in(source):
            if name.endswith(_LOGS) or read_beginning(source / name, len(_SQLITE_MAGIC)) == _SQLITE_MAGIC:
                left_out.append(name)
            elif name != ".lock":
                (copy / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                (copy / name).touch(mode=0o600)
                shutil.copyfile(source / name, copy / name)
        return authority.register.roster_version, left_out


def copy_keys(source: Path, copy: Path, tell: Tell) -> int:
    """Bring the copy of a folder of data keys up to date, and destroy in it the keys that were destroyed.

    An older copy would open the updates of clients that were forgotten since.

    Returns:
        how many keys it has.

    Raises:
        SettingsError: the copy's folder holds something else or another database's keys, or others may read it.
    """
    copy.mkdir(mode=0o700, parents=True, exist_ok=True)
    if copy.stat().st_mode & 0o077:
        raise SettingsError(f"keys-to: others may read {copy}; run: chmod 700 {copy}")
    names, copied = list(_keys_in(source)), set(_keys_in(copy))
    if foreign := set(_files_in(copy)) - copied:
        raise SettingsError(f"keys-to: {copy} has more than data keys, such as {min(foreign)}; name another folder")
    if copied and copied.isdisjoint(names):
        raise SettingsError(
            f"keys-to: {copy} has other keys and none of these; name another folder, or delete it if it is this "
            "database's and all its clients were forgotten"
        )
    for n_done, name in enumerate(names):
        tell(f"data keys: {n_done:,} of {len(names):,}")
        try:
            key = read_file(source / name, FileKind.KEY)
        except FileNotFoundError:
            continue  # destroyed in this moment
        (copy / name).parent.mkdir(mode=0o700, exist_ok=True)
        (copy / name).touch(mode=0o600)
        known = read_file(copy / name, FileKind.KEY)
        if not known:
            (copy / name).write_bytes(key)
        elif known != key:
            _write_over(copy / name, key)
    there = list(_keys_in(copy))
    gone = [name for name in there if not (source / name).exists()]
    for name in gone:
        with contextlib.suppress(FileNotFoundError):  # another process was first
            _write_over(copy / name, bytes((copy / name).stat().st_size))
            (copy / name).unlink()
    os.sync()  # a flush for each of many keys takes minutes
    return len(there) - len(gone)


def verify_backup(folder: Path, tell: Tell) -> tuple[Manifest, list[str]]:
    """Check a backup: its files have their digests, and the database's copy opens.

    Returns:
        its manifest, and the files in the folder that are not of it.

    Raises:
        SettingsError, DataError: as `read_manifest`; DataError also if a file is missing or differs, or the copy is
            damaged.
    """
    manifest, there = read_manifest(folder), _files_in(folder)
    if missing := [name for name in manifest.files if name not in there]:
        raise DataError(f"{folder} lacks {', '.join(missing[:5])}. Use another backup")
    for name, measured in manifest.files.items():
        if _measure(folder / name, tell) != measured:
            raise DataError(f"{folder / name} differs from what was backed up. Use another backup")
    copy = folder / manifest.copy_name
    tell(f"checking {copy.name}")
    if manifest.database == "postgresql":
        asyncio.run(check_postgres(copy))
    elif (found := check_sqlite(copy)) != Contents(manifest.revision, manifest.federations):
        raise DataError(f"{copy}, at revision {found.revision}, is not what {MANIFEST_NAME} says. Use another backup")
    return manifest, [name for name in there if name not in manifest.files and name != MANIFEST_NAME]


def read_manifest(folder: Path) -> Manifest:
    """Read a backup's manifest.

    Raises:
        SettingsError: the folder is no backup.
        DataError: its manifest is damaged, or a newer foltr has made it.
    """
    path = folder / MANIFEST_NAME
    if not path.is_file():
        raise SettingsError(f"{folder} is no backup: it has no {path.name}. Name the folder that create printed")
    try:
        found = read_json_file(path, FileKind.RESULT)
        if isinstance(found, dict) and found.get("version", _VERSION) != _VERSION:
            raise DataError(f"{path} has version {found['version']}, not {_VERSION}: install a newer foltr")
        return Manifest.model_validate(found)
    except (OSError, ValidationError) as error:
        raise DataError(f"{path} is damaged: {str(error).splitlines()[0]}. Use another backup") from error


def _files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def _keys_in(folder: Path) -> Iterator[str]:
    return (str(path.relative_to(folder)) for path in folder.glob("??/*") if _KEY_NAME.fullmatch(path.name))


def _write_over(path: Path, content: bytes) -> None:
    """Write over a file's own bytes: another file would leave a former key on the disk."""
    with path.open("r+b") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _measure(path: Path, tell: Tell) -> tuple[int, str]:
    digest, n_bytes, n_all = hashlib.sha256(), 0, path.stat().st_size
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
            n_bytes += len(piece)
            tell(f"SHA-256 of {path.name}: {n_bytes >> 20:,} of {n_all >> 20:,} MiB")
    return n_bytes, digest.hexdigest()
