"""The documents do what they say: the README's commands, run as they stand there."""

import shlex
import sys

from cli.commands import PROJECT, environment, foltr
from cli.snippets import blocks, n_recorded, run_python
from docs.markdown_files import markdown_files, snippets
from support.completed_process import completed


def test_the_python_of_the_readme_runs(tmp_path):
    """As it stands, without a server: the click is on disk when it ends."""
    (code,) = blocks("README.md", "python")
    run_python(code, tmp_path)
    assert n_recorded(tmp_path / "clicks.sqlite") == 1


# The other commands have two words.
SINGLE_WORDS = ("demo", "demo-forget", "demo-secure", "doctor", "methods", "reproduce", "simulate", "status", "sweep")
THREE_WORDS = [["api", "token"]]


def test_every_foltr_command_in_the_documents_exists():
    """Each ``foltr …`` in a code block is a command, and each of its flags is in that command's help."""
    helps: dict[tuple[str, ...], str] = {}
    files = [file for file in markdown_files() if not file.startswith("research/results/")]
    for file in files:
        lines = [line.strip() for snippet in snippets(file) for line in snippet.splitlines()]
        for line in (one.partition(" | ")[0] for one in lines if one.startswith("foltr ")):
            words = shlex.split(line, comments=True)[1:]
            n_words = 3 if words[:2] in THREE_WORDS else 2
            command = tuple(words[:1] if words[0] in SINGLE_WORDS else words[:n_words])
            if command not in helps:
                helps[command] = foltr(*command, "--help").stdout
            assert "Usage" in helps[command], line
            for flag in (word for word in words if word.startswith("--")):
                assert flag in helps[command], line


def test_the_generated_parts_of_the_documents_are_up_to_date():
    """Settings, receipts, transitions and columns in the documents are those of the code."""
    done = completed([sys.executable, PROJECT / "docs" / "generate.py", "--check"], env=environment())
    assert done.returncode == 0, done.stderr
