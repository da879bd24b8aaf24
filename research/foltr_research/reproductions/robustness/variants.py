"""The thesis' chapter 5 with a neural ranker, and on other data (Figures 5.5 to 5.11): the same grids and claims."""

from dataclasses import replace

from foltr_research.reproductions.experiment import Experiment, Scale, Variant
from foltr_research.reproductions.outcomes import DataProfile
from foltr_research.reproductions.robustness import click_poisoning, update_poisoning
from foltr_research.reproductions.robustness.click_poisoning import LINEAR

_OF_CHAPTER_5 = {one.name: one for one in (*click_poisoning.EXPERIMENTS, *update_poisoning.EXPERIMENTS)}
# By name: the experiment, the thesis' data, and how many grades that data has if it is a single set.
ON_OTHER_DATA = {
    "thesis-5.5": ("thesis-5.2", "MQ2007", 3),
    "thesis-5.6": ("thesis-5.2", "Yahoo!", 5),
    "thesis-5.7": ("thesis-5.2", "Istella-S", 5),
    "thesis-5.8": ("thesis-5.3", "MQ2007", 3),
    "thesis-5.9": ("thesis-5.3", "Yahoo!", 5),
    "thesis-5.10": ("thesis-5.3", "Istella-S", 5),
    "thesis-5.11": ("thesis-5.4", "MQ2007, Yahoo! and Istella-S", None),
}


def _neural(linear: Experiment) -> Experiment:
    def grid(scale: Scale, data: DataProfile) -> list[Variant]:
        return [replace(one, config=one.config.changed(ranker="neural")) for one in linear.grid(scale, data)]

    return replace(
        linear,
        name=f"{linear.name}-neural",
        title=f"{linear.title}; neural ranker",
        source='thesis, Section 5.5.1: "similar to those for the linear ranker", without a figure',
        setting=linear.setting.replace(LINEAR, "a neural ranker of 64 hidden units, learning rate 0.1"),
        grid=grid,
    )


def _on_other_data(name: str) -> Experiment:
    other, data, n_grades = ON_OTHER_DATA[name]
    same = _OF_CHAPTER_5[other]
    return replace(
        same,
        name=name,
        title=f"{same.title}; {data}",
        source=f"thesis, Section 5.9, Figure {name.removeprefix('thesis-')}: {data}",
        needs_grades=n_grades,
    )


EXPERIMENTS: tuple[Experiment, ...] = (
    *(_neural(one) for one in _OF_CHAPTER_5.values()),
    *(_on_other_data(name) for name in ON_OTHER_DATA),
)
