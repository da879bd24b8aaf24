"""What an experiment is: a paper's figure or table as data, its runs as configurations, and what is told of them."""

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
    """

    title: str
    metric: str
    rows: tuple[str, ...]
    columns: tuple[str, ...] = ("clicks",)
    where: Labels = field(default_factory=dict)
    digits: int = 3


@dataclass(frozen=True)
class Section:
    """A part of the report that is more than means by label.

    Attributes:
        text: Markdown below the title, from the results.
    """

    title: str
    text: Callable[[Results], str]


@dataclass(frozen=True)
class Variant:
    """One setting of an experiment, run once for each seed.

    Attributes:
        labels: what tells it from the others, in the words of figures and tables.
        config: data, fold and seed are put in by `reproduce`.
    """

    labels: Labels
    config: SimulationConfig


@dataclass(frozen=True)
class Experiment:
    """A figure or table of a paper as something that can be run.

    Attributes:
        name: as on the command line.
        source: where the paper has it.
        setting: the paper's setting in our words.
        grid: its variants at a scale on the data at hand.
        seeds: how many, by scale; spread evenly over the folds of the data if it has any.
        numbers: what ``runs.csv`` lacks: by the file's name, rows from the results, the header first.
        published: the paper's levels, a line each.
        differences: what differs from the paper whatever the data.
        more: from scale, data and number of seeds: outcomes that no `SimulationConfig` can say, beside those of the
            grid.
        needs_intents: whether it needs labels per intent.
        needs_grades: how many grades the data must have.
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
