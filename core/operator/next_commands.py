"""What an operator is told to run next: the command in full, so that copied it is about the same folder."""

import shlex
from pathlib import Path
from typing import Final

DEFAULT_OPERATOR_FOLDER: Final = Path("foltr-operator")


def command_in(folder: Path, command: str) -> str:
    """Return ``command``, which takes ``--operator``, with this folder where it is not the default one."""
    return command if folder == DEFAULT_OPERATOR_FOLDER else f"{command} --operator {shlex.quote(str(folder))}"
