"""Which data a command works on, and what it says meanwhile."""

from foltr.cli.output import console
from foltr.core.data.sources import MSLR_SAMPLE, SYNTHETIC, LoadedData, load_data
from foltr.core.errors import DataError, SettingsError, UnavailableError


def find_data(name: str | None, seed: int, fold: int | None = None, *, normalise: bool = True) -> LoadedData:
    """As `foltr.core.data.sources.load_data`; by default the MSLR sample, or a synthetic set where that cannot be
    had."""
    if name is None and fold is not None:
        raise SettingsError(f"fold {fold}: only a folder has folds; expected --data with a folder")
    sample = name in (None, MSLR_SAMPLE)
    try:
        with console.status("Fetching the MSLR-WEB10K sample (once, 2 MB)" if sample else "Reading the data"):
            return load_data(MSLR_SAMPLE if name is None else name, seed, fold, normalise=normalise)
    except (UnavailableError, DataError) as error:
        if name is not None:
            raise
        console.print(f"No real data: {error}", style="yellow", markup=False, soft_wrap=True)
        console.print("Going on with a generated set. It is synthetic: its figures mean little.", style="yellow")
        return load_data(SYNTHETIC, seed)
