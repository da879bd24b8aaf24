"""A program ``foltr`` for scripts that call it by its name."""

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path

from cli.commands import FOLTR


@contextlib.contextmanager
def prepared_foltr(path: Path) -> Iterator[None]:
    """Have the program at ``path``, in a folder that is made if need be, while the block lasts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\nexec {shlex.join(FOLTR)} "$@"\n')
    path.chmod(0o755)
    yield
    path.unlink()
