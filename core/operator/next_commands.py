"""The commands to suggest to an operator, in full, so that a copied command is about the same folder."""

import shlex
from pathlib import Path
from typing import Final

DEFAULT_OPERATOR_FOLDER: Final = Path("foltr-operator")


def command_in(folder: Path, command: str) -> str:
    """Return ``command``, which takes ``--operator``, with this folder unless it is the default one."""
    return command if folder == DEFAULT_OPERATOR_FOLDER else f"{command} --operator {shlex.quote(str(folder))}"
