"""The command ``foltr``. Exit codes: 0 done, 1 failed, 2 wrong settings or usage, 3 unreachable or refused."""

import errno
import io
import sys
from typing import Annotated

import typer

from foltr.cli.commands import LazyGroup
from foltr.core.errors import FoltrError, SettingsError, UnavailableError
from foltr.core.extras import extra_of, install_command
from foltr.core.version import __version__

app = typer.Typer(
    cls=LazyGroup,
    name="foltr",
    help="Federated online learning to rank over MQTT: federator, devices and what they remember.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
EXIT_FAILED, EXIT_SETTINGS, EXIT_UNAVAILABLE = 1, 2, 3


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"foltr {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[  # noqa: ARG001 (its callback does the work)
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version")
    ] = False,
) -> None:
    """Federated online learning to rank over MQTT."""
    from foltr.cli.output import configure_logging

    # Results go to standard output. Commands that read settings configure logging again.
    configure_logging("warning", "text")


def main() -> None:
    """Run the command line. Expected errors print one line on standard error."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A file name need not be valid text. Standard error already escapes such bytes.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
    except FoltrError as error:
        _print_error(f"error: {error}")
        if isinstance(error, SettingsError):
            sys.exit(EXIT_SETTINGS)
        sys.exit(EXIT_UNAVAILABLE if isinstance(error, UnavailableError) else EXIT_FAILED)
    except OSError as error:
        # The user named this file. Commands cannot check beforehand every file that a setting names.
        if error.filename is None and error.errno not in _FULL:
            raise
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            place = "" if error.filename is None else f" at {error.filename}"
            _print_error(f"error: disk full{place}. Free space there, and run it again")
        else:
            place = "" if error.filename is None else f"{error.filename}: "
            _print_error(
                f"error: {place}{error.strerror}. Name another file, or make this one usable, and run it again"
            )
        sys.exit(EXIT_SETTINGS)
    except ModuleNotFoundError as error:
        extra = extra_of(error.name or "")
        if extra is None:
            raise
        _print_error(f"error: this needs {error.name}, of the extra {extra}: {install_command(extra)}")
        sys.exit(EXIT_SETTINGS)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        # By name: a device has no SQLAlchemy to import the class from.
        if not type(error).__module__.startswith("sqlalchemy."):
            raise
        cause = str(getattr(error, "orig", None) or error).splitlines()[0]
        _print_error(f"error: database: {cause}. Look with: foltr doctor")
        sys.exit(EXIT_UNAVAILABLE)


def _print_error(text: str) -> None:
    from foltr.cli.output import errors, one_line

    errors.print(one_line(text), style="red", markup=False, highlight=False, soft_wrap=True)
