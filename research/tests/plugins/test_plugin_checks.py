"""Mistakes in code from outside are errors of ours that name it and say what was expected, not tracebacks."""

import functools

import numpy as np
import pytest
from cli.commands import foltr_fresh
from support.waiting import PATIENCE_S

import foltr_research as fr
from foltr.core.errors import DataError, SettingsError
from foltr_research.simulation.config import SimulationConfig
from foltr_research.simulation.plugins import held, load_installed, plug_in

SMALL = {"clients": 3, "interactions": 2, "rounds": 2, "eval_every": 1}


def one_click(relevance):
    return relevance > 0


def two_of_three(ranked, ideal):
    return len(ranked) / len(ideal)


def no_byzantine(updates, weights):
    return np.average(updates, axis=0, weights=weights)


def default_byzantine(updates, weights, byzantine=0.2):
    return byzantine * np.average(updates, axis=0, weights=weights)


def two_rounds(seen, before):
    return seen.own - before


def seed_and_more(seed, n):
    return np.ones((n, 2)), np.arange(n) % 2, np.arange(n) // 2 + seed


class LearnsTooLittle(fr.Method):
    def learn(self, weights, seen):
        return weights + len(seen.clicks)


class SendsTooMuch(fr.Method):
    @staticmethod
    def send(weights, start, rng, more):
        return weights + start * more * rng.random()


class Worded(fr.Method):
    clip_norm: float = "long"


class Undefined(fr.Method):
    clip_norm: "Norm" = 1.0  # noqa: F821


class Slotted:
    __slots__ = ("by",)

    def __call__(self, updates, weights, byzantine):
        return updates.mean(axis=0)


CALLS = [
    ("clicks", one_click, "clicks: one_click(relevance) cannot be called with 2 values: too many positional arguments"),
    ("clicks", fr.ClickModel("half", (0.0, 1.0), (0.0, 0.0), reads=one_click), "expected a ClickModel, or a function"),
    ("metrics", two_of_three, "metrics: two_of_three(ranked, ideal) cannot be called with 3 values"),
    ("rule", no_byzantine, "expected a function of updates, weights and byzantine"),
    ("rule", default_byzantine, "multiple values for argument 'byzantine'"),
    ("attack", two_rounds, "two_rounds(seen, before) cannot be called with 1 value: missing a required argument"),
    ("data", seed_and_more, "expected arrays, or a function that returns them"),
    (
        "rule",
        lambda *_, byzantine=1, beyond_bounds=1: byzantine * beyond_bounds,
        "parameter beyond_bounds is a setting",
    ),
    (
        "attack",
        lambda seen, knowledge=1: knowledge * seen.own,
        "its parameter knowledge is a setting of foltr's; rename it",
    ),
    ("rule", Slotted(), "aggregation: Slotted: a kept run depends on its attributes, and it has __slots__; leave them"),
    ("method", LearnsTooLittle, "LearnsTooLittle.learn(self, weights, seen) cannot be called with 4 values"),
    ("method", SendsTooMuch, "SendsTooMuch.send(weights, start, rng, more) cannot be called with 3 values"),
    ("method", Worded, "Worded: the default of clip_norm: Input should be a valid number"),
    ("method", Undefined, "Undefined: `Undefined` is not fully defined; you should define `Norm`"),
]


def told(of, kind, thing):
    with pytest.raises(SettingsError) as refused:
        of(kind, thing, {"attackers": 1} if kind == "attack" else {})
    return str(refused.value)


@pytest.mark.parametrize(("kind", "thing", "part"), CALLS, ids=[f"{kind}-{i}" for i, (kind, _, _) in enumerate(CALLS)])
def test_what_a_run_could_not_call_is_refused(kind, thing, part):
    """Before anything runs, also in a sweep that would start processes."""
    text = told(lambda kind, thing, more: fr.simulate(**{kind: thing}, **more, **SMALL), kind, thing)
    assert part in text
    swept = told(
        lambda kind, thing, more: fr.sweep({"seed": [1, 2]}, jobs=2, **{kind: thing}, **more, **SMALL), kind, thing
    )
    assert swept == text


def untyped():
    class Untyped(fr.Method):
        clip_norm = 1.0


def overridden():
    class Faster(fr.Method):
        learning_rate = 0.3


def of_arrays():
    class Weighted(fr.Method):
        importance: np.ndarray = np.ones(3)


@pytest.mark.parametrize(
    ("define", "part"),
    [
        (untyped, "method: Untyped: A non-annotated attribute was detected: `clip_norm = 1.0`"),
        (overridden, "method: Faster: Field 'learning_rate' defined on a base class was overridden"),
        (of_arrays, "method: Weighted: Unable to generate"),
    ],
)
def test_a_field_that_is_no_parameter_is_refused(define, part):
    """Where the class is defined, with what to write instead."""
    with pytest.raises(SettingsError) as refused:
        define()
    assert str(refused.value).startswith(part)
    assert str(refused.value).endswith("; give each parameter a type and a default, as clip_norm: float = 1.0")


def ragged(seed):
    return [[1.0, 2.0], [1.0]], [0, 1], [0, 0]


def of_other_widths(seed):
    rows = np.random.default_rng(seed).random((40, 4))
    about = (np.arange(40) % 3, np.arange(40) // 10)
    return (rows[:, :3], *about), (rows, *about)


def no_number(ranked, ideal, k):
    return ranked[:2] > 0


@pytest.mark.parametrize(
    ("kind", "thing", "part"),
    [
        ("data", ragged, "data: ragged: expected features (documents, d), relevance and query ids, with the same d"),
        ("data", of_other_widths, "those for training are (3,), those for test (4,)"),
        ("data", functools.partial(of_other_widths, 2), "data: of_other_widths: expected features"),
        ("data", ragged(1), "data: expected features (documents, d)"),
        ("data", of_other_widths(1), "those for training are (3,), those for test (4,)"),
        ("metrics", no_number, "metrics: no_number: expected a number for each query, not array([ True"),
        ("metrics", lambda ranked, ideal, k: None, "expected a number for each query, not None"),  # noqa: ARG005
    ],
)
def test_what_returns_something_wrong_is_named(kind, thing, part):
    """It is an error of the run, with what was expected."""
    with pytest.raises(DataError) as refused:
        fr.simulate(**{kind: thing}, **SMALL)
    assert part in str(refused.value)


def test_an_attacker_that_sends_nothing_finite_is_refused_by_the_federation():
    """Like any device, and the run goes on."""
    result = fr.simulate(attack=lambda seen: np.full_like(seen.own, np.nan), attackers=1, **SMALL)
    assert result.details.to_dict()["robustness"]["refused"] == {"device-001": 2}
    assert np.isfinite(result.weights).all()


def halves(ranked, ideal, k, scale=1.0):
    return scale * len(ranked) / len(ideal)


def test_other_callable_objects_are_taken():
    """Objects with a call, and partial functions with a parameter set."""

    class Discounted:
        def __call__(self, ranked, ideal, k):
            return float(ranked[0] > 0) / min(k, len(ideal))

    first = fr.simulate(metrics=[Discounted(), functools.partial(halves, scale=2.0)], **SMALL)
    assert set(first.details.metrics) == {"Discounted", "halves"}
    assert first.details.metrics["halves"][-1][1] == 2.0


def test_the_command_line_has_one_line(tmp_path):
    """With the exit code of a wrong setting."""
    (tmp_path / "own.py").write_text("def click(relevance):\n    return relevance > 0\n")
    method = "import foltr_research as fr\n\n\nclass Own(fr.Method):\n    clip_norm = 1.0\n"
    (tmp_path / "untyped.py").write_text(method)
    for option, name, part in (
        ("--clicks", "own:click", "error: clicks: own:click(relevance) cannot be called with 2 values"),
        ("--method", "untyped:Own", "error: method: Own: A non-annotated attribute was detected: `clip_norm = 1.0`"),
    ):
        done = foltr_fresh("simulate", option, name, cwd=tmp_path, timeout_s=PATIENCE_S)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
        assert done.stderr.startswith(part), done.stderr


def test_a_function_is_checked_once_however_many_configurations_name_it():
    """A sweep of thousands would else call it through as many checks."""
    plug_in("metrics", lambda _ranked, _ideal, _k: 1.0, "named_often")
    for _ in range(3):
        load_installed(SimulationConfig(method="fpdgd", metrics=("named_often",)))
    assert not hasattr(held("metrics", "named_often").__wrapped__, "__wrapped__")
