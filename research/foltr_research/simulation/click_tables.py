"""Simulated users as arrays, for kernels that simulate many of them, and checks of click models."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import SettingsError
from foltr.core.evaluation.click_models import ClickModel, examination_by_rank
from foltr_research.simulation.plugins import model_of_user

# Least examination of the last document shown. Below it nothing is learned there, and inverse propensities explode.
_LEAST_EXAMINATION = 1e-4


class ClickTables(NamedTuple):
    """Several users as arrays, for kernels that simulate many of them.

    Attributes:
        click: (models, grades) float64, P(click | grade, examined).
        stop: (models, grades) float64, P(stop | click, grade).
        examination: (models, k) float64, P(examined) by rank.
    """

    click: NDArray[np.float64]
    stop: NDArray[np.float64]
    examination: NDArray[np.float64]


def click_tables(models: Sequence[ClickModel], serp_length: int) -> ClickTables:
    """Return users as one table each, with equally many grades.

    Args:
        models: at least one, each for the same number of grades.
        serp_length: the most documents shown.

    Raises:
        SettingsError: no model, models for different numbers of grades, or one that is not a table.
    """
    for model in models:
        if not is_table(model):
            raise SettingsError(
                f"clicks: {model.name} is a function, and these learners read tables; give a ClickModel, or choose a "
                "method of the service"
            )
    if len({len(model.click_probability) for model in models}) != 1:
        raise SettingsError("simulated users need click models, all for the same number of relevance grades")
    return ClickTables(
        np.array([model.click_probability for model in models], np.float64),
        np.array([model.stop_probability for model in models], np.float64),
        np.array([examination_by_rank(model.examination_exponent, serp_length) for model in models]),
    )


def is_table(model: ClickModel) -> bool:
    """Return whether a click model is its table, which kernels can read."""
    return type(model) is ClickModel and model.reads is None


def check_examined(names: Sequence[str], serp_length: int) -> None:
    """Raise SettingsError for unknown click models, and for users who hardly ever look below the top.

    Args:
        serp_length: the most documents shown.
    """
    for name in names:
        # Any number of grades will do: the data's may not be known yet.
        model = model_of_user(name, 5)
        steepest = -math.log10(_LEAST_EXAMINATION) / math.log10(serp_length) if serp_length > 1 else math.inf
        if model.examination_exponent > steepest:
            raise SettingsError(
                f"clicks: {name}: allowed is an exponent from 0 to {math.floor(steepest * 100) / 100:g} with lists of "
                f"{serp_length}, so that the last document is still looked at {_LEAST_EXAMINATION:g} of the time"
            )
