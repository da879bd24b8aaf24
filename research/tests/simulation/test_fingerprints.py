"""What tells that a kept result is of other data or of another program."""

import os

import pytest

import foltr.core
import foltr_research
from foltr.core.version import __version__
from foltr_research.simulation.config import GENERATED_DATA
from foltr_research.simulation.fingerprints import data_fingerprint, program_fingerprint


def test_a_folder_is_told_by_place_and_files(tmp_path, monkeypatch):
    """Another file, size, time or place is other data; the same folder by another path is the same."""
    (tmp_path / "Fold1").mkdir()
    (tmp_path / "Fold1" / "train.txt").write_text("1")
    found = [data_fingerprint(str(tmp_path))]
    assert data_fingerprint(str(tmp_path / "Fold1" / "..")) == found[0]
    (tmp_path / "rows.csv").write_text("results are no data")
    assert data_fingerprint(str(tmp_path)) == found[0]
    (tmp_path / "Fold1" / "train.txt").write_text("12")
    found.append(data_fingerprint(str(tmp_path)))
    os.utime(tmp_path / "Fold1" / "train.txt", ns=(1, 1))
    found.append(data_fingerprint(str(tmp_path)))
    (tmp_path / "test.txt").write_text("")
    found.append(data_fingerprint(str(tmp_path)))
    monkeypatch.chdir(tmp_path)
    found.extend((data_fingerprint("Fold1"), data_fingerprint("nowhere")))
    assert len(set(found)) == len(found)
    assert data_fingerprint(str(tmp_path / "nowhere")) == data_fingerprint("nowhere")


@pytest.mark.parametrize("name", [*GENERATED_DATA, "mslr-sample"])
def test_what_the_program_makes_has_no_files(name):
    """Nothing is looked up, not even a folder of that name."""
    assert data_fingerprint(name) == ""


def test_the_program_is_its_sources(tmp_path, monkeypatch):
    """A changed or renamed file of the numerics tells, one of the command line or a reproduction does not."""
    for name in (
        "core/__init__.py",
        "core/pdgd.py",
        "wing/__init__.py",
        "wing/cli/main.py",
        "wing/reproductions/claims.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("one = 1")
    monkeypatch.setattr(foltr.core, "__file__", str(tmp_path / "core" / "__init__.py"))
    monkeypatch.setattr(foltr_research, "__file__", str(tmp_path / "wing" / "__init__.py"))
    fingerprint = program_fingerprint.__wrapped__
    first = fingerprint()
    assert first.startswith(f"{__version__} ")
    for name in ("wing/cli/main.py", "wing/reproductions/claims.py"):
        (tmp_path / name).write_text("one = 2")
    assert fingerprint() == first
    (tmp_path / "core/pdgd.py").write_text("one = 2")
    second = fingerprint()
    (tmp_path / "core/pdgd.py").rename(tmp_path / "core/ips.py")
    assert len({first, second, fingerprint()}) == 3
