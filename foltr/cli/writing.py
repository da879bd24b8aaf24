"""Files that commands write: the folder is looked for before the work begins."""

from pathlib import Path

from foltr.core.errors import SettingsError
from foltr.core.user_files import check_file, resolve


def check_folder(out: Path) -> None:
    """Raise SettingsError where the folder of a file that is to be written does not exist."""
    if not resolve(out).parent.is_dir():
        raise SettingsError(f"out: there is no folder {resolve(out).parent}")


def check_writable(path: Path | None, option: str, *, replaced: bool = True) -> None:
    """Raise SettingsError, before the work is done, if the file of an option could not be written.

    Args:
        replaced: see `foltr.core.user_files.check_file`.
    """
    if path is None:
        return
    try:
        check_file(path, replaced=replaced)
    except SettingsError as error:
        raise SettingsError(f"{option}: {error}") from error
