"""The data type of an experiment: a paper's figure or table, its runs as configurations, and its report."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from foltr_research.reproductions.claims import Claim
from foltr_research.reproductions.figures import Figure
from foltr_research.reproductions.outcomes import DataProfile, Labels, Outcome, Results
from foltr_research.simulation.config import SimulationConfig

Scale = Literal["quick", "full"]
SCALES: tuple[Scale, ...] = get_args(Scale)
CLICKS = ("perfect", "navigational", "informational")


@dataclass(frozen=True)
class Table:
    """Mean and standard deviation over seeds of one metric.

    Attributes:
        rows: the labels that name a row.
        columns: the labels that name a column.
        where: labels of the runs shown.
        baseline: labels of the runs that others are tested against, e.g. a method; their other labels are a cell's own.
    """

    title: str
    metric: str
    rows: tuple[str, ...]
    columns: tuple[str, ...] = ("clicks",)
    where: Labels = field(default_factory=dict)
    digits: int = 3
    baseline: Labels | None = None


@dataclass(frozen=True)
class Section:
    """A part of the report beyond tables of means.

    Attributes:
        text: makes the Markdown below the title from the results.
    """

    title: str
    text: Callable[[Results], str]


@dataclass(frozen=True)
class Variant:
    """One setting of an experiment, run once for each seed.

    Attributes:
        labels: distinguish it from other settings in figures and tables.
        config: `reproduce` fills in data, fold and seed.
    """

    labels: Labels
    config: SimulationConfig


@dataclass(frozen=True)
class Experiment:
    """A figure or table of a paper as something that can be run.

    Attributes:
        name: as on the command line.
        source: its place in the paper.
        setting: the paper's setting in our words.
        grid: its variants for a scale and a data set.
        seeds: number by scale, spread evenly over the folds of the data if it has any.
        numbers: data that ``runs.csv`` lacks: by file name, rows from the results, the header first.
        published: the paper's levels, a line each.
        differences: deviations from the paper on any data.
        more: from scale, data and number of seeds: additional outcomes that no `SimulationConfig` can express.
        needs_intents: whether it needs labels per intent.
        needs_grades: required number of grades in the data.
        metrics: those that `--metric` added.
    """

    name: str
    title: str
    source: str
    setting: str
    grid: Callable[[Scale, DataProfile], list[Variant]]
    seeds: Mapping[Scale, int]
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    sections: tuple[Section, ...] = ()
    numbers: Mapping[str, Callable[[Results], Sequence[Sequence[str]]]] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    published: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()
    more: Callable[[Scale, DataProfile, int], Sequence[Outcome]] | None = None
    needs_intents: bool = False
    needs_grades: int | None = None
    metrics: tuple[str, ...] = ()
