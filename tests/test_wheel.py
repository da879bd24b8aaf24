"""What is installed: one package, `foltr`, the same however it was built, beside modules of an application."""

import hashlib
import json
import os
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from support.completed_process import completed

PROJECT = Path(__file__).parents[1]
UPGRADE = """
import asyncio
import foltr.storage
from foltr.storage.database import Database
from foltr.storage.migrate import current, head, upgrade

async def main():
    async with await Database.connect("sqlite:///wheel.sqlite") as db:
        await upgrade(db)
        assert await current(db) == head()
        print(foltr.storage.__file__)

asyncio.run(main())
"""
NAMES = ("api", "broker", "core", "edge_client", "federator", "helper", "migrations", "operations", "storage")
APPLICATION = f"""
{"; ".join(f"import {name}" for name in NAMES)}
from foltr import EdgeClient, SearchRanker
assert EdgeClient.__module__ == "foltr.edge_client.client" and SearchRanker
assert all(module.MINE for module in ({", ".join(NAMES)}))
"""


def run(*command: str | Path, folder: Path, **environment: str) -> str:
    """The standard output of a command that must end well."""
    done = completed(command, cwd=folder, env=os.environ | environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def built(kind: str, source: Path, folder: Path) -> Path:
    """The one file that hatchling builds of a checkout, without isolation or network."""
    run(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", folder, folder=source)
    (file,) = folder.iterdir()
    return file


def contents(wheel: Path) -> dict[str, str]:
    """The digest of each file in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("wheel", PROJECT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked wheel, away from the checkout."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)  # noqa: S202 (built above)
    return folder


def test_it_holds_one_package_with_every_migration(wheel: Path) -> None:
    """Neither tests nor research, nor what Python has left behind; and its license, with the name for tools."""
    names = set(contents(wheel))
    assert {name.split("/")[0] for name in names} == {"foltr", "foltr-0.1.0.dist-info"}
    migrations = PROJECT / "migrations"
    wanted = {f"foltr/migrations/{path.relative_to(migrations)}" for path in migrations.rglob("*.py")}
    assert {name for name in names if name.startswith("foltr/migrations/")} == wanted
    assert not [name for name in names if "__pycache__" in name or "/tests/" in name]
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read("foltr-0.1.0.dist-info/licenses/LICENSE").decode()
        assert "License-Expression: Apache-2.0\n" in archive.read("foltr-0.1.0.dist-info/METADATA").decode()
    assert "Version 2.0, January 2004" in text
    browser = PROJECT / "clients/browser"  # the package for browsers has the same
    assert (browser / "LICENSE").read_text() == text
    assert json.loads((browser / "package.json").read_text())["license"] == "Apache-2.0"


def test_it_is_the_same_from_a_source_distribution(wheel: Path, tmp_path: Path) -> None:
    """Which holds what the links of a checkout lead to."""
    with tarfile.open(built("sdist", PROJECT, tmp_path / "sdist")) as archive:
        archive.extractall(tmp_path, filter="data")
    assert contents(built("wheel", tmp_path / "foltr-0.1.0", tmp_path / "wheel")) == contents(wheel)


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("git") is None or not (PROJECT / ".git").exists(), reason="no Git checkout")
def test_it_is_the_same_from_a_repository(wheel: Path, tmp_path: Path) -> None:
    """As `pip install git+...` builds it, of what is committed. Edited files differ, so only names are compared."""
    (tmp_path / "checkout").mkdir()
    run("git", "archive", "--output", tmp_path / "head.tar", "HEAD", folder=PROJECT)
    with tarfile.open(tmp_path / "head.tar") as archive:
        archive.extractall(tmp_path / "checkout", filter="data")
    names = set(contents(built("wheel", tmp_path / "checkout", tmp_path / "wheel")))
    tracked = run("git", "ls-tree", "-r", "--name-only", "HEAD", "foltr/cli", "core", folder=PROJECT).split()
    assert {path if path.startswith("foltr/") else f"foltr/{path}" for path in tracked} <= names
    assert {name.split("/")[1] for name in names} == {name.split("/")[1] for name in contents(wheel)}


def test_it_upgrades_a_database(site: Path, tmp_path: Path) -> None:
    """The migrations are found where they are installed."""
    assert str(site) in run(sys.executable, "-c", UPGRADE, folder=tmp_path, PYTHONPATH=str(site))


def test_an_application_has_modules_of_the_same_names(site: Path, tmp_path: Path) -> None:
    """What the folders of a checkout are called is free for others."""
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text("MINE = True\n")
    path = os.pathsep.join([str(tmp_path), str(site)])
    run(sys.executable, "-P", "-c", APPLICATION, folder=tmp_path, PYTHONPATH=path)
