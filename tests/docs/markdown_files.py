"""The Markdown files of the repository, and what could be run of them."""

import os
import re

from cli.commands import PROJECT

# What tools install or make.
NOT_OURS = {"node_modules", "build", "dist"}
# Programs of commands: what begins with none of them is a drawing, a formula or what a program says.
PROGRAMS = ("foltr", "make", "docker", "mosquitto", "python", "node", "psql", "sqlite3", "tar", "curl", "npm")
PROGRAMS += ("promtool",)


def markdown_files() -> list[str]:
    """Return their paths from the repository's root."""
    found = []
    for folder, below, names in os.walk(PROJECT):
        below[:] = [name for name in below if name not in NOT_OURS and not name.startswith(".")]
        found += [f"{folder}/{name}" for name in names if name.endswith(".md")]
    return sorted(os.path.relpath(path, PROJECT) for path in found)


def snippets(file: str) -> list[str]:
    """Return what could be run of a document: blocks in a language, blocks of commands, and indented commands."""
    text = (PROJECT / file).read_text()
    found = [
        block
        for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        if language not in ("", "mermaid", "text") or block.startswith(tuple(f"{program} " for program in PROGRAMS))
    ]
    outside = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    indented = re.findall(r"(?<=\n\n)(?: {4}\S.*\n)+", outside)
    return found + [block.lstrip() for block in indented if block.lstrip().startswith(("foltr ", "import ", "from "))]
