"""The documentation site: every page is in a door, links fit it, and no reader is sent to another host."""

import re
import subprocess
from html.parser import HTMLParser

import build_site
import pytest
from build_site import adapted, build, doors, gather
from docs.markdown_files import markdown_files

REPORT = re.compile(r"research/results/.+/")


class Page(HTMLParser):
    """What a browser loads by itself for a rendered page."""

    def __init__(self, html):
        super().__init__()
        self.loaded = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag == "link" and given.get("rel") not in ("canonical", "prev", "next"):
            self.loaded.append(given["href"])
        elif tag in ("script", "img", "iframe", "source", "audio", "video", "embed") and "src" in given:
            self.loaded.append(given["src"])


def test_every_page_is_in_one_door(tmp_path):
    """A page that no door has is found by nobody: name it in zensical.toml. Reports of results are linked."""
    listed = [source for sources in doors().values() for source in sources]
    assert sorted(listed) == sorted(set(listed))
    reports = {file for file in markdown_files() if REPORT.match(file)}
    assert set(markdown_files()) - reports == set(listed)
    assert reports <= set(gather(tmp_path / "pages"))


def test_links_lead_from_the_new_place():
    """Those to files do, with their anchors; what is code, or elsewhere, or on the same page, stays."""
    same = "[b](errors.md) [c](#x) [d](https://a.example) `[e](../f.md)` ![g](results/a/b.png)\n"
    assert adapted(f"## A\n[a](../README.md#by-hand) {same}", "docs/sdk.md") == f"## A\n[a](overview.md#by-hand) {same}"
    assert adapted("## A\n[a](../docs/sdk.md)\n", "docker/README.md") == "## A\n[a](../sdk.md)\n"
    assert adapted("## A\n[a](docs/sdk.md)\n", "README.md") == "## A\n[a](sdk.md)\n"


def small_project(folder, monkeypatch, text):
    """A project with one page."""
    (folder / "docs").mkdir()
    (folder / "docs/README.md").write_text(text)
    (folder / "zensical.toml").write_text(
        '[project]\nsite_name = "x"\ndocs_dir = "pages"\nnav = [{ "Start" = "index.md" }]\nextra_css = []\n'
    )
    monkeypatch.setattr(build_site, "ROOT", folder)
    monkeypatch.setattr(build_site, "CONFIGURATION", folder / "zensical.toml")


def test_a_link_to_no_file_ends_the_build(tmp_path, monkeypatch):
    """And it says which page has it."""
    small_project(tmp_path, monkeypatch, "# A\n\n[b](b.md)\n")
    with pytest.raises(FileNotFoundError, match=r"docs/README\.md leads to docs/b\.md"):
        build(tmp_path / "build")


@pytest.mark.nightly
def test_a_link_to_no_heading_ends_the_build(tmp_path, monkeypatch):
    """The renderer is strict."""
    small_project(tmp_path, monkeypatch, "# A\n\n[b](#b)\n")
    with pytest.raises(subprocess.CalledProcessError):
        build(tmp_path / "build")


@pytest.mark.nightly
def test_no_page_loads_anything_from_elsewhere(tmp_path):
    """No font, no script, no picture; nor is there anything on a page that the theme's script would fetch."""
    build(tmp_path)
    pages = {path: path.read_text() for path in (tmp_path / "site").rglob("*.html")}
    assert len(pages) > 100
    fetching = re.compile(r'class="[^"]*\b(?:mermaid|glightbox|pyodide)\b|data-md-component="source"')
    for path, text in pages.items():
        assert [url for url in Page(text).loaded if re.match(r"[a-z]+:|//", url)] == [], path
        assert fetching.search(text) is None, path
    for path in tmp_path.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import )[\"']?(?:https?:)?//[^)]*", path.read_text()) == [], path
