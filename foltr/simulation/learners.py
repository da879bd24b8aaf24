"""What a simulation trains: something that learns round by round and can be evaluated, stored and restored."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from foltr.methods.registry import AnyTraining, Ranker, make_aggregation
from foltr.simulation.population import Population
from foltr.simulation.runners import Experience, Runner, State


class Learner(Protocol):
    """A federation, or one of the references of `foltr.simulation.centralised`."""

    @property
    def weights(self) -> NDArray[np.float32]:
        """(n_weights,) of the shared ranker."""

    def round(self, number: int) -> Experience:
        """Learn from one more round's interactions, number from 1."""

    def ranker_of(self, client: int) -> NDArray[np.floating]:
        """(n_weights,) of the ranker one client would use now."""

    def state(self) -> State:
        """All that `round` changes, apart from the clients' streams."""

    def restore(self, state: State) -> None:
        """Go on from a state."""


class Federation:
    """The federator's side of a simulated round: who takes part, the aggregation, the next model.

    Args:
        first: (n_weights + n_auxiliary,) the first model.
        participants: of each round; None for all clients.
    """

    def __init__(
        self,
        population: Population,
        runner: Runner,
        training: AnyTraining,
        ranker: Ranker,
        first: NDArray[np.float32],
        seed: int,
        participants: int | None,
    ) -> None:
        self._runner = runner
        self._training = training
        self._ranker = ranker
        self._model = first
        self._optimiser: bytes | None = None
        self._seed = seed
        self._participants = participants
        names = [client.name for client in population.clients]
        # The federator adds updates in the order of the clients' names, and "device-1000" is before "device-101".
        self._in_order = np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)

    @property
    def weights(self) -> NDArray[np.float32]:
        return self._model[: self._ranker.n_weights]

    def round(self, number: int) -> Experience:
        chosen = participants_of(self._seed, number, len(self._in_order), self._participants)
        clients = self._in_order if chosen is None else self._in_order[chosen]
        aggregation = make_aggregation(self._training, self._ranker)
        # The first model is version 0, and every round makes one.
        experience = self._runner.run(self._model, number - 1, clients, aggregation)
        self._model, self._optimiser = aggregation.finish(self._model, self._optimiser)
        return experience

    def ranker_of(self, client: int) -> NDArray[np.floating]:
        return self._runner.ranker_of(client, self._model)

    def state(self) -> State:
        optimiser = np.frombuffer(self._optimiser or b"", np.uint8)
        return {"model": self._model, "optimiser": optimiser, **self._runner.state()}

    def restore(self, state: State) -> None:
        self._model = state["model"].astype(np.float32)
        self._optimiser = state["optimiser"].tobytes() or None
        self._runner.restore(state)


def participants_of(seed: int, number: int, n_clients: int, participants: int | None) -> NDArray[np.int64] | None:
    """Who takes part in a round, ascending; None for all. From a stream of its own for each round."""
    if participants is None or participants == n_clients:
        return None
    rng = np.random.default_rng(np.random.SeedSequence([seed, number, *b"participants"]))
    return np.sort(rng.choice(n_clients, size=participants, replace=False))
