"""A population in which one client likes marked documents, and the others do not.

The mark is an additional feature: 1 for a fifth of the documents, drawn independently of relevance, 0 for the others.
The last client has the preference. It clicks like the others, and additionally clicks a marked document it examines
with a probability, the strength of the preference.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from foltr.core.data.dataset import RankingDataset, relabel
from foltr.core.errors import SettingsError
from foltr.core.evaluation.click_models import ClickModel
from foltr_research.simulation.clients.loading import Experiment, population_for
from foltr_research.simulation.clients.population import Population
from foltr_research.simulation.config import SimulationConfig

MARKED_SHARE = 0.2


def marked_population(config: SimulationConfig, data: Experiment, strength: float) -> Population:
    """Return the population of a configuration with marked documents, whose last client likes them.

    Which documents are marked depends on the data alone, so it is equally public. The last feature is the mark.

    Args:
        strength: the probability that the last client clicks a marked document because of the mark; at 0 it clicks like
            the others.

    Raises:
        SettingsError: the strength is not a probability, or clients do not all have the same data.
    """
    if not 0.0 <= strength <= 1.0:
        raise SettingsError(f"strength: {strength} is not a probability in [0, 1]")
    if config.population != "iid":
        raise SettingsError(f"population: marked documents are those of one data set for all, not {config.population}")
    rng = np.random.default_rng(np.random.SeedSequence([*b"marked documents"]))
    train, marks = _with_marks(data.train, rng)
    test, _ = _with_marks(data.test, rng)
    plain = population_for(config, replace(data, train=train, test=test))
    # A click model knows a document only by its grade, so marked documents get separate grades.
    liked = relabel(train, (train.relevance + data.n_grades * marks).astype(np.int16), f"{train.name}, marked")
    *others, last = (
        replace(client, click_models=tuple(_liking(model, 0.0) for model in client.click_models))
        for client in plain.clients
    )
    models = tuple(_liking(model, strength) for model in plain.clients[-1].click_models)
    return replace(plain, datasets=(train, liked), clients=(*others, replace(last, dataset=1, click_models=models)))


def _with_marks(dataset: RankingDataset, rng: np.random.Generator) -> tuple[RankingDataset, NDArray[np.bool_]]:
    n_documents = len(dataset.relevance)
    marks = rng.permutation(n_documents) < round(MARKED_SHARE * n_documents)
    features = np.concatenate((dataset.features, marks[:, None].astype(np.float32)), axis=1)
    return replace(dataset, features=np.ascontiguousarray(features)), marks


def _liking(model: ClickModel, strength: float) -> ClickModel:
    """Return the user who clicks by relevance or, with this probability, by the mark; grades twice, the marked last.

    All users of a simulation need equally many grades, so indifferent users have them twice, too.
    """
    marked = (1.0 - (1.0 - click) * (1.0 - strength) for click in model.click_probability)
    return replace(
        model,
        click_probability=(*model.click_probability, *marked),
        stop_probability=2 * model.stop_probability,
    )
