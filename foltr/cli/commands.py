"""The commands of ``foltr``: a summary and the place of each. A command's module is imported when it is called.

Most commands need NumPy, pydantic or a database; `foltr --help` needs none of them, so it answers at once. Other
distributions add commands by entry points of the group `ENTRY_POINTS`: each is a function or a ``typer.Typer``.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from foltr.core.errors import SettingsError


class CommandPlace(NamedTuple):
    """One command, or a group of commands.

    Attributes:
        summary: the first paragraph of its help. A test checks that they agree.
        place: ``module:name`` of a function or a ``typer.Typer`` below ``foltr.cli``; for a group, its commands by
            name.
    """

    summary: str
    place: str | Mapping[str, str]


COMMANDS: Final[Mapping[str, CommandPlace]] = {
    "demo": CommandPlace(
        "Run a federation on this machine: broker, federator and devices as real MQTT peers, on real data.",
        "demo:demo",
    ),
    "methods": CommandPlace(
        "List the methods, with their parameters and defaults.",
        "rules_and_methods:methods",
    ),
    "rules": CommandPlace(
        "List the aggregation rules: what they need, and their parameters with defaults.",
        "rules_and_methods:rules",
    ),
    "doctor": CommandPlace(
        "Check the installation, the credentials, the broker and the database. Exits with 1 if something is wrong.",
        "doctor.doctor:doctor",
    ),
    "status": CommandPlace(
        "Show on one screen how a federation is: the verdict, what to type, its round, its devices, its erasures.",
        "status:status",
    ),
    "broker": CommandPlace(
        "Run the embedded MQTT broker, or configure Mosquitto.",
        {
            "run": "broker:run",
            "config": "broker:config",
            "renew": "broker_keys:renew",
            "readmit": "broker_keys:readmit",
            "worker": "broker_keys:worker",
            "authority": "broker_authority:app",
        },
    ),
    "db": CommandPlace(
        "Create and upgrade the database, rewrite it, and replace data keys.",
        {"upgrade": "db:upgrade", "vacuum": "db:vacuum", "rekey": "db:rekey", "current": "db:current"},
    ),
    "backup": CommandPlace(
        "Back up the database, its data keys and the operator's folder, check a backup, and restore its database.",
        {"create": "backup:create", "verify": "backup:verify", "restore": "backup:restore"},
    ),
    "config": CommandPlace("Write, check and show the settings.", "config:app"),
    "operator": CommandPlace(
        "Send and list the operator's orders, and let devices enrol themselves.",
        {
            "roster": "operator.roster:roster",
            "orders": "operator.sending:orders",
            "send": "operator.sending:send",
            "publish": "operator.sending:publish_again",
            "rotate-key": "operator.roster:rotate_key",
            "desk": "operator.tokens:desk",
        },
    ),
    "device": CommandPlace(
        "Enrol, list, quarantine and revoke devices.",
        {
            "enrol": "operator.enrol:enrol_devices",
            "tokens": "operator.tokens:tokens",
            "list": "history.clients:clients_list",
            "show": "history.clients:clients_show",
            "quarantine": "history.clients:quarantine",
            "revoke": "operator.roster:revoke",
        },
    ),
    "schema": CommandPlace(
        "Make, check, show and publish a feature schema.",
        {
            "new": "operator.schema:new",
            "check": "operator.schema:check",
            "show": "operator.schema:show",
            "publish": "operator.schema:publish",
        },
    ),
    "policy": CommandPlace(
        "Sign, show and publish the policy of secure sums.",
        {"new": "privacy.policy:new", "show": "privacy.policy:show", "publish": "privacy.policy:publish"},
    ),
    "privacy": CommandPlace(
        "Plan the noise of secure sums, and show what a device spent.",
        {"plan": "privacy.privacy:plan", "budget": "privacy.budget:budget"},
    ),
    "helper": CommandPlace(
        "Enrol a helper of secure sums, run it, and make its keys for the next policy.",
        {"enrol": "operator.enrol:enrol_helper", "run": "helper:run", "keys": "helper:keys"},
    ),
    "federator": CommandPlace("Run the federator, and replace its key.", "federator:app"),
    "client": CommandPlace("Run simulated devices.", "fleet.running:app"),
    "rounds": CommandPlace(
        "Show rounds, and check that their models follow from the stored updates.",
        {
            "list": "history.rounds:rounds_list",
            "show": "history.rounds:rounds_show",
            "why": "history.rounds:rounds_why",
            "deadline": "history.rounds:deadline",
            "replay": "history.rounds:replay",
        },
    ),
    "models": CommandPlace(
        "Show and export model versions, and make the first one.",
        {
            "list": "history.models:models_list",
            "export": "history.models:models_export",
            "from-feature": "history.models:models_from_feature",
        },
    ),
    "erasure": CommandPlace(
        "Erase clients, show the progress, and check the proof.",
        {
            "request": "erasure.request:request",
            "list": "erasure.erasures:erasures_list",
            "show": "erasure.erasures:erasures_show",
            "allow-reset": "erasure.erasures:allow_reset",
            "verify": "erasure.audit:verify",
            "log": "erasure.audit:audit_log",
            "log-head": "erasure.audit:log_head",
            "verify-log": "erasure.audit:verify_log",
        },
    ),
    "api": CommandPlace("Serve the HTTP API and its page, and make tokens for it.", "api:app"),
    "data": CommandPlace("Get ranking data.", "data:app"),
}

ENTRY_POINTS: Final = "foltr.commands"
RESEARCH: Final[Mapping[str, str]] = {
    "demo-secure": "Show secure sums: only noised sums are visible, a helper is killed, devices vanish.",
    "demo-forget": "Show an erasure: a device harms the model and is forgotten, and its remains are searched for.",
    "simulate": "Run a federation in this process, without a network, and report how well it learns.",
    "sweep": "Run every combination of folds, seeds and varied values; finished runs are kept beside the table.",
    "attacks": "List the attacks that simulated clients can run, and run devices that attack a federation.",
    "reproduce": "Repeat a paper's experiment: figures, tables, every number, and a verdict on each claim.",
    "fit": "Fit the first model of a federation to logged data, and report how it ranks queries it has not seen.",
}
"""Commands of the research package by name, with their summaries. Without the package each says what to install."""
ALL_COMMANDS: Final = (*COMMANDS, *RESEARCH)

_LARGEST: Final = 2**63 - 1


class LazyGroup(TyperGroup):
    """The group of all commands. It lists their summaries, and imports only the called one."""

    def __init__(self, **attributes: Any) -> None:
        summaries = {name: f"Added by the package {_distribution(one)}." for name, one in added_commands().items()}
        summaries = {**{name: command.summary for name, command in COMMANDS.items()}, **summaries, **RESEARCH}
        commands = {name: TyperCommand(name=name, help=text, short_help=text) for name, text in summaries.items()}
        super().__init__(**{**attributes, "commands": commands})

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, summary, rest = super().resolve_command(ctx, args)
        return name, None if name is None or summary is None else load_command(name), rest


def added_commands() -> dict[str, EntryPoint]:
    """Return the commands of other distributions by name. They cannot replace a command of `COMMANDS`."""
    return {one.name: one for one in entry_points(group=ENTRY_POINTS) if one.name not in COMMANDS}


def load_command(name: str) -> Any:
    """Import a command and build it as Typer does. Raises SettingsError if its package is not installed."""
    parent, command = typer.Typer(rich_markup_mode=None), _import(name)
    if command is None:
        raise SettingsError(
            f"foltr {name}: this is in the research package, which is not installed; from a checkout of foltr: "
            "pip install ./research"
        )
    _add(parent, name, command)
    return _in_plain_text(get_group(parent).commands[name])


def _add(parent: typer.Typer, name: str, command: Any) -> None:
    if isinstance(command, typer.Typer):
        parent.add_typer(command, name=name)
    else:
        parent.command(name)(command)


def _import(name: str) -> Any:
    """Return the function or ``typer.Typer`` of a command. None if its package is not installed."""
    if name not in COMMANDS:
        added = added_commands().get(name)
        return None if added is None else added.load()
    summary, place = COMMANDS[name]
    if isinstance(place, str):
        return _at(place)
    group = typer.Typer(help=summary, no_args_is_help=True)
    for word, each in place.items():
        _add(group, word, _at(each))
    return group


def _at(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(import_module(f"foltr.cli.{module}"), attribute)


def _distribution(added: EntryPoint) -> str:
    return "" if added.dist is None else added.dist.name


def _in_plain_text(command: Any) -> Any:
    """Make a command print its help without boxes, which cut option names and URLs at 80 columns.

    A list of commands shows each summary in full.
    """
    command.rich_markup_mode = None
    command.short_help = " ".join((command.help or "").partition("\n\n")[0].split())
    for parameter in command.params:
        parameter.callback = _bounded(parameter.callback)
    for below in getattr(command, "commands", {}).values():
        _in_plain_text(below)
    return command


def _bounded(callback: Callable[..., Any] | None) -> Callable[..., Any]:
    """Make a parameter refuse NaN and numbers beyond a machine word: its own limits do not."""

    def check(ctx: Any, parameter: Any, value: Any) -> Any:
        for one in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(one, (int, float)) and not (one == 0 or 1 / _LARGEST <= abs(one) <= _LARGEST):
                shown = (
                    f"{one!s:.40} is out of range; give 0, or from {1 / _LARGEST:.0e} to {_LARGEST:.0e} with "
                    "either sign"
                )
                raise typer.BadParameter(shown, ctx, parameter)
        return value if callback is None else callback(ctx, parameter, value)

    return check
