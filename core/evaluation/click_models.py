"""Simulated users: how likely a shown document is clicked, and whether the user reads on.

One table serves all published models. The user reads from the top and clicks the document of grade g at rank i with
probability (1 / i)^exponent * click[g]; after a click the user stops with probability stop[g].

- Cascade (Guo et al. 2009; Wang's thesis, Section 2.2.1, Tables 2.1 and 2.2): exponent 0. `poison` is the attacker of
  the thesis' Table 5.1, who likes the irrelevant best.
- Position-based (Craswell et al. 2008; thesis, Section 4.5.1): nobody stops, and `pbm-<eta>` has exponent eta. The
  thesis gives no probability of a click on an examined document; ours are those of the `perfect` user.
- `fedips-<gamma>`, the position-based user of FedIPS (Section 4, Eq. 11): a relevant document that is examined is
  always clicked, another with probability 0.1, and every user has a personal exponent near gamma.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import DataError, SettingsError
from foltr.core.installed_plugins import also_installed
from foltr.core.numerics.compiled import compiled


@dataclass(frozen=True)
class ClickModel:
    """A user.

    Attributes:
        name: what settings call it.
        click_probability: P(click | grade, examined), one entry per grade from 0 up.
        stop_probability: P(stop | click, grade), one entry per grade from 0 up.
        examination_exponent: how fast attention falls with the rank, >= 0; 0 for a user who examines all.
        personal_spread: standard deviation of the exponent among users, >= 0; see `personal`.
        reads: a user that the table cannot describe: returns (k,) bool clicks from (k,) grades in the order shown and
            (k, 2) uniform draws. Then only the numbers of grades count in the table. None reads by the table.
    """

    name: str
    click_probability: tuple[float, ...]
    stop_probability: tuple[float, ...]
    examination_exponent: float = 0.0
    personal_spread: float = 0.0
    # Without its address, which differs from process to process.
    reads: Callable[[NDArray[np.integer], NDArray[np.float64]], NDArray[np.bool_]] | None = field(
        default=None, repr=False
    )
    # The same as arrays, made once: converting per interaction would cost more than the clicks.
    _click: NDArray[np.float64] = field(init=False, repr=False, compare=False)
    _stop: NDArray[np.float64] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.click_probability) != len(self.stop_probability):
            raise SettingsError(f"click model {self.name!r}: one click and one stop probability for each grade")
        for probability in (*self.click_probability, *self.stop_probability):
            if not 0.0 <= probability <= 1.0:
                raise SettingsError(f"click model {self.name!r}: {probability} is not a probability in [0, 1]")
        for value in (self.examination_exponent, self.personal_spread):
            if not 0.0 <= value < math.inf:
                raise SettingsError(f"click model {self.name!r}: exponent and spread must be at least 0, not {value}")
        object.__setattr__(self, "_click", np.array(self.click_probability, np.float64))
        object.__setattr__(self, "_stop", np.array(self.stop_probability, np.float64))


_CASCADE: dict[int, dict[str, tuple[tuple[float, ...], tuple[float, ...]]]] = {
    # Labels of one intent are binary (Wang and Zuccon 2022, Table 4); `poison` is the reverse of `perfect`, as below.
    2: {
        "perfect": ((0.0, 1.0), (0.0, 0.0)),
        "navigational": ((0.05, 0.95), (0.2, 0.9)),
        "informational": ((0.3, 0.7), (0.1, 0.5)),
        "poison": ((1.0, 0.0), (0.0, 0.0)),
    },
    3: {
        "perfect": ((0.0, 0.5, 1.0), (0.0, 0.0, 0.0)),
        "navigational": ((0.05, 0.5, 0.95), (0.2, 0.5, 0.9)),
        "informational": ((0.4, 0.7, 0.9), (0.1, 0.3, 0.5)),
        "poison": ((1.0, 0.5, 0.0), (0.0, 0.0, 0.0)),
    },
    5: {
        "perfect": ((0.0, 0.2, 0.4, 0.8, 1.0), (0.0, 0.0, 0.0, 0.0, 0.0)),
        "navigational": ((0.05, 0.3, 0.5, 0.7, 0.95), (0.2, 0.3, 0.5, 0.7, 0.9)),
        "informational": ((0.4, 0.6, 0.7, 0.8, 0.9), (0.1, 0.2, 0.3, 0.4, 0.5)),
        "poison": ((1.0, 0.8, 0.4, 0.2, 0.0), (0.0, 0.0, 0.0, 0.0, 0.0)),
    },
}
# FedIPS names grades 3 and 4 of five; of three we take 1 and 2: the grades above "not relevant".
_FEDIPS_CLICK = {2: (0.1, 1.0), 3: (0.1, 1.0, 1.0), 5: (0.1, 0.1, 0.1, 1.0, 1.0)}
_PBM_PREFIX, _FEDIPS_PREFIX = "pbm-", "fedips-"
_FEDIPS_SPREAD = 0.1

CLICK_MODEL_NAMES = tuple(_CASCADE[5])
"""The models with a fixed name; `pbm-<eta>` and `fedips-<gamma>` exist for any exponent >= 0 besides."""


@functools.cache
def click_model(name: str, n_grades: int) -> ClickModel:
    """Return a published instantiation.

    Args:
        name: one of `CLICK_MODEL_NAMES`, `pbm-<eta>` or `fedips-<gamma>`, e.g. `pbm-0.5`. The thesis has eta 0, 0.5,
            1, 1.5 and 2.
        n_grades: how many relevance grades the data has: 2 (0 and 1), 3 (0 to 2) or 5 (0 to 4).

    Raises:
        SettingsError: an unknown name or number of grades.
    """
    if n_grades not in _CASCADE:
        allowed = ", ".join(str(n) for n in _CASCADE)
        raise SettingsError(f"click models exist for {allowed} relevance grades, not {n_grades}")
    never_stops = (0.0,) * n_grades
    if name in _CASCADE[n_grades]:
        return ClickModel(name, *_CASCADE[n_grades][name])
    try:
        if name.startswith(_PBM_PREFIX):
            eta = float(name.removeprefix(_PBM_PREFIX))
            return ClickModel(name, _CASCADE[n_grades]["perfect"][0], never_stops, eta)
        if name.startswith(_FEDIPS_PREFIX):
            gamma = float(name.removeprefix(_FEDIPS_PREFIX))
            return ClickModel(name, _FEDIPS_CLICK[n_grades], never_stops, gamma, _FEDIPS_SPREAD)
    except (ValueError, SettingsError) as error:
        raise SettingsError(
            f"click model {name!r}: write pbm-<eta> or fedips-<gamma> with a number of at least 0, e.g. pbm-0.5"
        ) from error
    known = ", ".join((*CLICK_MODEL_NAMES, "pbm-<eta>", "fedips-<gamma>"))
    raise SettingsError(
        f"unknown click model {name!r}; one of: {known}{also_installed('foltr.click_models', CLICK_MODEL_NAMES)}"
    )


def personal(model: ClickModel, rng: np.random.Generator) -> ClickModel:
    """Return one user of a model whose users differ: its exponent, drawn once when the user is made.

    FedIPS, Section 4: the exponent is normal with the model's exponent as its mean, truncated at 0.

    Args:
        model: returned as it is, with nothing drawn, if its spread is 0.
        rng: advanced by as many normal draws as it takes to see one that is not negative.
    """
    if model.personal_spread == 0.0:
        return model
    while True:
        exponent = rng.normal(model.examination_exponent, model.personal_spread)
        if exponent >= 0.0:
            return replace(model, examination_exponent=float(exponent), personal_spread=0.0)


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
    return clicks_from_draws(model, relevance_of_shown, rng.random(2 * len(relevance_of_shown)))


def clicks_from_draws(
    model: ClickModel, relevance_of_shown: NDArray[np.integer], draws: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Return what a user clicks, given uniform draws.

    Args:
        model: the user.
        relevance_of_shown: (k,) integer grades in the order shown.
        draws: (2k or more,) float64 in [0, 1): for the document at 0-based position i, draws[2i] decides the click and
            draws[2i + 1] whether the user stops after it.

    Returns:
        (k,) bool, whether each document was clicked.

    Raises:
        DataError: a grade the model has no probability for, too few draws, or clicks of another shape.
    """
    length = len(relevance_of_shown)
    if len(draws) < 2 * length:
        raise DataError(f"{length} documents need {2 * length} draws, not {len(draws)}")
    if length:
        check_grades(model, int(relevance_of_shown.min()), int(relevance_of_shown.max()))
    if model.reads is not None:
        clicks = np.asarray(model.reads(relevance_of_shown, draws[: 2 * length].reshape(length, 2)))
        if clicks.shape != (length,) or clicks.dtype != np.bool_:
            raise DataError(
                f"click model {model.name!r} must return ({length},) bool, not {clicks.shape} {clicks.dtype}"
            )
        return clicks
    examination = examination_by_rank(model.examination_exponent, length)
    return read_serp(model._click, model._stop, examination, relevance_of_shown, draws)  # noqa: SLF001


def examined(
    model: ClickModel, relevance_of_shown: NDArray[np.integer], clicks: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return how likely the user examined each position, given the clicks above it: the cause of position bias.

    (1 / i)^exponent times the probability that the user read on after every click above. It uses the grades, which
    devices lack: propensities estimated without any error.

    Args:
        model: the user.
        relevance_of_shown: (k,) integer grades in the order shown.
        clicks: (k,) bool.

    Returns:
        (k,) float64 in [0, 1].
    """
    read_on = np.where(clicks, 1.0 - model._stop[relevance_of_shown], 1.0)  # noqa: SLF001
    above = np.concatenate([[1.0], np.cumprod(read_on)[:-1]])[: len(clicks)]
    of_ranks = examination_by_rank(model.examination_exponent, len(clicks))
    probabilities: NDArray[np.float64] = above * of_ranks
    return probabilities


def check_grades(model: ClickModel, lowest: int, highest: int) -> None:
    """Raise DataError unless the model has probabilities for the grades lowest to highest."""
    known = len(model.click_probability) - 1
    if not 0 <= lowest <= highest <= known:
        raise DataError(f"click model {model.name!r} knows grades 0 to {known}, not {lowest} to {highest}")


@functools.lru_cache(maxsize=4096)
def examination_by_rank(exponent: float, k: int) -> NDArray[np.float64]:
    """Return P(examined) for ranks 1 to k, (1 / rank)^exponent: (k,) float64, not to be written to."""
    examination = np.array([(1.0 / rank) ** exponent for rank in range(1, k + 1)], np.float64)
    examination.flags.writeable = False
    return examination


@compiled
def read_serp(
    click: NDArray[np.float64],
    stop: NDArray[np.float64],
    examination: NDArray[np.float64],
    relevance_of_shown: NDArray[np.integer],
    draws: NDArray[np.float64],
) -> NDArray[np.bool_]:
    """The kernel of `clicks_from_draws`; shapes and grades are checked by its callers.

    Args:
        click: (grades,) float64.
        stop: (grades,) float64.
        examination: (k or more,) float64.
        relevance_of_shown: (k,) integer.
        draws: (2k or more,) float64.

    Returns:
        (k,) bool.
    """
    clicks = np.zeros(relevance_of_shown.shape[0], np.bool_)
    for i in range(relevance_of_shown.shape[0]):
        grade = relevance_of_shown[i]
        if draws[2 * i] < examination[i] * click[grade]:
            clicks[i] = True
            if draws[2 * i + 1] < stop[grade]:
                break
    return clicks
