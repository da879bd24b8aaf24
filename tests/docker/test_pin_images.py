"""`make pin-images`: tags become digests, by Docker or by podman, in all files or in none."""

import os
import runpy
import sys

import pytest
from cli.commands import PROJECT
from support.completed_process import completed

SCRIPT = PROJECT / "docker/pin_images.py"
FILES, images_of, pinned = (runpy.run_path(str(SCRIPT))[name] for name in ("FILES", "images_of", "pinned"))
OLD, NEW, OF_THIS_MACHINE = (f"sha256:{digit * 64}" for digit in "123")
# Each program answers as the real one does, and knows no image called `gone`.
DOCKER = f"""#!/bin/sh
test "$1" = buildx || exit 1
test "$2" = imagetools || exit 0
case "$6" in *gone*) echo "$6: not found" >&2; exit 1;; esac
echo {NEW}
"""
PODMAN = f"""#!/bin/sh
case "$*" in *gone*) echo "gone: not found" >&2; exit 1;; esac
test "$1" = image || exit 0
echo '[{{"Digest": "{OF_THIS_MACHINE}", "RepoDigests": ["a@{OF_THIS_MACHINE}", "a@{NEW}"]}}]'
"""


@pytest.fixture(params=["docker", "podman"])
def run(request, tmp_path):
    """Run a copy of the script on a copy of its files, with one of the two programs, after a change of .env."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / request.param
    program.write_text({"docker": DOCKER, "podman": PODMAN}[request.param])
    program.chmod(0o755)
    for file in (SCRIPT, *FILES):
        (tmp_path / file.name).write_text(file.read_text())

    def pin(add=""):
        path = tmp_path / ".env"
        path.write_text(path.read_text() + add)
        return completed([sys.executable, tmp_path / SCRIPT.name], env=os.environ | {"PATH": f"{tmp_path}/bin"})

    return pin


def test_every_tag_is_pinned_and_nothing_else_changes(run, tmp_path):
    """Also one that had no digest."""
    assert run("FOLTR_NEW_IMAGE=new:1\n").returncode == 0
    texts = {file.name: (tmp_path / file.name).read_text() for file in FILES}
    assert texts.pop(".env") == pinned(FILES[0].read_text() + "FOLTR_NEW_IMAGE=new:1\n", lambda _: NEW)
    for name, text in texts.items():
        assert text == pinned((PROJECT / "docker" / name).read_text(), lambda _: NEW)


def test_nothing_is_written_if_one_is_not_found(run, tmp_path):
    done = run("FOLTR_GONE_IMAGE=gone:1\n")
    assert done.returncode != 0
    assert "not found" in done.stderr
    assert NEW not in "".join((tmp_path / file.name).read_text() for file in FILES)


def test_a_digest_is_replaced_and_a_version_is_none():
    text = f"# a comment\nFOLTR_VERSION=0.1.0\nFOLTR_A_IMAGE=a/b:1.2@{OLD}\nARG PYTHON=python:3\nFROM ${{PYTHON}}\n"
    assert images_of(text) == {"FOLTR_A_IMAGE": "a/b:1.2", "PYTHON": "python:3"}
    assert pinned(text, lambda image: f"of-{image}") == (
        "# a comment\nFOLTR_VERSION=0.1.0\nFOLTR_A_IMAGE=a/b:1.2@of-a/b:1.2\nARG PYTHON=python:3@of-python:3\n"
        "FROM ${PYTHON}\n"
    )
