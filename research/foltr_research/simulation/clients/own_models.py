"""Each client has a model of its own, and takes the newest one in its place only if it explains its clicks better.

`foltr_research.simulation.clients.acceptance` says what the test is; here is only who judges which models by what. A
client that takes no model learns on from its own; what it learned in a round is sent all the same and added to the
federation's model, as everybody's. In RankGuard, where there is no federation's model, a node's own model stands in the
same place.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foltr.core.evaluation.click_models import ClickModel, examined
from foltr.core.methods.base import scores_of
from foltr.core.methods.registry import Ranker
from foltr_research.simulation.clients.acceptance import MOST_LISTS, Acceptance, ClickedList, explained, judge
from foltr_research.simulation.clients.population import Population

State = dict[str, NDArray[np.generic]]


@dataclass(frozen=True, eq=False)
class _Remembered:
    """A list in a client's history: of which query of its data set, and what was clicked."""

    pick: int
    clicked: ClickedList


class OwnModels:
    """The models that clients rank with, and the histories by which they judge the newest.

    Args:
        first: (n_weights,) float32, which everybody begins with.
        level: of the test.
    """

    def __init__(self, population: Population, ranker: Ranker, first: NDArray[np.float32], level: float) -> None:
        self._level = level
        self._population = population
        self._ranker = ranker
        self._models = np.tile(first, (len(population.clients), 1))
        self._histories: list[list[_Remembered]] = [[] for _ in population.clients]

    def judge(self, client: int, newest: NDArray[np.float32]) -> Acceptance:
        """Say whether a client would take the newest model in place of its own; nothing is changed."""
        history = self._histories[client]
        data = self._population.datasets[self._population.clients[client].dataset]
        picks, query_of = np.unique(np.array([one.pick for one in history], np.int64), return_inverse=True)
        sizes = data.offsets[picks + 1] - data.offsets[picks]
        ends = np.cumsum(sizes)
        rows = np.repeat(data.offsets[picks] - (ends - sizes), sizes) + np.arange(sizes.sum())
        features = data.features[rows]
        with np.errstate(over="ignore", invalid="ignore"):  # what is not a number explains nothing
            scores = np.stack(
                [scores_of(self._ranker, weights, features) for weights in (self._models[client], newest)]
            )
        spans = np.stack([ends - sizes, ends], axis=1)[query_of]
        kept, new = explained(scores, spans, [one.clicked for one in history])
        return judge(kept, new, self._level)

    def model_under(self, client: int, newest: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return (n_weights,) what a client would rank with: the newest model if it takes it, else its own."""
        return newest if self.judge(client, newest).accepted else self._models[client]

    def keep(self, client: int, weights: NDArray[np.floating]) -> None:
        """Let a client go on from (n_weights,) what it has learned."""
        self._models[client] = weights

    def take_list(
        self,
        client: int,
        pick: int,
        model: ClickModel,
        ranking: NDArray[np.int64],
        relevance: NDArray[np.integer],
        clicks: NDArray[np.bool_],
    ) -> None:
        """Add a list to a client's history; one without a click says nothing.

        Args:
            pick: which query of the client's data set it was.
            model: by which the user clicked, and which knows how likely each position was examined.
            ranking: (k,) indices of the documents shown; ``relevance`` and ``clicks`` (k,) of these.
        """
        if not clicks.any():
            return
        clicked = ClickedList(ranking[clicks], examined(model, relevance, clicks)[clicks])
        history = self._histories[client]
        history.append(_Remembered(pick, clicked))
        del history[:-MOST_LISTS]

    def state(self) -> State:
        """Return all of it as arrays."""
        kept = [one for history in self._histories for one in history]
        return {
            "own_models": self._models,
            "n_remembered": np.array([len(history) for history in self._histories], np.int64),
            "remembered_picks": np.array([one.pick for one in kept], np.int64),
            "n_clicked": np.array([len(one.clicked.clicked) for one in kept], np.int64),
            "clicked": np.concatenate([np.zeros(0, np.int64), *(one.clicked.clicked for one in kept)]),
            "propensities": np.concatenate([np.zeros(0), *(one.clicked.propensities for one in kept)]),
        }

    def restore(self, state: State) -> None:
        """Go on from a state."""
        self._models = state["own_models"].astype(np.float32)
        ends = np.cumsum(state["n_clicked"])[:-1]
        clicked = np.split(state["clicked"].astype(np.int64), ends)
        propensities = np.split(state["propensities"].astype(np.float64), ends)
        picks = state["remembered_picks"].tolist()
        # Without any list there is one empty part all the same.
        parts = zip(picks, clicked, propensities, strict=False)
        kept = iter([_Remembered(pick, ClickedList(documents, seen)) for pick, documents, seen in parts])
        self._histories = [[next(kept) for _ in range(n)] for n in state["n_remembered"].tolist()]
