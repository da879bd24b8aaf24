"""The documentation site: every page is in a door, nothing leads nowhere, and no reader is sent to another host."""

import posixpath
import re
import shutil
import subprocess
from html.parser import HTMLParser
from importlib.resources import files

import build_site
import pytest
from build_site import adapted, build, doors, gather
from docs.markdown_files import markdown_files
from docs.sites import built_once, served
from playwright.async_api import async_playwright

CHROMIUM = shutil.which("chromium")
AXE = (files("axe_playwright_python") / "axe.min.js").read_text()
# Of the renderer's own markup, or of tables whose first column needs no name; a browser lets keys scroll what scrolls.
NOT_ASKED = ("landmark-unique", "empty-table-header", "scrollable-region-focusable")
REPORT = re.compile(r"research/results/.+/")


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    return built_once(tmp_path_factory.getbasetemp())


class Page(HTMLParser):
    """What a rendered page has: places to link to, links, and what a browser loads by itself."""

    def __init__(self, html):
        super().__init__()
        self.names, self.links, self.loaded = set(), [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.names |= {given[key] for key in ("id", "name") if given.get(key)}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") not in ("canonical", "prev", "next"):
            self.loaded.append(given["href"])
        elif tag in ("script", "img", "iframe", "source", "audio", "video", "embed") and "src" in given:
            self.loaded.append(given["src"])


@pytest.fixture(scope="session")
def pages(site):
    return {path.relative_to(site).as_posix(): Page(path.read_text()) for path in site.rglob("*.html")}


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


def test_diagrams_become_tables():
    """What renders one as a picture would have to come from another host; nothing is left out."""
    for kind, lines, rows in (
        (
            "stateDiagram-v2",
            ["[*] --> open", "open --> done: quorum", "done --> [*]"],
            ["| (begin) | `open` |  |", "| `open` | `done` | quorum |", "| `done` | (end) |  |"],
        ),
        (
            "sequenceDiagram",
            ["a->>b: ask", "Note over b: think, then decide", "b-->>a: answer: 42"],
            ["| a | b | ask |", "| b |  | think, then decide |", "| b | a | answer: 42 |"],
        ),
    ):
        text = "\n".join(["## A", "```mermaid", kind, *(f"    {line}" for line in lines), "```", ""])
        assert adapted(text, "docs/a.md").splitlines()[3:] == rows
    for text in ("flowchart LR\n", "sequenceDiagram\n    loop each round\n"):
        with pytest.raises(ValueError, match=r"flowchart|loop"):
            adapted(f"```mermaid\n{text}```\n", "docs/a.md")


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
def test_every_link_of_the_site_leads_somewhere(site, pages):
    """To a file that is there, and to a place on its page; without the directories that only a server completes."""
    assert len(pages) > 100
    for name, page in pages.items():
        for link in [*page.links, *page.loaded]:
            path, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", path):
                continue
            target = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
            if name == "404.html":
                target = target.lstrip("/")
            if target in (".", ""):
                target = "index.html"
            assert (site / target).is_file(), (name, link)
            assert not anchor or target not in pages or anchor in pages[target].names, (name, link)


@pytest.mark.nightly
def test_no_page_loads_anything_from_elsewhere(site, pages):
    """No font, no script, no picture; nor is there anything on a page that the theme's script would fetch."""
    for name, page in pages.items():
        assert [url for url in page.loaded if re.match(r"[a-z]+:|//", url)] == [], name
    for path in site.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import )[\"']?(?:https?:)?//[^)]*", path.read_text()) == [], path
    fetching = re.compile(r'class="[^"]*\b(?:mermaid|glightbox|pyodide)\b|data-md-component="source"')
    assert [path for path in site.rglob("*.html") if fetching.search(path.read_text())] == []


@pytest.mark.nightly
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium")
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (360, True)], ids=["desk", "phone"])
async def test_a_browser_opens_the_doors(site, width, dark):
    """Without an error, without a request to anybody else, nothing too wide, no fault by axe; the search finds."""
    with served(site) as address:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            context = await browser.new_context(
                viewport={"width": width, "height": 800},
                color_scheme="dark" if dark else "light",
                reduced_motion="reduce",
            )
            page = await context.new_page()
            said, foreign = [], []
            page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
            page.on("pageerror", lambda error: said.append(str(error)))
            page.on("request", lambda request: None if request.url.startswith(address) else foreign.append(request.url))
            try:
                for name in ("index", "overview", "features", "sdk", "methods", "commands"):
                    await page.goto(f"{address}{name}.html")
                    assert await page.locator("h1").count() == 1
                    wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
                    assert not await page.evaluate(wide), name
                    if name not in ("index", "features"):
                        continue  # the markup is the same, and a long page takes axe minutes
                    await page.evaluate(AXE)
                    rules = {rule: {"enabled": False} for rule in NOT_ASKED}
                    faults = (await page.evaluate("rules => axe.run({rules})", rules))["violations"]
                    assert [(fault["id"], fault["nodes"][0]["html"]) for fault in faults] == [], name
                background = await page.evaluate("getComputedStyle(document.body).backgroundColor")
                assert (sum(map(int, re.findall(r"\d+", background)[:3])) < 200) is dark
                await page.keyboard.press("/")
                await page.keyboard.type("quarantine")
                await page.locator("a[href*='robustness.html']:visible").first.wait_for()
            finally:
                await browser.close()
    assert (said, foreign) == ([], [])
