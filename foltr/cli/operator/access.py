"""The option that names an operator's folder."""

from pathlib import Path
from typing import Annotated

import typer

OperatorFolder = Annotated[
    Path, typer.Option("--operator", help="The operator's folder: the enrolment key and what was signed with it")
]
