"""A command that is run to its end, with what it printed."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support.waiting import PATIENCE_S


def completed(
    command: Sequence[str | Path], *, check: bool = False, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command as `subprocess.run` does, with its options; the output is text, and by default it ends in time."""
    options = {"timeout": PATIENCE_S} | options
    return subprocess.run(command, check=check, capture_output=True, text=True, **options)
