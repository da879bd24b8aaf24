"""The options of ``foltr simulate`` and ``foltr sweep``: the fields of `SimulationConfig`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from foltr.cli.fields import Option, read_values
from foltr_research.simulation.config import SimulationConfig
from foltr_research.simulation.plugins import load_installed

# Fields that one sweep has in common.
FIELDS = tuple(name for name in SimulationConfig.model_fields if name not in {"fold", "seed"})
# Options shared with a federation's settings, and those given as one assignment at a time.
OPTIONS = {
    "data": Option(variable="FOLTR_DATASET"),
    "seed": Option(variable="FOLTR_SEED"),
    "metrics": Option("--metric"),
    "exploration": Option(variable="FOLTR_EXPLORATION"),
    "aggregation": Option(variable="FOLTR_AGGREGATION"),
    "byzantine": Option(variable="FOLTR_BYZANTINE"),
    "aggregation_fallback": Option("--fallback", variable="FOLTR_AGGREGATION_FALLBACK"),
    "parameters": Option("--set", "NAME=VALUE", "A parameter of the method; may be given several times"),
    "aggregation_parameters": Option(
        "--aggregation-set", "NAME=VALUE", "A parameter of the rule; may be given several times"
    ),
    "attack_parameters": Option("--attack-set", "NAME=VALUE", "A parameter of the attack; may be given several times"),
}
OutFile = Annotated[
    Path | None, typer.Option("--out", help="Write tidy rows to this file, .parquet or .csv, replacing it")
]


def read_config(values: dict[str, Any]) -> SimulationConfig:
    """Build the configuration of a command line from fields, and import what it names.

    Raises:
        SettingsError: in one line.
    """
    config = SimulationConfig.read(read_values(SimulationConfig, values, OPTIONS))
    load_installed(config)
    return config
