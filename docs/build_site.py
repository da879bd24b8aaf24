"""Build the documentation site: gather the pages that are in a door and what they link to, and have Zensical render it.

The pages are the Markdown files of this repository as they stand. Gathering moves ``docs/`` to the top, fills the
reference pages, turns diagrams into tables (a renderer for them would be fetched from elsewhere), and adapts links to
where things are now. What no page of a door links to is left out.
"""

import argparse
import posixpath
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from filled import fill
from reference_pages import commands_reference, messages_reference

ROOT = Path(__file__).parent.parent
CONFIGURATION = ROOT / "zensical.toml"
# Pages with another name on the site: its first page, and the repository's README.
PLACES = {"docs/README.md": "index.md", "README.md": "overview.md"}
REFERENCE: dict[str, tuple[str, Callable[[], str]]] = {
    "docs/commands.md": ("commands", commands_reference),
    "docs/messages.md": ("messages", messages_reference),
}
# An inline Markdown link or image; ours are all inline.
LINK = re.compile(r"(?<=\]\()([^()\s]+)(?=\))")
CODE = re.compile(r"^```.*?^```$|(?<!`)`[^`\n]+`(?!`)", re.DOTALL | re.MULTILINE)


def doors() -> dict[str, list[str]]:
    """Return the files of each tab of the site's navigation, as paths from the repository's root."""
    sources = {place: source for source, place in PLACES.items()}
    found: dict[str, list[str]] = {}
    for entry in _configuration()["nav"]:
        ((name, below),) = entry.items()
        places = [below] if isinstance(below, str) else list(_files_of(below))
        found[name] = [sources.get(place) or _source(place) for place in places]
    return found


def _configuration() -> dict[str, Any]:
    return dict(tomllib.loads(CONFIGURATION.read_text())["project"])


def _files_of(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        for value in [entry] if isinstance(entry, str) else entry.values():
            yield from [value] if isinstance(value, str) else _files_of(value)


def _source(place: str) -> str:
    return next((path for path in (f"docs/{place}", place) if (ROOT / path).exists()), place)


def place_of(source: str) -> str:
    """Return a repository file's place on the site, before rendering."""
    return PLACES.get(source) or source.removeprefix("docs/")


def links_of(text: str, source: str) -> list[str]:
    """Return the files of the repository that a page links to, as paths from its root."""
    found = []
    for link in LINK.findall(CODE.sub("", text)):
        path = link.partition("#")[0]
        if path and not _is_elsewhere(link):
            found.append(posixpath.normpath(posixpath.join(posixpath.dirname(source), path)))
    return found


def _is_elsewhere(link: str) -> bool:
    return re.match(r"[a-z]+:", link) is not None


def adapted(text: str, source: str) -> str:
    """Return a page for its place on the site: its links lead from there, its diagrams are tables.

    A page without sections hides the list of them beside it, which leaves its tables more room.
    """
    text = _with_lists(text)
    hidden = "" if re.search("^## ", text, re.MULTILINE) else "---\nhide:\n  - toc\n---\n\n"
    here = posixpath.dirname(place_of(source)) or "."

    def moved(match: re.Match[str]) -> str:
        path, sign, anchor = match[1].partition("#")
        if not path or _is_elsewhere(match[1]):
            return match[1]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        return posixpath.relpath(place_of(target), here) + sign + anchor

    pieces, end = [], 0
    for code in CODE.finditer(text):
        pieces += [LINK.sub(moved, text[end : code.start()]), _shown(code[0])]
        end = code.end()
    return "".join([hidden, *pieces, LINK.sub(moved, text[end:])])


def _with_lists(text: str) -> str:
    """Rewrite lists for the renderer, which is stricter than GitHub.

    It needs a blank line before a list, and an indent of four for the contents of an item.
    """
    lines: list[str] = []
    in_code = in_list = is_list_block = False
    before = ""
    for line in text.splitlines():
        if line.startswith("```"):
            in_code = not in_code
        elif not in_code:
            marker = re.match(r"( *)(?:[-*]|\d+\.) ", line)
            if not line.strip():
                is_list_block = False
            elif marker and not marker[1]:
                if before and not is_list_block:
                    lines.append("")
                in_list = is_list_block = True
            elif in_list and re.match(r" {1,3}\S", line):
                if marker or not before:
                    line = f"    {line.lstrip()}"
            elif not line.startswith(" ") and (not before or line[0] in "|#"):
                in_list = False
        lines.append(line)
        before = line.strip()
    return "\n".join(lines) + "\n"


def _shown(code: str) -> str:
    if not code.startswith("```mermaid"):
        return code
    kind, *lines = code.splitlines()[1:-1]
    match kind:
        case "stateDiagram-v2":
            return "\n".join(["| from | to | by |", "|---|---|---|", *map(_transition, lines)])
        case "sequenceDiagram":
            return "\n".join(["| from | to | what |", "|---|---|---|", *map(_step, lines)])
    raise ValueError(f"only diagrams of states and sequences become tables, not {kind}")


def _transition(line: str) -> str:
    state, _, rest = line.strip().partition(" --> ")
    following, _, event = rest.partition(": ")
    ends = [f"`{end}`" if end != "[*]" else word for end, word in ((state, "(begin)"), (following, "(end)"))]
    return f"| {ends[0]} | {ends[1]} | {event} |"


def _step(line: str) -> str:
    """A message, or what one of those in the diagram does by itself."""
    found = re.fullmatch(r" *(?:Note over (\w+)|(\w+)--?>>(\w+)): (.+)", line)
    if found is None:
        raise ValueError(f"a line of a sequence is a message or a note over one name, not {line.strip()!r}")
    alone, sender, receiver, what = found.groups()
    return f"| {alone or sender} | {receiver or ''} | {what} |"


def gather(folder: Path) -> list[str]:
    """Write the pages of the navigation, and all pages they link to, into a folder. Return their names.

    Raises:
        FileNotFoundError: a page links to a missing file; the message names both.
    """
    named = [*(source for files in doors().values() for source in files), *map(_source, _configuration()["extra_css"])]
    left = [(source, CONFIGURATION.name) for source in named]
    gathered: dict[str, str] = {}
    while left:
        source, named_by = left.pop()
        if not (ROOT / source).is_file():
            raise FileNotFoundError(f"{named_by} leads to {source}, which is no file")
        place = place_of(source)
        if source in gathered:
            continue
        if place in gathered.values():
            raise ValueError(f"{source} would take the place of another file: {place}")
        gathered[source] = place
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if PurePosixPath(source).suffix != ".md":
            shutil.copyfile(ROOT / source, target)
            continue
        text = (ROOT / source).read_text()
        if source in REFERENCE:
            name, generated = REFERENCE[source]
            text = fill(text, name, generated())
        target.write_text(adapted(text, source))
        left += [(link, source) for link in links_of(text, source)]
    return sorted(gathered)


def build(folder: Path) -> None:
    """Gather the pages into ``folder/pages`` and render them into ``folder/site``. A warning counts as an error.

    Raises:
        subprocess.CalledProcessError: the renderer reported a warning or an error.
    """
    shutil.rmtree(folder, ignore_errors=True)
    gather(folder / "pages")
    shutil.copyfile(CONFIGURATION, folder / CONFIGURATION.name)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "-f", str(folder / CONFIGURATION.name)]
    subprocess.run(command, check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "build", help="what is in it is removed first")
    folder = parser.parse_args().folder.resolve()
    try:
        build(folder)
    except subprocess.CalledProcessError as failed:
        return failed.returncode
    sys.stdout.write(f"The documentation site: {folder / 'site' / 'index.html'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
