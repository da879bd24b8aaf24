"""Simulated users: the cascade click model and its four published instantiations.

The user reads from the top, clicks a document with a probability that depends on its relevance grade, and
after a click stops with another such probability (Guo et al. 2009, as used in Wang's thesis, Section 2.2.1).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foltr.errors import DataError, SettingsError


@dataclass(frozen=True, slots=True)
class ClickModel:
    """A cascade user.

    Attributes:
        name: what settings call it.
        click_probability: P(click | grade), one entry per grade from 0 up.
        stop_probability: P(stop | click, grade), one entry per grade from 0 up.
    """

    name: str
    click_probability: tuple[float, ...]
    stop_probability: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.click_probability) != len(self.stop_probability):
            raise SettingsError(f"click model {self.name!r}: one click and one stop probability for each grade")
        for probability in (*self.click_probability, *self.stop_probability):
            if not 0.0 <= probability <= 1.0:
                raise SettingsError(f"click model {self.name!r}: {probability} is not a probability in [0, 1]")


# Thesis, Tables 2.1 and 2.2 for the first three; Table 5.1 for `poison`, the reverse of `perfect`.
_PUBLISHED = {
    3: (
        ClickModel("perfect", (0.0, 0.5, 1.0), (0.0, 0.0, 0.0)),
        ClickModel("navigational", (0.05, 0.5, 0.95), (0.2, 0.5, 0.9)),
        ClickModel("informational", (0.4, 0.7, 0.9), (0.1, 0.3, 0.5)),
        ClickModel("poison", (1.0, 0.5, 0.0), (0.0, 0.0, 0.0)),
    ),
    5: (
        ClickModel("perfect", (0.0, 0.2, 0.4, 0.8, 1.0), (0.0, 0.0, 0.0, 0.0, 0.0)),
        ClickModel("navigational", (0.05, 0.3, 0.5, 0.7, 0.95), (0.2, 0.3, 0.5, 0.7, 0.9)),
        ClickModel("informational", (0.4, 0.6, 0.7, 0.8, 0.9), (0.1, 0.2, 0.3, 0.4, 0.5)),
        ClickModel("poison", (1.0, 0.8, 0.4, 0.2, 0.0), (0.0, 0.0, 0.0, 0.0, 0.0)),
    ),
}

CLICK_MODEL_NAMES = tuple(model.name for model in _PUBLISHED[5])


def click_model(name: str, n_grades: int) -> ClickModel:
    """Return a published instantiation.

    Args:
        name: one of `CLICK_MODEL_NAMES`.
        n_grades: how many relevance grades the data has, 3 (0 to 2) or 5 (0 to 4).

    Raises:
        SettingsError: an unknown name or number of grades.
    """
    if n_grades not in _PUBLISHED:
        allowed = " or ".join(str(n) for n in _PUBLISHED)
        raise SettingsError(f"click models exist for {allowed} relevance grades, not {n_grades}")
    for model in _PUBLISHED[n_grades]:
        if model.name == name:
            return model
    raise SettingsError(f"unknown click model {name!r}; one of: {', '.join(CLICK_MODEL_NAMES)}")


def simulate_clicks(
    model: ClickModel, relevance_of_shown: NDArray[np.integer], rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Let one user read one result list.

    Args:
        model: the user.
        relevance_of_shown: (k,) integer grades in the order shown.
        rng: advanced by 2k uniform draws however early the user stops, so that a run with another model sees
            the same later randomness.

    Returns:
        (k,) bool, whether each document was clicked.

    Raises:
        DataError: a grade the model has no probability for.
    """
    # Python numbers, not arrays: for ten documents this loop costs less than one NumPy call per position.
    grades: list[int] = relevance_of_shown.tolist()
    highest = len(model.click_probability) - 1
    draws = rng.random(2 * len(grades)).tolist()
    clicks = np.zeros(len(grades), np.bool_)
    if grades and not 0 <= min(grades) <= max(grades) <= highest:
        raise DataError(f"click model {model.name!r} knows grades 0 to {highest}, not all of {grades}")
    for i, grade in enumerate(grades):
        if draws[2 * i] < model.click_probability[grade]:
            clicks[i] = True
            if draws[2 * i + 1] < model.stop_probability[grade]:
                break
    return clicks
