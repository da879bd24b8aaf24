"""The pictures in docs/pictures are what ``make pictures`` draws from the stored results of today."""

import importlib

import pytest
from cli.commands import PROJECT
from docs.markdown_files import markdown_files

FOLDER = PROJECT / "docs" / "pictures"

pytest.importorskip("matplotlib", reason="pictures are drawn by matplotlib, in the extra figures")


@pytest.fixture
def pictures(monkeypatch):
    """The module that draws them; the benchmarks are programs, not a package."""
    monkeypatch.syspath_prepend(PROJECT / "research" / "benchmarks")
    return importlib.import_module("pictures")


def test_stored_pictures_are_what_the_command_draws(pictures):
    """Byte for byte: a result that was stored again needs its picture drawn again. Each is small and on a page."""
    stale = [name for name, text in pictures.pictures().items() if (FOLDER / name).read_text() != text]
    assert stale == [], "run: make pictures"
    pages = "".join((PROJECT / page).read_text() for page in markdown_files())
    for name in pictures.PICTURES:
        assert (FOLDER / f"{name}.svg").stat().st_size < 40_000
        assert f"pictures/{name}.svg)" in pages


def test_tables_and_cells_are_read(pictures, tmp_path):
    """Cells with their spread and either minus; a table that is gone is named."""
    assert pictures.number("0.721 ± 0.002") == (0.721, 0.002)
    assert pictures.number("\N{MINUS SIGN}0.259 ± 0.022") == (-0.259, 0.022)
    assert pictures.number("+0.404") == (0.404, 0)
    (tmp_path / "report.md").write_text("\n## Final\n\nText.\n\n| a | b |\n|---|---|\n| x | 1 |\n\n| c |\n")
    assert pictures.table(tmp_path / "report.md", "Final") == [{"a": "x", "b": "1"}]
    with pytest.raises(ValueError, match="no table below 'First'"):
        pictures.table(tmp_path / "report.md", "First")
