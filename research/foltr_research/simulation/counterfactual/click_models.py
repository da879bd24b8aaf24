"""Users beyond the table of `foltr.core.evaluation.click_models`: trust bias, UBM and DBN, with own parameters.

Each is a *reader*, like every click model from outside: a function that takes the shown grades and two uniform draws
for each, and returns clicks. `click_model_of` makes one from parameters in a dictionary or a JSON file:

    {"model": "UBM", "attraction": [...], "examination": [[...], [..., ...], ...]}
    {"model": "DBN", "attraction": [...], "satisfaction": [...], "continuation": 0.9}
    {"model": "trust", "relevance": [...], "position_bias": 1.0}

All values are probabilities, except for ``position_bias``. Attraction, satisfaction and relevance have one for each
grade from 0 up. Row r of UBM's examination is rank r: its entry 0 is for no click above, entry i for a last click at
rank i < r.

Names and meaning are those of CLAX (Hager et al., arXiv 2511.03620), which fits such models to logs and has no format
of its own for their parameters. Its UBM numbers examination ``rank * positions + last_click``; its attraction and
satisfaction are of query-document pairs, to be averaged by grade.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from foltr.core.errors import SettingsError
from foltr.core.evaluation.click_models import ClickModel
from foltr.core.evaluation.click_models import click_model as published
from foltr.core.learning.ips import position_propensities
from foltr.core.user_files import FileKind, read_json_file
from foltr_research.simulation.counterfactual.rewards import trust_bias

Probability = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
ByGrade = Annotated[tuple[Probability, ...], Field(min_length=2)]
_USUAL_GRADES: Final = 5
_USUAL_RANKS: Final = 100


@dataclass(frozen=True)
class TrustBiased:
    """Position and trust bias: a click has probability alpha_k R + beta_k (`rewards.trust_bias`).

    Attributes:
        relevance: P(R = 1 | grade).
        position_bias: rank k is examined with probability (1 / k)^position_bias.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    relevance: ByGrade
    position_bias: Annotated[float, Field(ge=0.0, le=10.0, allow_inf_nan=False)] = 1.0

    def __call__(self, grades: NDArray[np.integer], draws: NDArray[np.float64]) -> NDArray[np.bool_]:
        alpha, beta = trust_bias(position_propensities(self.position_bias, len(grades)))
        clicks: NDArray[np.bool_] = draws[:, 0] < alpha * np.array(self.relevance)[grades] + beta
        return clicks


@dataclass(frozen=True)
class UserBrowsing:
    """UBM (Dupret and Piwowarski, SIGIR 2008): examination depends on the rank and on that of the last click.

    P(C_r = 1 | last click at r') = examination[r][r'] * attraction[grade]. Ranks below the last row are not examined.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    attraction: ByGrade
    examination: Annotated[tuple[tuple[Probability, ...], ...], Field(min_length=1)]

    def __post_init__(self) -> None:
        for rank, row in enumerate(self.examination, 1):
            if len(row) != rank:
                raise SettingsError(
                    f"examination: rank {rank} has {len(row)} probabilities; it needs {rank}: for no click above, and "
                    "for a last click at each rank above"
                )

    def __call__(self, grades: NDArray[np.integer], draws: NDArray[np.float64]) -> NDArray[np.bool_]:
        clicks, last = np.zeros(len(grades), np.bool_), 0
        for i, (grade, row) in enumerate(zip(grades.tolist(), self.examination, strict=False)):
            if draws[i, 0] < row[last] * self.attraction[grade]:
                clicks[i], last = True, i + 1
        return clicks


@dataclass(frozen=True)
class DynamicBayesian:
    """DBN (Chapelle and Zhang, WWW 2009): a user reads from the top until satisfied or tired.

    An examined document is clicked with attraction[grade]; a click satisfies with satisfaction[grade], which ends the
    search. Otherwise the user examines the next rank with probability continuation.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    attraction: ByGrade
    satisfaction: ByGrade
    continuation: Probability = 1.0

    def __post_init__(self) -> None:
        if len(self.satisfaction) != len(self.attraction):
            raise SettingsError(
                f"satisfaction: {len(self.satisfaction)} grades, but attraction has {len(self.attraction)}"
            )

    def __call__(self, grades: NDArray[np.integer], draws: NDArray[np.float64]) -> NDArray[np.bool_]:
        clicks = np.zeros(len(grades), np.bool_)
        for i, grade in enumerate(grades.tolist()):
            clicks[i] = draws[i, 0] < self.attraction[grade]
            goes_on = self.continuation * (1.0 - self.satisfaction[grade] * clicks[i])
            if not draws[i, 1] < goes_on:
                break
        return clicks


Reader = TrustBiased | UserBrowsing | DynamicBayesian
_READERS: Final[dict[str, type[Reader]]] = {"trust": TrustBiased, "UBM": UserBrowsing, "DBN": DynamicBayesian}


def click_model_of(parameters: Mapping[str, Any] | str | os.PathLike[str], name: str | None = None) -> ClickModel:
    """Return a click model of these parameters, or of a JSON file with them; see the top of this module.

    Args:
        name: in tables; default: the model's.

    Raises:
        SettingsError: the file cannot be read, or parameters are missing, unknown or no probabilities.
    """
    given = _parameters_in(parameters)
    model = given.pop("model", None)
    if model not in _READERS:
        raise SettingsError(f"model: {model!r:.60} is none of {', '.join(_READERS)}")
    try:
        reader = TypeAdapter(_READERS[model]).validate_python(given)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise SettingsError(f"{model}: {'.'.join(map(str, problem['loc']))}: {problem['msg']}") from error
    return with_reader(name or model, reader)


def with_reader(name: str, reader: Reader) -> ClickModel:
    """Return a click model that reads by a reader. It is for data with as many grades as the reader has."""
    by_grade = reader.relevance if isinstance(reader, TrustBiased) else reader.attraction
    return ClickModel(name, by_grade, (0.0,) * len(by_grade), reads=reader)


def _parameters_in(source: Mapping[str, Any] | str | os.PathLike[str]) -> dict[str, Any]:
    if isinstance(source, Mapping):
        return dict(source)
    try:
        found = read_json_file(os.fspath(source), FileKind.SETTINGS)
    except OSError as error:
        raise SettingsError(f"{os.fspath(source)}: the click model cannot be read: {error.strerror}") from error
    if not isinstance(found, dict):
        raise SettingsError(f"{os.fspath(source)}: expected an object with a model and its parameters")
    return found


def _usual(n_grades: int) -> tuple[ClickModel, ClickModel, ClickModel]:
    """Return trust, UBM and DBN for a number of grades, with the clicks of published users.

    Relevance is that of `perfect`, attraction and satisfaction are those of `navigational`. UBM's examination is ours:
    1 / (rank - rank of the last click). DBN goes on with 0.9, the best of Chapelle and Zhang.
    """
    perfect, navigational = published("perfect", n_grades), published("navigational", n_grades)
    attraction, satisfaction = navigational.click_probability, navigational.stop_probability
    browsing = tuple(tuple(1.0 / (rank - last) for last in range(rank)) for rank in range(1, _USUAL_RANKS + 1))
    more = "" if n_grades == _USUAL_GRADES else str(n_grades)
    return (
        with_reader(f"trust{more}", TrustBiased(perfect.click_probability)),
        with_reader(f"ubm{more}", UserBrowsing(attraction, browsing)),
        with_reader(f"dbn{more}", DynamicBayesian(attraction, satisfaction, 0.9)),
    )


TRUST, UBM, DBN = _usual(5)
TRUST3, UBM3, DBN3 = _usual(3)
