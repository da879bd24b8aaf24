"""The code in the project's documents, and how it is run: as it stands there, in a process of its own."""

import re
import shlex
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from cli.commands import PROJECT, foltr_process


def blocks(file: str, language: str) -> list[str]:
    """Return the blocks of a language in a document, or of ``docs/page.md#anchor`` those below that heading."""
    path, _, anchor = file.partition("#")
    text = (PROJECT / path).read_text()
    section = _section(text, anchor) if anchor else text
    return re.findall(rf"```{language}\n(.*?)```", section, flags=re.DOTALL)


def _section(text: str, anchor: str) -> str:
    """Return what is below a heading, its subsections too. One ``#`` in front is a comment of a shell."""
    headings = list(re.finditer(r"^(##+) (.+)$", text, re.MULTILINE))
    (found,) = [one for one in headings if re.sub(r"[^\w\- ]", "", one[2].lower()).replace(" ", "-") == anchor]
    after = (one.start() for one in headings if one.start() > found.start() and len(one[1]) <= len(found[1]))
    return text[found.end() : next(after, None)]


def commands_of(file: str, *beginning: str) -> list[list[str]]:
    """Return the commands of a document's shell blocks that begin with these words, each as its words."""
    lines = "\n".join(blocks(file, "sh")).splitlines()
    words = [shlex.split(line, comments=True) for line in lines if line.strip() and "$(" not in line]
    return [command for command in words if command[: len(beginning)] == list(beginning)]


def with_variables(line: str) -> tuple[list[str], dict[str, str]]:
    """Return a command's words, and the variables set in front of them."""
    words, variables = shlex.split(line), {}
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        variables[name] = value
    return words, variables


def run_python(code: str, folder: Path) -> str:
    """Run a block of Python in a folder; return what it prints. It fails where the block does."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as program:
        program.write(code)
        program.flush()
        done = foltr_process(program=Path(program.name), cwd=folder, code=0)
    return done.stdout


def n_recorded(store: Path) -> int:
    """Return how many lists with their clicks are in a device's store."""
    with closing(sqlite3.connect(store)) as database:
        return int(database.execute("SELECT count(*) FROM interactions").fetchone()[0])
