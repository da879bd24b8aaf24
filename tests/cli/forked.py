"""Commands that import all of the project themselves, each forked from a process that has only the packages."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from cli.commands import environment
from support.completed_process import completed

# Of the base install; the first lines of a program may forbid or add others.
_PACKAGES = ("aiomqtt", "cryptography.x509", "msgpack", "numpy.random", "paho.mqtt.client", "pydantic", "rich.console")
_PACKAGES += ("structlog", "typer")

_PROGRAM = """
import importlib, json, os, sys

requests = sys.stdin.readlines()
{first}
for package in {packages}:
    importlib.import_module(package)
for request in requests:
    words, folder, printed, complained = json.loads(request)
    if (child := os.fork()) == 0:
        os.chdir(folder)
        for descriptor, path in ((0, os.devnull), (1, printed), (2, complained)):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), descriptor)
        sys.argv = ["foltr", *words]
        from foltr.cli.main import main
        main()
        sys.exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def foltr_forked(
    commands: Sequence[tuple[Sequence[str], Path]], output: Path, *, first: str = ""
) -> "list[subprocess.CompletedProcess[str]]":
    """Run commands, words and a folder each, after these lines of Python; return how each ended and its output."""
    files = [(output / f"{i}.out", output / f"{i}.err") for i in range(len(commands))]
    requests = [
        json.dumps([list(words), str(folder), str(printed), str(complained)])
        for (words, folder), (printed, complained) in zip(commands, files, strict=True)
    ]
    done = completed(
        [sys.executable, "-c", _PROGRAM.format(first=first, packages=_PACKAGES)],
        input="\n".join(requests),
        env=environment(),
        check=True,
    )
    codes = [int(line) for line in done.stdout.split()]
    assert len(codes) == len(commands), done.stderr
    return [
        subprocess.CompletedProcess(list(words), code, printed.read_text(), complained.read_text())
        for (words, _), code, (printed, complained) in zip(commands, codes, files, strict=True)
    ]
