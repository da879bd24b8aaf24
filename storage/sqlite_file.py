"""Which file a SQLite database is: one that was moved away goes on taking writes, which nobody would find again."""

from pathlib import Path
from typing import Final

from foltr.core.errors import UnavailableError
from foltr.storage.errors import DatabaseGoneError

PUT_BACK: Final = (
    "If it was moved, move it back, with its -wal file; if it was deleted, restore a backup: "
    "foltr backup restore FOLDER"
)

FileId = tuple[int, int]
"""The device and the inode of a file."""


def identify(path: str | None, location: str) -> FileId:
    """Return which file a path names now.

    Args:
        location: the database, for messages.

    Raises:
        DatabaseGoneError: none.
        UnavailableError: its folder may not be read.
    """
    try:
        found = Path(path or "").stat()
    except FileNotFoundError as error:
        raise DatabaseGoneError(f"{location} does not exist. {PUT_BACK}") from error
    except OSError as error:
        raise UnavailableError(
            f"{location} cannot be used: {error.strerror}. Check the rights of its folder"
        ) from error
    return found.st_dev, found.st_ino


def require_no_orphan(path: str | None, location: str) -> None:
    """Check that no file was moved away without its write-ahead log: SQLite deletes that of an empty file.

    Raises:
        DatabaseGoneError: the log is there, the file is not.
    """
    file = Path(path or "")
    if file.with_name(f"{file.name}-wal").exists():
        identify(path, location)


def require_same(opened: FileId, path: str | None, location: str) -> None:
    """Check that a path still names the file that is open.

    Raises:
        DatabaseGoneError: it names another file, or none. To be raised to the end, not to be tried again.
        UnavailableError: as of `identify`.
    """
    try:
        is_same = identify(path, location) == opened
    except DatabaseGoneError as error:
        raise DatabaseGoneError(str(error)) from None
    if not is_same:
        raise DatabaseGoneError(
            f"{location}: another file has taken the place of the one that this process has open. Start it again to "
            "use the other file"
        )
