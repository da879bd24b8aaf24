"""The conformance vectors, which clients in other languages are tested by, are what this code makes."""

import itertools
import json
import runpy
from pathlib import Path

import pytest

from foltr.core.protocol.messages import MESSAGE_TYPES

CLIENTS = Path(__file__).parents[2] / "clients"
GENERATE = runpy.run_path(str(CLIENTS / "vectors" / "generate.py"))
BROWSER = CLIENTS / "browser"


@pytest.mark.parametrize("name", GENERATE["VECTORS"])
def test_vectors_are_what_the_code_makes_now(name):
    """Whoever changes what is on the wire, or learned, writes them anew, and `make browser-test` says what differs."""
    assert GENERATE["is_current"](name), "run: python clients/vectors/generate.py, then make browser-test"


def test_the_vectors_have_what_clients_may_get_wrong():
    """Each kind of message; a gate that opens, and closes by the credits of interleaved lists and by a model's own."""
    messages, lists = (json.loads((CLIENTS / "vectors" / f"{name}.json").read_text()) for name in ("messages", "gate"))
    assert {vector["kind"] for vector in messages["messages"]} == set(MESSAGE_TYPES)
    changes = [
        (after["source"], after["gate"]["is_open"])
        for before, after in itertools.pairwise(lists)
        if before["gate"]["is_open"] != after["gate"]["is_open"]
    ]
    opens, by_credits, by_lists = ("interleaved", True), ("interleaved", False), ("model", False)
    assert {opens, by_credits, by_lists} <= set(changes)
    # Weights may differ by less than 1e-6, as processors do; nothing else may.
    is_same = GENERATE["_is_same"]
    assert is_same({"a": [1.0, "x", None, 3]}, {"a": [1.0 + 1e-9, "x", None, 3]})
    for other in ({"a": [1.1, "x", None, 3]}, {"a": [1.0, "y", None, 3]}, {"a": [1.0, "x", None]}, {"b": 1}, [1]):
        assert not is_same({"a": [1.0, "x", None, 3]}, other)


@pytest.mark.parametrize("folder", [BROWSER, CLIENTS.parent / "examples" / "docs_search"], ids=lambda path: path.name)
def test_packages_from_npm_are_pinned_by_hash_and_by_no_address(folder):
    """The lock is of what package.json asks for, each package has its hash, and no registry is named."""
    asked = json.loads((folder / "package.json").read_text())
    text = (folder / "package-lock.json").read_text()
    packages = json.loads(text)["packages"]
    root = packages.pop("")
    assert "://" not in text
    for group in {"dependencies", "devDependencies"} & asked.keys():
        assert root[group] == asked[group]
        for name, version in asked[group].items():
            assert packages[f"node_modules/{name}"]["version"] == version
    assert all(entry["integrity"].startswith("sha512-") for entry in packages.values())
