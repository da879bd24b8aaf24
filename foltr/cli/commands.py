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
        place: ``module:name`` of a function or of a ``typer.Typer``, below ``foltr.cli``; of a group, those of its
            commands by name.
    """

    summary: str
    place: str | Mapping[str, str]


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
    "reproduce": CommandPlace(
        "Run an experiment of a paper again: figures, tables, every number, and a verdict on each of its claims.",
        "experiments.reproduce:reproduce",
    ),
    "fit": CommandPlace(
        "Fit the first model of a federation to logged data, and say how it ranks queries it has not seen.",
        "experiments.fit:fit",
    ),
    "data": CommandPlace("Get ranking data.", "experiments.data:app"),
    "doctor": CommandPlace(
        "Check the installation, the credentials, the broker and the database. Exits with 1 if something is wrong.",
        "doctor.doctor:doctor",
    ),
    "status": CommandPlace(
        "Say on one screen how a federation is: its federator, its open round, who is there, and what needs you.",
        "status.status:status",
    ),
    "broker": CommandPlace(
        "Run the embedded MQTT broker, or configure Mosquitto.",
        {
            "run": "broker:run",
            "config": "broker:config",
            "renew": "broker_keys:renew",
            "readmit": "broker_keys:readmit",
            "worker": "broker_workers:worker",
            "authority": "broker_authority:app",
        },
    ),
    "db": CommandPlace(
        "Create and upgrade the database, rewrite it, and replace data keys.",
        {"upgrade": "db:upgrade", "vacuum": "db:vacuum", "rekey": "db:rekey", "current": "db:current"},
    ),
    "operator": CommandPlace(
        "Send what an operator has signed, look at it, and let devices enrol themselves.",
        {
            "roster": "operator.roster:roster",
            "orders": "operator.orders:orders",
            "send": "operator.orders:send",
            "publish": "operator.orders:publish",
            "rotate-key": "operator.roster:rotate_key",
            "desk": "operator.desk:desk",
        },
    ),
    "device": CommandPlace(
        "Enrol devices, look at them, keep them out, and revoke them.",
        {
            "enrol": "operator.enrol:enrol_devices",
            "tokens": "operator.tokens:tokens",
            "list": "history.clients:clients_list",
            "show": "history.clients:clients_show",
            "quarantine": "history.quarantine:quarantine",
            "revoke": "operator.roster:revoke",
        },
    ),
    "schema": CommandPlace(
        "Make a feature schema, look at it, and publish it.",
        {"new": "operator.schema:new", "show": "operator.schema:show", "publish": "operator.schema:publish"},
    ),
    "policy": CommandPlace(
        "Sign the policy of secure sums, look at it, and publish it.",
        {"new": "privacy.policy:new", "show": "privacy.policy:show", "publish": "privacy.policy:publish"},
    ),
    "privacy": CommandPlace(
        "Plan and audit the noise of secure sums, and see what a device spent.",
        {"plan": "privacy.privacy:plan", "audit": "privacy.privacy:audit", "budget": "privacy.budget:budget"},
    ),
    "helper": CommandPlace(
        "Enrol a helper of secure sums, run it, and make its keys for the next policy.",
        {"enrol": "operator.enrol:enrol_helper", "run": "helper:run", "keys": "helper:keys"},
    ),
    "federator": CommandPlace("Run the federator, and give it another key.", "federator:app"),
    "client": CommandPlace("Run simulated devices.", "client:app"),
    "rounds": CommandPlace(
        "Look at rounds, and check that their models follow from what is stored.",
        {
            "list": "history.rounds:rounds_list",
            "show": "history.rounds:rounds_show",
            "why": "history.rounds:rounds_why",
            "deadline": "history.rounds:deadline",
            "replay": "history.replay:replay",
        },
    ),
    "models": CommandPlace(
        "Look at model versions, export one, and make the first.",
        {
            "list": "history.models:models_list",
            "export": "history.models:models_export",
            "carry": "history.models:models_carry",
            "from-feature": "history.models:models_from_feature",
        },
    ),
    "erasure": CommandPlace(
        "Have clients forgotten, see how far that is, and check the proof of it.",
        {
            "request": "erasure.request:request",
            "list": "erasure.erasures:erasures_list",
            "show": "erasure.erasures:erasures_show",
            "allow-reset": "erasure.erasures:allow_reset",
            "verify": "erasure.receipts:verify",
            "log": "erasure.audit:audit_log",
            "log-head": "erasure.heads:log_head",
            "verify-log": "erasure.audit:verify_log",
        },
    ),
    "api": CommandPlace("Serve the HTTP API and its page, and make tokens for it.", "api:app"),
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
    summary, place = COMMANDS[name]
    parent = typer.Typer(rich_markup_mode=None)
    if isinstance(place, str):
        _add(parent, name, place)
    else:
        group = typer.Typer(help=summary, no_args_is_help=True)
        for word, each in place.items():
            _add(group, word, each)
        parent.add_typer(group, name=name)
    return _in_plain_text(get_group(parent).commands[name])


def _add(parent: typer.Typer, name: str, place: str) -> None:
    module, _, attribute = place.partition(":")
    command = getattr(import_module(f"foltr.cli.{module}"), attribute)
    if isinstance(command, typer.Typer):
        parent.add_typer(command, name=name)
    else:
        parent.command(name)(command)


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
