"""Command-line options of the terminal and the page."""

import argparse
from pathlib import Path

from documents import standard_library


def read_options(description: str) -> argparse.Namespace:
    """Return ``folder``, ``home``, ``credentials`` and ``port``."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--folder", type=Path, default=standard_library(), help="what is searched")
    parser.add_argument("--home", type=Path, default=Path("desktop-search"), help="where what is learned is kept")
    parser.add_argument(
        "--credentials", type=Path, help="from `foltr device enrol`; without them it records and asks nobody"
    )
    parser.add_argument("--port", type=int, default=8765, help="of the page, on this machine only; 0: any")
    return parser.parse_args()
