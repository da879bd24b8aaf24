"""Files that commands write: the folder is looked for before the work begins."""

from pathlib import Path

from foltr.errors import SettingsError
from foltr.user_files import resolve


def check_folder(out: Path) -> None:
    """Raise SettingsError where the folder of a file that is to be written does not exist."""
    if not resolve(out).parent.is_dir():
        raise SettingsError(f"out: there is no folder {resolve(out).parent}")
