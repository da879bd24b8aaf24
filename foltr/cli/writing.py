"""Files that commands write: the folder is looked for before the work begins."""

from pathlib import Path

from foltr.errors import SettingsError


def check_folder(out: Path) -> None:
    """Raise SettingsError where the folder of a file that is to be written does not exist."""
    if not out.resolve().parent.is_dir():
        raise SettingsError(f"out: there is no folder {out.resolve().parent}")
