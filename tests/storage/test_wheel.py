"""The built wheel, not the checkout: it carries the migrations and finds them."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UPGRADE = """
import asyncio, sys
import foltr.storage
from foltr.storage.database import Database
from foltr.storage.migrate import current, head, upgrade

async def main():
    async with await Database.connect("sqlite:///wheel.sqlite") as db:
        await upgrade(db)
        assert await current(db) == head()
        print(storage.__file__, head())

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as hatchling builds it here, without isolation or network."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=120,
    )
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_carries_every_migration(wheel: Path) -> None:
    """Each file of migrations/ is in the wheel, under storage/_migrations, and no leftovers are."""
    migrations = ROOT / "migrations"
    wanted = {f"storage/_migrations/{path.relative_to(migrations)}" for path in migrations.rglob("*.py")}
    names = zipfile.ZipFile(wheel).namelist()
    assert {name for name in names if name.startswith("storage/_migrations/")} == wanted
    assert not [name for name in names if "__pycache__" in name or name.startswith("tests")]


def test_an_installed_wheel_upgrades_a_database(wheel: Path, tmp_path: Path) -> None:
    """The unpacked wheel, away from the checkout, finds its migrations."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    done = subprocess.run(
        [sys.executable, "-c", UPGRADE],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "site")},
        check=True,
        capture_output=True,
        timeout=60,
    )
    assert str(tmp_path / "site") in done.stdout.decode()
