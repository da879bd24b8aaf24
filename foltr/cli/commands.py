"""The commands of ``foltr``: a line that says what each is for, and where it is. It is imported once it is called.

Most commands need NumPy, pydantic or a database; `foltr --help` needs none of them, and answers at once.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group


class CommandPlace(NamedTuple):
    """One command, or a group of commands.

    Attributes:
        summary: the first paragraph of its help; a test holds the two together.
        place: ``module:name`` of a function or of a ``typer.Typer``, below ``foltr.cli``.
    """

    summary: str
    place: str


COMMANDS: Final[Mapping[str, CommandPlace]] = {
    "demo": CommandPlace(
        "Run a federation on this machine: broker, federator and devices as real MQTT peers, on real data.",
        "demo.demo:demo",
    ),
    "simulate": CommandPlace(
        "Run a federation in this process, without a network, and say how well it learns.",
        "experiments.simulate:simulate",
    ),
    "sweep": CommandPlace(
        "Run every combination of folds, seeds and varied values; finished runs are kept beside the table.",
        "experiments.sweep:sweep",
    ),
    "methods": CommandPlace(
        "List the methods: their parameters with defaults, and where each runs.",
        "experiments.simulate:methods",
    ),
    "rules": CommandPlace(
        "List the aggregation rules: what they need, and their parameters with defaults.",
        "experiments.rules_and_attacks:rules",
    ),
    "attacks": CommandPlace(
        "List the attacks that simulated clients can run, and their parameters with defaults.",
        "experiments.rules_and_attacks:attacks",
    ),
    "privacy": CommandPlace(
        "Plan and audit the noise of secure sums, and see what a device spent.", "privacy.privacy:app"
    ),
    "policy": CommandPlace("Sign the policy of secure sums, look at it, and publish it.", "privacy.policy:app"),
    "schema": CommandPlace("Make a feature schema, look at it, check it, and publish it.", "operator.schema:app"),
    "doctor": CommandPlace(
        "Check the installation, the credentials, the broker and the database. Exits with 1 if something is wrong.",
        "doctor.doctor:doctor",
    ),
    "reproduce": CommandPlace(
        "Run an experiment of a paper again: figures, tables, every number, and a verdict on each of its claims.",
        "experiments.reproduce:reproduce",
    ),
    "fit": CommandPlace(
        "Fit the first model of a federation to logged data, and say how it ranks queries it has not seen.",
        "experiments.fit:fit",
    ),
    "enrol": CommandPlace(
        "Make devices known to a federation: one credentials file each, to be copied to the device.",
        "operator.enrol:enrol",
    ),
    "desk": CommandPlace(
        "Answer devices that enrol themselves with a one-time token, and look at the tokens.", "operator.desk:app"
    ),
    "revoke": CommandPlace(
        "Void a device's key: the federator refuses it from the moment it has the order.",
        "operator.enrol:revoke",
    ),
    "forget": CommandPlace(
        "Erase what a federation has of a client and unlearn what it has taught. It cannot be undone.",
        "erasure.forget:forget",
    ),
    "replay": CommandPlace(
        "Aggregate a stored round again: exit code 0 if its model follows bit for bit from what is stored, else 1.",
        "history.replay:replay",
    ),
    "roster": CommandPlace(
        "Look at the roster of enrolled and revoked devices, and publish it.",
        "operator.enrol:roster_app",
    ),
    "orders": CommandPlace("Look at the orders of an operator's folder, and send them.", "operator.orders:app"),
    "broker": CommandPlace("Run the embedded MQTT broker, or configure Mosquitto.", "broker:app"),
    "db": CommandPlace("Create and upgrade the database, write it anew, and replace data keys.", "db:app"),
    "config": CommandPlace("Write, check and show the settings.", "config:app"),
    "federator": CommandPlace("Run the federator, and give it another key.", "federator:app"),
    "client": CommandPlace("Run simulated devices.", "client:app"),
    "helper": CommandPlace("Run a helper of secure sums, and make its keys for the next policy.", "helper:app"),
    "status": CommandPlace(
        "Say on one screen how a federation is: its federator, its open round, who is there, and what needs you.",
        "status.status:status",
    ),
    "rounds": CommandPlace("Look at rounds.", "history.rounds:app"),
    "clients": CommandPlace("Look at clients.", "history.clients:app"),
    "models": CommandPlace("Look at model versions, export one, and make the first.", "history.models:app"),
    "erasures": CommandPlace("Look at who was forgotten, and get receipts.", "erasure.erasures:app"),
    "receipt": CommandPlace("Check the receipt of an erasure.", "erasure.receipts:app"),
    "audit": CommandPlace("Look at the log of erasures, and check it.", "erasure.audit:app"),
    "api": CommandPlace("Serve the HTTP API and its page, and make tokens for it.", "api:app"),
    "data": CommandPlace("Get ranking data.", "experiments.data:app"),
}


_LARGEST: Final = 2**63 - 1


class LazyGroup(TyperGroup):
    """The group of all commands: lists them by their summaries, and imports the one that is called."""

    def __init__(self, **attributes: Any) -> None:
        summaries = {
            name: TyperCommand(name=name, help=command.summary, short_help=command.summary)
            for name, command in COMMANDS.items()
        }
        super().__init__(**{**attributes, "commands": summaries})

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, summary, rest = super().resolve_command(ctx, args)
        return name, None if name is None or summary is None else load_command(name), rest


def load_command(name: str) -> Any:
    """Import a command of `COMMANDS`, and build it as Typer does."""
    module, _, attribute = COMMANDS[name].place.partition(":")
    command = getattr(import_module(f"foltr.cli.{module}"), attribute)
    parent = typer.Typer(rich_markup_mode=None)
    if isinstance(command, typer.Typer):
        parent.add_typer(command, name=name)
    else:
        parent.command(name)(command)
    return _in_plain_text(get_group(parent).commands[name])


def _in_plain_text(command: Any) -> Any:
    """Have a command print its help without boxes: in them names of options and URLs are cut at 80 columns.

    A list of commands has the first paragraph of each whole.
    """
    command.rich_markup_mode = None
    command.short_help = " ".join((command.help or "").partition("\n\n")[0].split())
    for parameter in command.params:
        parameter.callback = _bounded(parameter.callback)
    for below in getattr(command, "commands", {}).values():
        _in_plain_text(below)
    return command


def _bounded(callback: Callable[..., Any] | None) -> Callable[..., Any]:
    """Have a parameter refuse numbers that no machine word holds: its own limits refuse no NaN, and few have both."""

    def check(ctx: Any, parameter: Any, value: Any) -> Any:
        for one in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(one, (int, float)) and not (one == 0 or 1 / _LARGEST <= abs(one) <= _LARGEST):
                shown = f"{one!s:.40} is no number between {1 / _LARGEST:.0e} and {_LARGEST:.0e}, or one below zero"
                raise typer.BadParameter(shown, ctx, parameter)
        return value if callback is None else callback(ctx, parameter, value)

    return check
