"""The documents do what they say: the README's commands, run as they stand there."""

import sys

from cli.commands import PROJECT, environment
from cli.snippets import blocks, n_recorded, run_python
from support.completed_process import completed


def test_the_python_of_the_readme_runs(tmp_path):
    """As it stands, without a server: the click is on disk when it ends."""
    (code,) = blocks("README.md", "python")
    run_python(code, tmp_path)
    assert n_recorded(tmp_path / "clicks.sqlite") == 1


def test_the_generated_parts_of_the_documents_are_up_to_date():
    """Settings, receipts, transitions and columns in the documents are those of the code."""
    done = completed([sys.executable, PROJECT / "docs" / "generate.py", "--check"], env=environment())
    assert done.returncode == 0, done.stderr
