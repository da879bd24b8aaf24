"""A plug-in has another digest if anything it consists of is another, and the same one in every process."""

import functools
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from simulated import config, simulated

import foltr_research as fr
from foltr.core.errors import DataError
from foltr_research.simulation import fingerprints, plugins
from foltr_research.simulation.checkpoint import CheckpointPlan
from foltr_research.simulation.digests.whole import digest_of_whole
from foltr_research.simulation.fingerprints import programs_of
from foltr_research.simulation.plugins import plug_in


class Scale:
    def __init__(self, by):
        self.by = by

    def of(self, rows):
        return self.by * rows


class Slotted:
    __slots__ = ("by",)

    def __init__(self, by):
        self.by = by


def scaled(by):
    def rule(updates, *_, byzantine=0):
        return by * updates.mean(axis=0) + byzantine

    return rule


def decorated(by):
    function = scaled(1)

    @functools.wraps(function)
    def rule(*seen):
        return by * function(*seen)

    return rule


def with_property(by):
    class Own(fr.Method):
        @property
        def part(self):
            return by

        def send(self, weights, start, _rng):
            return start + self.part * (weights - start)

    return Own


@pytest.mark.parametrize(
    "make",
    [
        lambda by: scaled(np.float32(by)),
        lambda by: scaled(Scale(by)),
        lambda by: scaled(Scale(by).of),
        lambda by: scaled(Slotted(by)),
        lambda by: scaled(SimpleNamespace(by=by)),
        lambda by: scaled(np.poly1d([by, 1])),
        lambda by: scaled(np.vectorize(lambda one: one * by)),
        lambda by: scaled(range(by)),
        lambda by: scaled({"a": [Scale(by)]}),
        lambda by: scaled(np.array([by, "a"], object)),
        lambda by: scaled(re.compile(f"{by}")),
        lambda by: functools.partial(scaled(1), byzantine=Scale(by)),
        decorated,
        with_property,
    ],
)
def test_a_value_within_a_plug_in_counts(make):
    """Wherever it is: in an object, behind a decorator, in a property. Equal ones have one digest."""
    assert digest_of_whole(make(1)) == digest_of_whole(make(1)) != digest_of_whole(make(2))


def test_kept_runs_and_checkpoints_depend_on_it(tmp_path):
    """A sweep has another program, and a checkpoint is refused."""
    of = config(aggregation=plug_in("aggregation", scaled(np.float32(1)), "scaled"))
    path, before = tmp_path / "checkpoint", programs_of([of])
    with pytest.raises(KeyboardInterrupt):
        simulated(of, checkpoint=CheckpointPlan(path), stop=lambda: True)
    plug_in("aggregation", scaled(np.float32(2)), "scaled")
    assert programs_of([of]) != before
    with pytest.raises(DataError, match="other settings of the method"):
        simulated(of, checkpoint=CheckpointPlan(path, resume=True))
    plug_in("aggregation", scaled(np.float32(1)), "scaled")
    assert programs_of([of]) == before


def test_arrays_are_hashed_once_for_a_sweep(monkeypatch):
    """Large ones take a while, and a thousand configurations may name them."""
    name, hashed = plug_in("data", (np.eye(9), np.arange(9) % 2, np.arange(9) // 3)), []
    monkeypatch.setattr(plugins, "digest_of_arrays", hashed.append)
    monkeypatch.setattr(fingerprints, "digest_of_whole", hashed.append)
    programs_of([config(data=name, seed=seed) for seed in range(3)])
    assert len(hashed) == 1


RULES = """
import numpy as np
import helping
from helping import factor
from foltr_research.simulation.digests.whole import digest_of_whole

NAMES = {"a", "b", "c", ("f", frozenset({"d", "e"}))}

def named(updates, weights, byzantine):
    return factor() * updates.mean(axis=0) if NAMES and RULES else None

RULES = {named, "named"}

def of_module(updates, weights, byzantine):
    return helping.factor() * updates.mean(axis=0)

def within(updates, weights, byzantine):
    from helping import factor as by
    return by() * updates.mean(axis=0)

for rule in (named, of_module, within):
    print(digest_of_whole(rule))
"""


def test_code_of_other_modules_counts_in_every_process(tmp_path):
    """However it is imported, in circles too. Order of sets and what the helper has besides make no difference."""

    def digests(helper, hash_seed):
        (tmp_path / "helping.py").write_text(helper)
        (tmp_path / "rules.py").write_text(RULES)
        env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [sys.executable, "rules.py"],
            cwd=tmp_path,
            env=env,
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.split()

    helper = "BY = 1\ndef factor(): return scale() * BY\ndef scale(): return {}\n"
    first = digests(helper.format(1), "1")
    assert digests(f"# a comment\n{helper.format(1)}OTHER = 3\n", "2") == first
    changed = digests(helper.format(2), "1")
    assert all(one != other for one, other in zip(first, changed, strict=True))
