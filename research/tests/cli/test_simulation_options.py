"""The simulator's options are what the fields of a configuration say."""

import pytest
from typer.testing import CliRunner

from foltr.cli.main import app
from foltr_research.cli import simulation_options
from foltr_research.simulation.config import SimulationConfig


@pytest.mark.parametrize(
    ("command", "fields"), [("simulate", SimulationConfig.model_fields), ("sweep", simulation_options.FIELDS)]
)
def test_help_shows_the_default_of_every_field(command, fields):
    """Of every one that has a default."""
    text = "".join(CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "4000"}).output.split())
    for name in fields:
        field = SimulationConfig.model_fields[name]
        if isinstance(field.default, str | int | float) and not isinstance(field.default, bool):
            assert f"default:({field.default})]" in text or f"default:{field.default}]" in text, name
        assert field.description
