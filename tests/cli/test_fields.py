"""Options are what the fields of a class say: name, variable, text, default; and what the class refuses is refused."""

from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

import pytest
import typer
from pydantic import BaseModel, Field
from typer.testing import CliRunner

from foltr.cli.federator import RUN_KEYS as FEDERATOR_KEYS
from foltr.cli.fields import Option, read_values, takes_fields
from foltr.cli.fleet.running import RUN_KEYS as CLIENT_KEYS
from foltr.cli.main import app
from foltr.cli.setting_groups import ENV_PREFIX
from foltr.cli.settings import GROUP_OF, GROUPS
from foltr.core.errors import SettingsError


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Plan(BaseModel):
    """What is checked and run at once, with its defaults."""

    size: int = Field(default=3, ge=1, description="How many.")
    weights: tuple[float, ...] = Field(default=(1.0, 2.0), description="One each, with commas.")
    parameters: dict[str, str] = Field(default_factory=dict, description="Parameters.")
    limit: Annotated[int, Field(ge=1)] | None = Field(default=None, description="At most [s]://...")


class Wishes(BaseModel):
    """What may be set in the environment or a file, too."""

    env_prefix: ClassVar[str] = "WISH_"

    least_time_s: Annotated[float, Option(metavar="SECONDS")] = Field(default=1.5, description="No sooner.")
    colour: Annotated[Colour, Option("--paint")] = Field(default=Colour.RED, description="Of the house.")
    way: Literal["up", "down"] = Field(default="up", description="up, or down.")


PLAN_OPTIONS = {"parameters": Option("--set", "NAME=VALUE"), "size": Option(variable="PLAN_SIZE")}


def command_of(model, options=None):
    """An app whose only command prints what it was given, and one own option."""
    made = typer.Typer(rich_markup_mode=None)

    @made.command()
    @takes_fields(model, model.model_fields, options or {})
    def show(loud: bool = False, **values: Any) -> None:
        typer.echo(f"{values} {loud}")

    return made


def run(made, *words: str, **env: str):
    return CliRunner().invoke(made, words, env={"COLUMNS": "160", **env})


def test_an_option_that_was_not_said_is_left_to_the_class():
    """Settings may come from elsewhere, which they read themselves; of a record without that it is the default."""
    assert run(command_of(Wishes)).output == "{'least_time_s': None, 'colour': None, 'way': None} False\n"
    said = run(command_of(Wishes), "--least-time", "2", "--loud", WISH_WAY="down").output
    assert said == "{'least_time_s': 2.0, 'colour': None, 'way': None} True\n"
    plain = run(command_of(Plan)).output
    assert plain == "{'size': 3, 'weights': '1.0,2.0', 'parameters': None, 'limit': None} False\n"


def test_values_are_read_as_their_fields_take_them():
    """Commas apart, assignments together; whatever is wrong in them names its option."""
    values = {"size": 4, "weights": "3, 4", "parameters": ["a=1", "b = x"], "limit": None}
    read = read_values(Plan, values, PLAN_OPTIONS)
    assert read == {"size": 4, "weights": ("3", "4"), "parameters": {"a": "1", "b": "x"}}
    with pytest.raises(SettingsError, match=r"^--set: 'a' is not name=value$"):
        read_values(Plan, {"parameters": ["a"]}, PLAN_OPTIONS)


def test_help_shows_the_default_and_the_variable_of_every_setting():
    """The default of every one that has one."""
    for command, fields in ((("federator", "run"), FEDERATOR_KEYS), (("client", "run"), CLIENT_KEYS)):
        text = "".join(run(app, *command, "--help", COLUMNS="4000").output.split())
        for name in fields:
            field = GROUPS[GROUP_OF[name]].model_fields[name]
            if isinstance(field.default, str | int | float) and not isinstance(field.default, bool):
                assert f"default:({field.default})]" in text or f"default:{field.default}]" in text, name
            if not name.endswith("_parameters"):
                variable = f"[envvar:{ENV_PREFIX}{name.upper()}"
                assert f"{variable}]" in text or f"{variable};" in text, command
            assert field.description, command
