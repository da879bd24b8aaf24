"""Where the command ``foltr`` begins: an install for an application's SDK has no command line."""

import sys

from foltr.core.extras import extra_of, install_command

_EXIT_SETTINGS = 2


def main() -> None:
    """Run the command line, or name the extra that brings it."""
    try:
        from foltr.cli.main import main as run
    except ModuleNotFoundError as error:
        if extra_of(error.name or "") != "cli":
            raise
        sys.stderr.write(f"error: the command line is not installed; run: {install_command('cli')}\n")
        sys.exit(_EXIT_SETTINGS)
    run()
