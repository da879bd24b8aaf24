"""Options shared by several commands. Each names its environment variable in ``--help``.

Their defaults are found by the commands: for example, an operator's broker is the one of the folder.
"""

from pathlib import Path
from typing import Annotated

from foltr.cli.fields import option, typer_option
from foltr.cli.settings import Settings

Broker = Annotated[str | None, typer_option(Settings, "broker_url")]
Credentials = Annotated[str | None, typer_option(Settings, "credentials")]
Db = Annotated[str | None, typer_option(Settings, "db_url")]
Keys = Annotated[str | None, typer_option(Settings, "keys")]
Federation = Annotated[str | None, typer_option(Settings, "federation")]
GiveUpAfter = Annotated[float | None, typer_option(Settings, "give_up_after_s")]
Limit = Annotated[
    int | None,
    option("Show at most this many; default: what fits the screen, 1000 in JSON", "--limit", min=1, max=1_000_000),
]
All = Annotated[bool, option("Show every line, even if they do not fit the screen", "--all")]
Json = Annotated[bool, option("Print JSON instead of a table", "--json")]
JsonFile = Annotated[Path | None, option("Write the results to this file as JSON", "--json")]


OperatorFolder = Annotated[
    Path, option("The operator's folder: the enrolment key and what was signed with it", "--operator")
]
