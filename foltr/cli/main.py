"""The command ``foltr``. Exit codes: 0 done, 1 failed, 2 wrong settings or usage, 3 broker or database away."""

import sys
from typing import Annotated

import typer

from foltr import __version__
from foltr.cli import broker, client, db, federator
from foltr.cli.demo import learning_demo
from foltr.cli.doctor import doctor
from foltr.cli.erasure import audit, erasures, forget, receipts
from foltr.cli.experiments import data, reproduce, rules_and_attacks, simulate, sweep
from foltr.cli.history import history, replay
from foltr.cli.operator import enrol, orders
from foltr.cli.output import configure_logging, errors
from foltr.errors import FoltrError, SettingsError, UnavailableError

app = typer.Typer(
    name="foltr",
    help="Federated online learning to rank over MQTT: federator, devices and what they remember.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command("demo")(learning_demo.demo)
app.command("simulate")(simulate.simulate)
app.command("sweep")(sweep.sweep)
app.command("methods")(simulate.methods)
app.command("rules")(rules_and_attacks.rules)
app.command("attacks")(rules_and_attacks.attacks)
app.command("doctor")(doctor.doctor)
app.command("reproduce")(reproduce.reproduce)
app.command("enrol")(enrol.enrol)
app.command("revoke")(enrol.revoke)
app.command("forget")(forget.forget)
app.command("replay")(replay.replay)
app.add_typer(enrol.roster_app, name="roster")
app.add_typer(broker.app, name="broker")
app.add_typer(db.app, name="db")
app.add_typer(federator.app, name="federator")
app.add_typer(client.app, name="client")
history.rounds_app.command("deadline")(orders.deadline)
history.clients_app.command("quarantine")(orders.quarantine)
app.add_typer(history.rounds_app, name="rounds")
app.add_typer(history.clients_app, name="clients")
app.add_typer(history.models_app, name="models")
app.add_typer(erasures.app, name="erasures")
app.add_typer(receipts.app, name="receipt")
app.add_typer(audit.app, name="audit")
app.add_typer(data.app, name="data")

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
    # Standard output is for results; commands that read settings configure this again.
    configure_logging("warning", "text")


def main() -> None:
    """Run the command line; errors made on purpose are one line on standard error."""
    try:
        app()
    except FoltrError as error:
        errors.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        if isinstance(error, SettingsError):
            sys.exit(EXIT_SETTINGS)
        sys.exit(EXIT_UNAVAILABLE if isinstance(error, UnavailableError) else EXIT_FAILED)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        # By name: a device has no SQLAlchemy to import the class from.
        if not type(error).__module__.startswith("sqlalchemy."):
            raise
        cause = str(getattr(error, "orig", None) or error).splitlines()[0]
        errors.print(f"error: database: {cause}. Look with: foltr doctor", style="red", markup=False, soft_wrap=True)
        sys.exit(EXIT_UNAVAILABLE)
