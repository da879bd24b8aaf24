"""The code that counts is the code that runs, and what cannot change a result does not count."""

import functools
import sys
from pathlib import Path

import pytest
from simulated import config

from foltr_research.simulation.digests.units import bound_names
from foltr_research.simulation.digests.used_code import RUN, Sources, installed_sources, names_of
from foltr_research.simulation.sweeps.sweep import run_config

MODULES = {
    "core/aggregation/rule_spec.py": 'RULES = {"fast": "quick", "slow": "careful"}\nPRE_STEPS = {}\n',
    "research/simulation/config.py": "class Settings:\n    careful: bool = False\n",
    "research/rules.py": (
        "import numpy as np\n"
        "from foltr.core.fast import fast\n"
        "from foltr.core.slow import slow\n"
        "def run(config, rows: np.ndarray):\n"
        "    if config.careful:\n"
        "        from foltr.core.careful import check\n"
        "        check(rows)\n"
        "    match config.rule:\n"
        '        case "fast":\n'
        "            return fast(rows)\n"
        '        case "slow":\n'
        "            return slow(rows)\n"
    ),
    "core/fast.py": (
        "LIMIT = 3\n"
        "def fast(rows):\n"
        '    """Fast."""\n'
        "    # first\n"
        "    if len(rows) > LIMIT:\n"
        '        raise ValueError("too many rows")\n'
        "    return rows[0]\n"
        "def unused():\n"
        "    return 1\n"
    ),
    "core/slow.py": "def slow(rows):\n    return sorted(rows)[0]\n",
    "core/careful.py": "def check(rows):\n    assert rows\n",
}
START = ("foltr_research.rules", "run")


@pytest.fixture
def used(tmp_path):
    """What `Sources.used` finds for a rule after an edit of a file: one text replaced by another."""

    def found(rule="fast", file="core/fast.py", edit=("", ""), careful=False):
        for name, text in MODULES.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        old, new = edit
        assert old in MODULES[file]
        (tmp_path / file).write_text(MODULES[file].replace(old, new) if old else MODULES[file])
        source = Sources({"foltr.core": tmp_path / "core", "foltr_research": tmp_path / "research"})
        return source.used([START], names_of({"rule": rule, "careful": careful}))

    return found


def test_only_what_is_named_counts(used):
    """A rule counts if the configuration names it, and so does what a setting needs."""
    assert used("fast").keys() == {"foltr_research.rules", "foltr.core.fast"}
    assert used("slow").keys() == {"foltr_research.rules", "foltr.core.slow"}
    assert used("fast", careful=True).keys() == {"foltr_research.rules", "foltr.core.fast", "foltr.core.careful"}


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("core/fast.py", "# first", "# the first row"),
        ("core/fast.py", '"""Fast."""', '"""Return the first row."""'),
        ("core/fast.py", "too many rows", "there are too many rows"),
        ("core/fast.py", "return 1", "return 2"),
        ("core/slow.py", "[0]", "[-1]"),
        ("research/rules.py", "return slow(rows)", "return slow(rows[1:])"),
        ("research/rules.py", "rows: np.ndarray", "rows: np.ndarray | None"),
        ("core/careful.py", "assert rows", "assert len(rows)"),
        ("core/aggregation/rule_spec.py", "careful", "slow and careful"),
    ],
)
def test_what_cannot_change_the_result_does_not_count(used, file, old, new):
    """Comments, docstrings, messages, annotations, functions that nobody calls, and rules that are not run."""
    assert used(file=file, edit=(old, new)) == used()


@pytest.mark.parametrize(
    ("file", "old", "new", "changed"),
    [
        ("core/fast.py", "rows[0]", "rows[1]", "foltr.core.fast"),
        ("core/fast.py", "LIMIT = 3", "LIMIT = 4", "foltr.core.fast"),
        ("research/rules.py", "return fast(rows)", "return fast(rows[1:])", "foltr_research.rules"),
        (
            "research/rules.py",
            "foltr.core.fast import fast",
            "foltr.core.fast import unused as fast",
            "foltr.core.fast",
        ),
        ("core/fast.py", "LIMIT = 3", "import numpy as LIMIT", "foltr.core.fast"),
    ],
)
def test_what_can_change_it_does(used, file, old, new, changed):
    """A statement, a constant that it compares with, and which function a name stands for."""
    before, after = used(), used(file=file, edit=(old, new))
    assert changed in {module for module in before | after if before.get(module) != after.get(module)}


@functools.cache
def unit_of(file, line):
    """The unit of a line of code of ours; None for other files."""
    import foltr.core
    import foltr_research

    for package in (foltr.core, foltr_research):
        root = Path(package.__file__).parent
        if Path(file).is_relative_to(root):
            name = ".".join((package.__name__, *Path(file).relative_to(root).with_suffix("").parts))
            for statement in installed_sources().tree(name).body:
                first = min([statement.lineno, *(one.lineno for one in getattr(statement, "decorator_list", []))])
                if first <= line <= statement.end_lineno:
                    return name, next(bound_names(statement), "")
    return None


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"method": "foltr-es", "ranker": "neural"},
        {"method": "fedips", "parameters": {"propensities": "estimated"}},
        {"method": "fedavg", "logging_fraction": 0.1},
        {"method": "fpdgd-paper", "parameters": {"epsilon": 4.5, "sensitivity": 5}},
        {"method": "fedper", "ranker": "neural"},
        {"method": "lambdarank"},
        {"method": "local"},
        {"aggregation": "nnm+krum", "byzantine": 1, "attack": "fang-krum", "attackers": 1},
        {"aggregation": "bulyan", "attack": "clicks", "attackers": 1, "byzantine": 0},
        {"aggregation": "adaptive", "attack": "launder", "attackers": 1},
        {"take_back": True, "privacy": "secure", "attack": "sign-flip", "attackers": 1},
        {"base_feature": 1},
        {"population": "type1+type4", "data": "synthetic-intents"},
        {"shared_fraction": 0.1, "shared_alpha": 0.1, "warm_up_interactions": 5},
    ],
    ids=lambda settings: " ".join(f"{name}={value}" for name, value in settings.items()) or "default",
)
def test_everything_that_a_run_calls_counts(settings):
    """No function of ours is called that the source does not lead to from the configuration."""
    chosen = config(clients=8, interactions=2, **settings)
    run_config(chosen)  # imports and compiles
    called = set()
    sys.setprofile(lambda frame, event, _: called.add(frame.f_code) if event == "call" else None)
    try:
        run_config(chosen)
    finally:
        sys.setprofile(None)
    units = {unit_of(code.co_filename, code.co_firstlineno) for code in called} - {None}
    assert RUN in units
    reached = installed_sources().reached([RUN], names_of(chosen.model_dump(mode="json")))
    assert {unit for unit in units - reached if not installed_sources().is_without_effect(unit[0])} == set()
