"""Every experiment builds valid runs at both scales on every kind of data it takes, and is described."""

from itertools import product

from made_results import profile

from foltr_research.reproductions.claims import Status
from foltr_research.reproductions.experiment import SCALES
from foltr_research.reproductions.harness import plan
from foltr_research.reproductions.outcomes import METRICS, Results
from foltr_research.reproductions.registry import EXPERIMENTS
from foltr_research.reproductions.robustness.variants import ON_OTHER_DATA

# The grid of fedips looks for learning rates by running, which takes minutes; its own tests look at it. Figures 5.5 to
# 5.11 have the grids of 5.2 to 5.4.
BUILT = [name for name in EXPERIMENTS if not name.startswith(("fedips", *ON_OTHER_DATA))]
# Of the others some outcomes are not of the grid, and labels there are too.
ALL_OF_THE_GRID = [name for name in BUILT if EXPERIMENTS[name].more is None]


def profiles(one):
    if one.needs_intents:
        return [profile(2, intents=True)]
    return [profile(n_grades) for n_grades in ([one.needs_grades] if one.needs_grades else [3, 5])]


def test_grids_are_valid():
    """Configurations pass the simulator's own check, labels are unique, full is at least as much work as quick."""
    for name in BUILT:
        one = EXPERIMENTS[name]
        for data in profiles(one):
            for scale in SCALES:
                planned = plan(one, scale, data, 1)
                assert planned, (name, scale)
                named = [tuple(sorted(run.labels.items())) for run in planned]
                assert len(set(named)) == len(named), (name, scale)
            work = {at: _work(plan(one, at, data, one.seeds[at])) for at in SCALES}
            assert work["quick"] <= work["full"], name


def test_figures_and_tables_refer_to_labels_there_are():
    """No figure or table asks for a label or a metric that no run has."""
    for name in ALL_OF_THE_GRID:
        one = EXPERIMENTS[name]
        for data, scale in product(profiles(one), SCALES):
            planned = plan(one, scale, data, 1)
            keys = {key for run in planned for key in run.labels}
            for figure in one.figures:
                assert METRICS[figure.metric].label, name
                assert {*figure.curves, figure.panels, *([figure.rows] if figure.rows else [])} <= keys, name
                assert any(figure.where.items() <= run.labels.items() for run in planned), name
            for table in one.tables:
                assert METRICS[table.metric].label, name
                assert {*table.rows, *table.columns} <= keys, name
                assert any(table.where.items() <= run.labels.items() for run in planned), name


def test_claims_without_runs_are_not_testable():
    """A verdict never comes from nothing."""
    for one in EXPERIMENTS.values():
        for claim, data in product(one.claims, profiles(one)):
            assert claim.check(Results((), data)).status is Status.NOT_TESTABLE, claim.text


def _work(planned):
    return sum(run.config.rounds * run.config.clients * run.config.interactions for run in planned)
