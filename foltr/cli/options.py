"""Options that several commands share; each names its environment variable in ``--help``.

What they are without, the commands say or find out: an operator's broker is that of the folder, say.
"""

from pathlib import Path
from typing import Annotated

import typer

from foltr.cli.fields import typer_option
from foltr.cli.settings import Settings

Broker = Annotated[str | None, typer_option(Settings, "broker_url")]
Credentials = Annotated[str | None, typer_option(Settings, "credentials")]
Db = Annotated[str | None, typer_option(Settings, "db_url")]
Keys = Annotated[str | None, typer_option(Settings, "keys")]
Federation = Annotated[str | None, typer_option(Settings, "federation")]
GiveUpAfter = Annotated[float | None, typer_option(Settings, "give_up_after_s")]
Limit = Annotated[
    int | None,
    typer.Option("--limit", min=1, max=1_000_000, help="At most so many; default: what fits the screen, of JSON 1000"),
]
All = Annotated[bool, typer.Option("--all", help="Every line, also where they do not fit the screen")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the results to this file as JSON")]


OperatorFolder = Annotated[
    Path, typer.Option("--operator", help="The operator's folder: the enrolment key and what was signed with it")
]
