"""The page a developer reads first names files, functions and rooms that are there."""

import re
import tomllib
from pathlib import Path

from foltr.core.version import __version__

PROJECT = Path(__file__).parents[1]
PAGE = (PROJECT / "docs/architecture.md").read_text()


def rows(block: str) -> list[list[str]]:
    """The cells of a table between its markers, without the head."""
    table = PAGE.split(f"<!-- {block}:begin -->")[1].split(f"<!-- {block}:end -->")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().splitlines()[2:]]


def quoted(text: str) -> list[str]:
    return re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)


def test_every_file_that_a_document_names_is_there():
    """Whether as a link, a command or in a sentence; of the page itself all paths, also of folders."""
    paths = {name for name in quoted(PAGE) if "/" in name}
    assert len(paths) > 15
    assert {path for path in paths if not (PROJECT / path).exists()} == set()
    rooms = "core|foltr|broker|federator|edge_client|helper|storage|tests|research|migrations"
    named = re.compile(rf"(?<![\w/])(?:{rooms})/[\w/]+\.py\b")
    for document in [PROJECT / "README.md", *(PROJECT / "docs").glob("*.md")]:
        missing = {path for path in named.findall(document.read_text()) if not (PROJECT / path).exists()}
        assert missing == set(), document


def test_the_rooms_are_those_that_the_import_contract_puts_above_each_other():
    """In the same order; the contract itself sees to it that none is left out."""
    contracts = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract.get("containers") == ["foltr.core"]]
    assert [quoted(rooms) for rooms, _ in rows("rooms")] == [layer.split(" | ") for layer in layers]


def test_the_version_is_that_of_the_package():
    """It stands in two places: the module that every process reads, and the package's metadata."""
    assert tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"] == __version__
