"""What settings can name is listed with its source, also if an installed package is broken."""

import json
import re
from importlib.metadata import entry_points

import pytest
from cli.commands import foltr
from plugins import mine

import foltr_research as fr
from foltr.core.errors import SettingsError
from foltr.core.methods.registry import METHODS
from foltr_research.simulation.available import available
from foltr_research.simulation.method_names import SIMULATOR_METHODS
from foltr_research.simulation.plugins import GROUPS, KINDS, plug_in

CODE = """
import foltr_research as fr

class Halved(fr.Method):
    \"\"\"FPDGD that sends half.\"\"\"
    share: float = 0.5

def first(updates, weights, byzantine, n=1):
    \"\"\"The first updates alone.\"\"\"
    return updates[:n].mean(axis=0)

def still(seen, z=1.0):
    \"\"\"Nothing at all.\"\"\"
    return 0 * seen.own

def nobody(relevance, draws):
    \"\"\"A user who clicks nothing.\"\"\"

def top(ranked, ideal, k):
    \"\"\"The grade of the first.\"\"\"
    return float(ranked[0])

def none(seed):
    \"\"\"No queries.\"\"\"

wrong = 3
"""
NAMES = {"method": "Halved", "aggregation": "first", "attack": "still", "clicks": "nobody", "metrics": "top"}
NAMES |= {"data": "none"}


@pytest.fixture
def package(tmp_path, monkeypatch, forgets_plug_ins):
    """A folder with an installed package that adds one of each kind, one that is missing, and one of a wrong kind."""
    (tmp_path / "theirs.py").write_text(CODE)
    about = tmp_path / "theirs-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    groups = [f"[{GROUPS[kind]}]\nour-{name} = theirs:{name}\n" for kind, name in NAMES.items()]
    groups[0] += "missing = theirs.gone:Gone\nno-method = theirs:wrong\n"
    (about / "entry_points.txt").write_text("".join(groups))
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("package")
def test_all_kinds_are_listed_with_their_packages() -> None:
    """With meaning and parameters, and an error if it has one; foltr's own come first."""
    printed = foltr("simulate", "--list", code=0).stdout
    options = re.findall(r"^(--[a-z]+):$", printed, re.MULTILINE)
    assert options == ["--method", "--aggregation", "--attack", "--clicks", "--metric", "--data"]
    for name in (*METHODS, *SIMULATOR_METHODS):
        if name not in {one.name for one in entry_points(group="foltr.methods")}:
            assert f"\n  {name}: " in printed
    assert "\n  prpo (of foltr-research): PRPO: doubly robust" in printed
    assert (
        "\n  our-Halved (of theirs): FPDGD that sends half: parameters serp_length=10, learning_rate=0.1, share=0.5\n"
        in printed
    )
    assert "\n  our-first (of theirs): The first updates alone: parameters n=1\n" in printed
    assert "\n  our-still (of theirs): Nothing at all: parameters z=1, knowledge=partial\n" in printed
    assert "\n  our-nobody (of theirs): A user who clicks nothing\n" in printed
    assert "\n  our-top (of theirs): The grade of the first\n" in printed
    assert "\n  our-none (of theirs): No queries\n" in printed
    assert "\n  missing (of theirs): it cannot be used: ModuleNotFoundError: No module named 'theirs.gone'" in printed
    assert "\n  no-method (of theirs): it cannot be used: method: expected a class derived from" in printed


@pytest.mark.usefixtures("package")
def test_each_list_has_them_too() -> None:
    """Those of methods, rules and attacks; a federation cannot use them."""
    printed = foltr("methods", code=0).stdout
    assert "\nour-Halved (of theirs): FPDGD that sends half\n" in printed
    assert "\nmissing (of theirs): it cannot be used: ModuleNotFoundError: " in printed
    rows = {row["method"]: row for row in json.loads(foltr("methods", "--json", code=0).stdout)}
    assert rows["prpo"]["package"] == "foltr-research"
    assert rows["missing"]["error"].startswith("ModuleNotFoundError")
    assert "\nour-first (of theirs): The first updates alone\n" in foltr("rules", code=0).stdout
    assert "\nour-still (of theirs, only simulated): Nothing at all.\n" in foltr("attacks", "list", code=0).stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--method", "halved"), "known are fpdgd, .*; only simulated: .*our-Halved, missing, no-method of theirs"),
        (("--aggregation", "second"), "unknown rule 'second'; .*; only simulated: our-first of theirs"),
        (("--attack", "loud", "--attackers", "1"), "known are .*; only simulated: our-still of theirs"),
        (("--clicks", "somebody"), "one of: .*; only simulated: .*our-nobody of theirs"),
        (("--metric", "bottom"), "known are .*; only simulated: our-top of theirs"),
        (("--data", "all"), "no such folder; .*; only simulated: our-none of theirs"),
        (("--method", "missing"), "method: missing of the package theirs cannot be imported: ModuleNotFoundError: "),
    ],
)
@pytest.mark.usefixtures("package")
def test_an_unknown_name_is_answered_with_all(words, told) -> None:
    """In one line, for every kind; so is one that cannot be imported."""
    done = foltr("simulate", *words)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert re.search(told, done.stderr), done.stderr


@pytest.mark.usefixtures("package")
def test_from_python_with_what_was_handed_over() -> None:
    """Whose source is its module; a broken name is refused before a run or a sweep begins."""
    plug_in("attack", mine.reverse, "handed-over")
    rows = {(one.kind, one.name): one for one in fr.available()}
    assert {kind for kind, _ in rows} == set(KINDS)
    assert rows["attack", "handed-over"].source == mine.__name__
    assert rows["method", "fpdgd"].source == "foltr"
    assert rows["method", "dr"].source == "foltr-research"
    assert rows["method", "dr"].parameters["relevance_learning_rate"] == "0.05"
    assert rows["method", "missing"].error.startswith("ModuleNotFoundError")
    assert available(["data"])[0].name == "synthetic"
    for run in (lambda: fr.simulate(method="missing"), lambda: fr.sweep({"method": ["fpdgd", "missing"]})):
        with pytest.raises(SettingsError, match="missing of the package theirs cannot be imported"):
            run()
