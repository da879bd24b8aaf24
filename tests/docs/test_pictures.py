"""The pictures in docs/pictures are what ``make pictures`` draws from the stored results of today."""

import importlib

import pytest
from cli.commands import PROJECT
from docs.markdown_files import markdown_files

FOLDER = PROJECT / "docs" / "pictures"

pytest.importorskip("matplotlib", reason="pictures are drawn by matplotlib, in the extra figures")


def test_stored_pictures_are_what_the_command_draws(monkeypatch):
    """Byte for byte: a result that was stored again needs its picture drawn again. Each is small and on a page."""
    monkeypatch.syspath_prepend(PROJECT / "research" / "benchmarks")
    pictures = importlib.import_module("pictures")
    stale = [name for name, text in pictures.pictures().items() if (FOLDER / name).read_text() != text]
    assert stale == [], "run: make pictures"
    pages = "".join((PROJECT / page).read_text() for page in markdown_files())
    for name in pictures.PICTURES:
        assert (FOLDER / f"{name}.svg").stat().st_size < 40_000
        assert f"pictures/{name}.svg)" in pages
