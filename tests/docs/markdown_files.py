"""The Markdown files of the repository."""

import os

from cli.commands import PROJECT

# What tools install or make.
NOT_OURS = {"node_modules", "build", "dist"}


def markdown_files() -> list[str]:
    """Return their paths from the repository's root."""
    found = []
    for folder, below, names in os.walk(PROJECT):
        below[:] = [name for name in below if name not in NOT_OURS and not name.startswith(".")]
        found += [f"{folder}/{name}" for name in names if name.endswith(".md")]
    return sorted(os.path.relpath(path, PROJECT) for path in found)
