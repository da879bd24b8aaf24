"""The size of a reproduction: a scale, which seeds, and settings that override the scale's."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from foltr.core.errors import SettingsError
from foltr_research.reproductions.checks import not_testable
from foltr_research.reproductions.experiment import SCALES, Experiment, Scale, Variant

_MOST_SEEDS = 1000


@dataclass(frozen=True)
class Size:
    """How large a reproduction is.

    Attributes:
        seeds: how many, or which; None: the experiment's own number for the scale.
        rounds, clients: of every run, instead of the scale's; None leaves those.
        metrics: measured too, by name; the report repeats its first table for each.
    """

    scale: Scale = "quick"
    seeds: int | tuple[int, ...] | None = None
    rounds: int | None = None
    clients: int | None = None
    metrics: tuple[str, ...] = ()

    def of(self, experiment: Experiment) -> Self:
        """Return it with the seeds of an experiment. Raises SettingsError if the experiment cannot have this size."""
        if self.scale not in SCALES:
            raise SettingsError(f"scale: {self.scale!r} is neither {' nor '.join(SCALES)}")
        seeds = experiment.seeds[self.scale] if self.seeds is None else self.seeds
        chosen = tuple(range(1, seeds + 1)) if isinstance(seeds, int) else seeds
        if not 1 <= len(chosen) <= _MOST_SEEDS or len(set(chosen)) < len(chosen) or min(chosen) < 1:
            raise SettingsError(f"seeds: {self.seeds}; give 1 to {_MOST_SEEDS} different ones, from 1")
        if experiment.more is not None and (self.changes or chosen != tuple(range(1, len(chosen) + 1))):
            raise SettingsError(f"{experiment.name}: some of its runs take only a scale and a number of seeds")
        return replace(self, seeds=chosen)

    @property
    def chosen_seeds(self) -> tuple[int, ...]:
        return self.seeds if isinstance(self.seeds, tuple) else ()

    @property
    def changes(self) -> dict[str, int]:
        """Return the settings that every run has instead of the scale's."""
        changes = {"rounds": self.rounds, "clients": self.clients}
        return {name: value for name, value in changes.items() if value is not None}

    @property
    def options(self) -> str:
        """Return the options of the command line for it."""
        n = len(self.chosen_seeds)
        in_a_row = self.chosen_seeds == tuple(range(1, n + 1))
        seeds = str(n) if in_a_row else ",".join(map(str, self.chosen_seeds)) + ("," if n == 1 else "")
        others = {**self.changes, **({"metric": ",".join(self.metrics)} if self.metrics else {})}
        return " ".join([f"--scale {self.scale} --seeds {seeds}", *(f"--{k} {v}" for k, v in others.items())])


def read_seeds(text: str) -> int | tuple[int, ...]:
    """Return how many seeds are wanted, as ``5``, or which, as ``3,5,8`` or ``1-3``; one is ``3,``.

    Raises:
        SettingsError: it is neither.
    """
    try:
        if text.isdecimal():
            return int(text)
        ends = [tuple(map(int, part.split("-"))) for part in text.rstrip(",").split(",")]
        found = tuple(seed for end in ends for seed in range(end[0], end[-1] + 1))
    except ValueError:
        found = ()
    if not found or len(found) > _MOST_SEEDS:
        raise SettingsError(f"seeds: {text!r}; give a number of seeds, as 5, or which, as 3,5,8 or 1-3")
    return found


def judged(experiment: Experiment, size: Size, quick: Sequence[Variant], variants: Sequence[Variant]) -> Experiment:
    """Return an experiment whose claims are not testable if a size without enough of what they compare is set.

    Args:
        quick: its variants at quick scale.
        variants: those that are run, with the size's changes.
    """
    reasons = [
        f"--{name} {value} is less than at quick scale"
        for name, value in size.changes.items()
        if value < min(getattr(one.config, name) for one in quick)
    ]
    if size.changes and _n_settings(variants) < _n_settings(quick):
        reasons.append(f"with {size.options} some of the settings that it compares are the same")
    if not reasons:
        return experiment
    check = not_testable("; ".join(reasons))
    return replace(experiment, claims=tuple(replace(claim, check=check) for claim in experiment.claims))


def _n_settings(variants: Sequence[Variant]) -> int:
    return len({one.config.model_dump_json() for one in variants})
