"""Clients of a simulation compare the newest model with the anchor and vote; liars vote as configured.

`foltr.core.learning.comparison` has the device's comparison of a list, `foltr.core.aggregation.vote_result` the
federator's count. Here is who votes, and about which model.
"""

from collections.abc import Callable, Mapping
from dataclasses import astuple

import numpy as np
from numpy.typing import NDArray

from foltr.core.aggregation.vote_result import VOTE_ROUNDS, RoundTally, VoteResult, result_of_tallies, result_of_votes
from foltr.core.learning.agreement import agreement, preferences
from foltr.core.learning.comparison import Comparison, Opinion
from foltr.core.methods.base import scores_of
from foltr.core.methods.registry import Ranker

State = dict[str, NDArray[np.generic]]
WeightsUnder = Callable[[int, NDArray[np.float32]], NDArray[np.floating]]
"""(n_weights,) of the ranker that a client would use under a global model."""
LIES: Mapping[str, Opinion | None] = {"worse": Opinion.WORSE, "better": Opinion.BETTER, "honest": None}
"""Values of `foltr_research.simulation.config.SimulationConfig.liars_vote`; None: vote by the users' clicks."""


class Voters:
    """The clients' comparisons with one anchor, and their newest votes on it.

    Args:
        anchor: (n_weights + n_auxiliary,) the first one.
        liars: clients that always vote ``lie``.
        lie: None: nobody lies.

    Attributes:
        anchor: (n_weights + n_auxiliary,) the global model that the newest is compared with.
    """

    def __init__(self, ranker: Ranker, anchor: NDArray[np.float32], liars: frozenset[int], lie: Opinion | None) -> None:
        self.anchor = anchor
        self._ranker = ranker
        self._liars = liars
        self._lie = lie
        self._comparisons: dict[int, Comparison] = {}
        self._votes: dict[str, Opinion] = {}
        self._rounds: dict[str, list[int]] = {}
        self._tallies: list[RoundTally] = []

    def compares(self, base: NDArray[np.float32]) -> bool:
        """Whether the model differs from the anchor, so that they can be compared."""
        return base.tobytes() != self.anchor.tobytes()

    def take_list(
        self,
        client: int,
        models: tuple[NDArray[np.floating], NDArray[np.floating]],
        features: NDArray[np.float32],
        ranking: NDArray[np.int64],
        reversals: NDArray[np.float64],
        clicks: NDArray[np.bool_],
    ) -> None:
        """Compare two models by a list shown to a client, before learning from it.

        Args:
            models: (n_weights,) each, of the newest and the anchor as received.
            features: (documents, d) of all candidates; ``ranking`` (k,), ``reversals`` and ``clicks`` (k,) of the list.
        """
        said = preferences(reversals, clicks)
        if said.total == 0.0:
            return
        newest, anchor = (agreement(scores_of(self._ranker, weights, features), ranking, said) for weights in models)
        known = self._comparisons.get(client, Comparison())
        self._comparisons[client] = known.with_list(newest, anchor, said.total)

    def take_votes(self, number: int, senders: Mapping[int, str]) -> VoteResult:
        """Add the votes of a round's updates, and return the standing of all counted votes.

        Args:
            number: of the round, from 1.
            senders: clients that send an update in it, with their names.
        """
        self._votes |= self.opinions(senders)
        for name in senders.values():
            self._rounds.setdefault(name, []).append(number)
        recent = {name: [n for n in rounds if number - n < VOTE_ROUNDS] for name, rounds in self._rounds.items()}
        self._rounds = {name: rounds for name, rounds in recent.items() if rounds}
        votes = {name: self._votes.get(name, Opinion.NONE) for name in self._rounds}
        return result_of_votes(votes, {name: len(rounds) for name, rounds in self._rounds.items()})

    def opinions(self, senders: Mapping[int, str]) -> dict[str, Opinion]:
        """Return the current vote of each sender, by name.

        Args:
            senders: clients that vote, with their names.
        """
        lies = {client: self._lie for client in self._liars if self._lie is not None}
        known = {client: self._comparisons.get(client, Comparison()).opinion for client in senders.keys() - lies.keys()}
        return {name: (lies | known)[client] for client, name in senders.items()}

    def take_tally(self, tally: RoundTally, *, is_kept: bool = True) -> VoteResult:
        """Add the tally of a round's secure sums, and return the standing of all counted tallies.

        Args:
            is_kept: whether the round made a model, so that its tally counts in later ones.
        """
        with_this = [tally, *self._tallies][:VOTE_ROUNDS]
        if is_kept:
            self._tallies = with_this
        return result_of_tallies(with_this)

    def take_back(self, number: int) -> None:
        """Restart the comparison with the anchor, again the newest model. The round's updates count no longer."""
        self._rounds = {name: [n for n in rounds if n != number] for name, rounds in self._rounds.items()}
        self.restart(self.anchor)

    def restart(self, anchor: NDArray[np.float32]) -> None:
        """Compare with another anchor from now on. Comparisons with the former one are dropped."""
        self.anchor = anchor
        self._comparisons, self._votes, self._tallies = {}, {}, []

    def state(self) -> State:
        clients, names = sorted(self._comparisons), sorted(self._rounds)
        sums = np.array([self._comparisons[client] for client in clients], np.float64)
        return {
            "anchor": self.anchor,
            "comparing_clients": np.array(clients, np.int64),
            "comparisons": sums.reshape(len(clients), -1) if clients else np.zeros((0, 0)),
            "voters": np.array(names, np.str_),
            "voted": np.array([self._votes.get(name, Opinion.NONE) for name in names], np.int64),
            "n_recent": np.array([len(self._rounds[name]) for name in names], np.int64),
            "recent_rounds": np.array([number for name in names for number in self._rounds[name]], np.int64),
            "tallies": np.array([astuple(tally) for tally in self._tallies], np.float64).reshape(-1, 4),
        }

    def restore(self, state: State) -> None:
        self.anchor = state["anchor"].astype(np.float32)
        rows = state["comparisons"].astype(np.float64).tolist()
        clients = state["comparing_clients"].tolist()
        self._comparisons = {client: Comparison(*row) for client, row in zip(clients, rows, strict=True)}
        names = state["voters"].tolist()
        self._votes = {name: Opinion(vote) for name, vote in zip(names, state["voted"].tolist(), strict=True)}
        of_each = np.split(state["recent_rounds"], np.cumsum(state["n_recent"])[:-1])
        self._rounds = {name: rounds.tolist() for name, rounds in zip(names, of_each, strict=False)}
        self._tallies = [RoundTally(int(n), *rest) for n, *rest in state["tallies"].astype(np.float64).tolist()]
