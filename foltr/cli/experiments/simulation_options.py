"""What ``foltr simulate`` and ``foltr sweep`` can be asked for, and the configuration that makes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foltr.cli.experiments.method import read_parameters
from foltr.errors import SettingsError

if TYPE_CHECKING:
    from foltr.simulation.config import SimulationConfig

Data = Annotated[
    str,
    typer.Option(
        "--data",
        envvar="FOLTR_DATASET",
        help="A folder with a LETOR data set, or mslr-sample, synthetic, synthetic-nonlinear, synthetic-large; "
        "for type1 a folder of intents or synthetic-intents",
    ),
]
Method = Annotated[str, typer.Option("--method", help="How it learns; `foltr methods` lists all")]
Ranker = Annotated[str, typer.Option("--ranker", help="linear or neural")]
Hidden = Annotated[int, typer.Option("--hidden", help="Hidden units of a neural ranker")]
Clients = Annotated[int, typer.Option("--clients", help="Simulated devices")]
Participants = Annotated[
    int | None, typer.Option("--participants", help="Clients drawn anew for each round; default: all")
]
Interactions = Annotated[int, typer.Option("--interactions", help="Of each client in a round")]
ClicksPerRound = Annotated[
    int | None,
    typer.Option("--clicks-per-round", help="fedips, fedavg: show the round's queries again until so many clicks"),
]
LoggingFraction = Annotated[
    float, typer.Option("--logging-fraction", help="fedips, fedavg: rank by LambdaRank on this share of the queries")
]
Rounds = Annotated[int, typer.Option("--rounds")]
Clicks = Annotated[str, typer.Option("--clicks", help="Click model; several with commas between them")]
Population = Annotated[
    str,
    typer.Option(
        "--population",
        help="iid, type1, type1-iid, type1-iid-per-intent, type2, type3, type4, type1+type4 or type2+type4",
    ),
]
IntentAgreement = Annotated[
    float | None, typer.Option("--intent-agreement", help="type1: how well one ranker can serve all intents, 0 to 1")
]
LabelsPerClient = Annotated[int, typer.Option("--labels-per-client", help="type2: grades a client has")]
Quantities = Annotated[str, typer.Option("--quantities", help="type4: interactions in a round, commas between them")]
SharedFraction = Annotated[
    float, typer.Option("--shared-fraction", help="Data sharing: share of the training queries that is common")
]
SharedAlpha = Annotated[
    float, typer.Option("--shared-alpha", help="Data sharing: share of the common queries that each client gets")
]
WarmUp = Annotated[
    int, typer.Option("--warm-up-interactions", help="Data sharing: PDGD on the common data before the first round")
]
Aggregation = Annotated[
    str, typer.Option("--aggregation", envvar="FOLTR_AGGREGATION", help="How updates become one; `foltr rules`")
]
Byzantine = Annotated[
    float,
    typer.Option(
        "--byzantine",
        envvar="FOLTR_BYZANTINE",
        help="Hostile clients to tolerate: a number, or a share of a round's updates below 0.5",
    ),
]
AggregationSet = Annotated[
    list[str] | None,
    typer.Option("--aggregation-set", metavar="NAME=VALUE", help="A parameter of the rule; may be given several times"),
]
Fallback = Annotated[
    str,
    typer.Option(
        "--fallback",
        envvar="FOLTR_AGGREGATION_FALLBACK",
        help="The rule of rounds with too few updates, or abandon",
    ),
]
Attack = Annotated[
    str | None, typer.Option("--attack", help="What hostile clients do; `foltr attacks` lists what there is")
]
Attackers = Annotated[int, typer.Option("--attackers", help="How many clients are hostile: the first ones")]
AttackSet = Annotated[
    list[str] | None,
    typer.Option("--attack-set", metavar="NAME=VALUE", help="A parameter of the attack; may be given several times"),
]
EvalEvery = Annotated[int, typer.Option("--eval-every", help="Rounds between evaluations")]
OutFile = Annotated[
    Path | None, typer.Option("--out", help="Write tidy rows to this file, .parquet or .csv, replacing it")
]

# Fields that are given one assignment at a time, and by which option.
ASSIGNED = {
    "parameters": "--set",
    "aggregation_parameters": "--aggregation-set",
    "attack_parameters": "--attack-set",
}


def read_config(values: dict[str, Any]) -> "SimulationConfig":
    """The configuration of a command line; SettingsError in one line.

    Args:
        values: options by field; ``clicks`` and ``quantities`` with commas between several, parameters as they were
            assigned.
    """
    from foltr.simulation.config import SimulationConfig

    for name, option in ASSIGNED.items():
        values[name] = read_parameters(values[name], option) or {}
    for name in ("clicks", "quantities"):
        values[name] = tuple(value.strip() for value in values[name].split(","))
    return SimulationConfig.read(values)


def check_writable(path: Path | None, option: str, *, replaced: bool = True) -> None:
    """SettingsError, before the work is done, if the file of an option could not be written.

    Args:
        replaced: see `foltr.simulation.sweeps.tables.check_file`.
    """
    from foltr.simulation.sweeps.tables import check_file

    if path is None:
        return
    try:
        check_file(path, replaced=replaced)
    except SettingsError as error:
        raise SettingsError(f"{option}: {error}") from error
