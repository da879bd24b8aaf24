"""What runs besides the source is found, and described alike in every process."""

import dataclasses
import functools
import subprocess
import sys

import pytest
from simulated import config

from foltr.core.learning.pdgd import pdgd_step
from foltr.core.methods.registry import FPDGD, METHODS
from foltr_research.simulation.fingerprints import programs_of
from foltr_research.simulation.runners import ReferenceRunner


def doubled(function):
    @functools.wraps(function)
    def twice(*seen, **named):
        return 2 * function(*seen, **named)

    return twice


def test_an_untouched_program_is_its_source():
    """Nothing of it is taken for a plug-in."""
    configs = [
        config(),
        config(method="foltr-es"),
        config(aggregation="adaptive", attack="lie", attackers=1),
        config(privacy="secure", take_back=True),
        config(method="fedips"),
    ]
    programs = programs_of(configs)
    assert [one.outside for one in programs] == [()] * len(configs)
    assert len({one.digest for one in programs}) == len(configs)


@pytest.mark.parametrize(
    ("target", "value", "found"),
    [
        ("foltr.core.aggregation.rules.median", lambda *_, **__: None, "foltr.core.aggregation.rules.median"),
        ("foltr.core.learning.pdgd.pdgd_step", lambda *_, **__: None, "foltr.core.learning.pdgd.pdgd_step"),
        ("foltr.core.learning.pdgd.pdgd_step", doubled(pdgd_step), "foltr.core.learning.pdgd.pdgd_step"),
    ],
)
def test_a_replaced_function_is_found(monkeypatch, target, value, found):
    """By the module and name that were replaced, also by one around it."""
    before = programs_of([config()])[0]
    monkeypatch.setattr(target, value)
    after = programs_of([config()])[0]
    assert found in after.outside
    assert after.digest != before.digest


def test_methods_tables_and_constants_are_looked_at(monkeypatch):
    """A method of a class, a plug-in in a table, and a constant with another value."""
    programs = set()
    for run in (lambda *_: None, lambda *_: 1):
        monkeypatch.setattr(ReferenceRunner, "run", run)
        programs.add(programs_of([config()])[0])
    assert len(programs) == 2
    assert all("foltr_research.simulation.runners.ReferenceRunner" in program.outside for program in programs)
    monkeypatch.undo()
    monkeypatch.setitem(METHODS, "mine", dataclasses.replace(FPDGD, name="mine", check=lambda *_: None))
    assert "foltr.core.methods.registry.METHODS" in programs_of([config()])[0].outside
    monkeypatch.undo()
    monkeypatch.setattr("foltr.core.aggregation.rule_spec.ABANDON", "give up")
    assert "foltr.core.aggregation.rule_spec.ABANDON" in programs_of([config()])[0].outside


PLUG_IN = """
import functools
import numpy as np
from foltr.core.aggregation import rules
from foltr_research.simulation.config import SimulationConfig
from foltr_research.simulation.fingerprints import programs_of

WEIGHTS = np.arange(3.0)
TERMS = {"a", "b", "c"}

def helper(rows, scale=SCALE):
    return {term: WEIGHTS * scale for term in TERMS if term in {"a", "b", "c", "d"}}

rules.median = functools.partial(helper, scale=2)
print(programs_of([SimulationConfig()])[0])
"""


def test_a_plug_in_has_one_digest_in_all_processes():
    """Neither addresses nor the order of sets are in it, and its arguments are."""

    def digest(scale):
        code = PLUG_IN.replace("SCALE", scale)
        return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout

    assert digest("1") == digest("1") != digest("3")
