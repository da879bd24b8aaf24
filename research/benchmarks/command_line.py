"""Help from a program's docstring, and results as JSON, for all programs of this folder."""

import argparse
import json
from pathlib import Path
from typing import Any


def parser_of(documentation: str | None) -> argparse.ArgumentParser:
    """Return a parser with the option ``--json FILE`` that shows a program's documentation as help."""
    parser = argparse.ArgumentParser(description=documentation, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to this file")
    return parser


def write_json(file: Path | None, results: Any) -> None:
    """Write results if a file was named."""
    if file is not None:
        file.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
