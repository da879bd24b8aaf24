"""``foltr attacks``: list attacks, and run simulated hostile devices over MQTT."""

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from foltr.cli import options
from foltr.cli.fields import Option, read_parameters
from foltr.cli.fleet.running import RUN_KEYS, RUN_OPTIONS, Count, NRounds, device_name, make_fleet, report, run_fleet
from foltr.cli.output import configure_logging, console, print_rows
from foltr.cli.settings import load_settings, takes_settings
from foltr.core.aggregation.rule_spec import read_rule
from foltr.core.errors import SettingsError
from foltr.core.installed_plugins import installed_plugins
from foltr_research.attacks.registry import ATTACKS, attack_parameters_of, check_without_model, read_attack
from foltr_research.cli.collusion import run_attacked

app = typer.Typer(
    help="List the attacks that simulated clients can run, and run devices that attack a federation.",
    no_args_is_help=True,
)
# The federator's options, in the attackers' view.
_OPTIONS = RUN_OPTIONS | {
    "aggregation": Option(text="The rule that the attackers believe in"),
    "byzantine": Option(
        text="How many hostile clients they believe the rule withstands: a number, or a share below 0.5"
    ),
}


@dataclass(frozen=True)
class AttackRow:
    """A row of `foltr attacks list`.

    Attributes:
        package: of an attack that is not foltr's; it runs in simulations only.
        error: why it cannot be used.
    """

    attack: str
    parameters: dict[str, str]
    meaning: str
    package: str | None = None
    error: str | None = None


@app.command("list")
def list_attacks(json: options.Json = False) -> None:
    """List the attacks that simulated clients can run, and their parameters with defaults."""
    rows = [AttackRow(name, attack_parameters_of(name), meaning) for name, meaning in ATTACKS.items()]
    others = installed_plugins("foltr.attacks", tuple(ATTACKS))
    rows += [AttackRow(one.name, {}, one.meaning, one.package, one.error) for one in others]
    if json:
        print_rows(rows, (), title="Attacks", as_json=True)
        return
    for row in rows:
        source = "" if row.package is None else f" (of {row.package}, only simulated)"
        meaning = row.meaning if row.error is None else f"it cannot be used: {row.error}"
        console.print(f"{row.attack}{source}: {meaning}", markup=False, highlight=False, soft_wrap=True)
        for name, default in row.parameters.items():
            console.print(f"    --attack-set {name}={default}", markup=False, highlight=False, soft_wrap=True)


@app.command("run")
@takes_settings((*RUN_KEYS, "aggregation", "byzantine"), _OPTIONS)
def run(
    attack: Annotated[str, typer.Argument(help="What hostile devices do: one of `foltr attacks list`")],
    count: Count = 1,
    rounds: NRounds = None,
    attackers: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="Number of devices that attack, the first ones; default: all")
    ] = None,
    attack_parameters: Annotated[
        list[str] | None,
        typer.Option(
            "--attack-set",
            metavar="NAME=VALUE",
            help="A parameter of the attack; may be given several times. knowledge=full: the honest devices of this "
            "process are overheard",
        ),
    ] = None,
    json: options.Json = False,
    **flags: Any,
) -> None:
    """Run devices as `foltr client run` does, the first of which attack their federation."""
    settings = load_settings(**flags)
    configure_logging(settings.log_level, settings.log_format)
    spec = read_attack(attack, read_parameters(attack_parameters or (), "--attack-set"))
    check_without_model(spec)
    if attackers is not None and attackers > count:
        raise SettingsError(f"--attackers: {attackers} of {count} devices; raise --count, or let fewer attack")
    rule = read_rule(
        settings.defence.aggregation,
        byzantine=settings.defence.byzantine,
        parameters=settings.defence.aggregation_parameters,
        fallback=settings.defence.aggregation_fallback,
    )
    fleet = make_fleet(settings, device_name(settings), count, rounds)
    asyncio.run(run_fleet(fleet, run_attacked(fleet, spec, count if attackers is None else attackers, rule)))
    report(fleet, as_json=json)
