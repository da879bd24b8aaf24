"""What the rounds of a simulation earned, and whether the last of them are a decline.

The rule is `foltr.core.aggregation.effectiveness`. A client's reward is the mean reciprocal rank of the first click
over its lists, as a device says it with an update. Of secure sums only what they add up to is known.
"""

from collections.abc import Mapping
from dataclasses import astuple

import numpy as np
from numpy.typing import NDArray

from foltr.core.aggregation.effectiveness import JUDGED_WINDOW, Decline, RoundReward, decline_in, reward_of_updates
from foltr.core.methods.base import Memory
from foltr_research.simulation.runners import Experience, State

LIED_REWARDS: Mapping[str, float | None] = {"worse": 0.0, "better": 1.0, "honest": None}
"""What `foltr_research.simulation.config.SimulationConfig.liars_vote` has hostile clients say; None: what they have
seen."""


class Declines:
    """The rewards of the rounds since a model last took the place of others, and the models that these trained from.

    Args:
        n_liars: so many clients, from the first on, say ``lie``.
        lie: None: nobody lies.
    """

    def __init__(self, n_liars: int = 0, lie: float | None = None) -> None:
        self._n_liars = 0 if lie is None else n_liars
        self._lie = lie
        self._told: dict[int, float] = {}
        self._rewards: list[RoundReward] = []
        self._models: dict[int, tuple[NDArray[np.float32], bytes | None]] = {}

    def reward_of(self, version: int, experience: Experience) -> RoundReward:
        """Return what a round earned by what its clients say.

        Args:
            version: of the model that it trained from.
        """
        said = self._said(experience)
        return reward_of_updates(version, len(said), float(said.sum()), float((said**2).sum()))

    def take_lists(self, experience: Experience) -> None:
        """Take what the clients of a round saw, of which `rewards_of` says what they tell."""
        self._told = dict(zip(experience.clients.tolist(), self._said(experience).tolist(), strict=True))

    def rewards_of(self, senders: Mapping[int, str]) -> dict[str, float]:
        """Return by name the mean reward that each of these tells with an update.

        Args:
            senders: who sends one in the round whose lists were taken last, and under which name.
        """
        return {name: self._told[client] for client, name in senders.items()}

    def _said(self, experience: Experience) -> NDArray[np.float64]:
        """(clients,): the mean reward that each tells."""
        return np.where(experience.clients < self._n_liars, self._lie or 0.0, experience.reciprocal_ranks)

    def decline_with(self, reward: RoundReward) -> Decline | None:
        """Return how far the rounds up to one that is about to end are below those before; None where by chance."""
        return decline_in([*self._rewards, reward])

    def keep(self, reward: RoundReward, model: NDArray[np.float32], memory: Memory) -> None:
        """Count a round that made a model.

        Args:
            model: (n_weights + n_auxiliary,) that it trained from, with the federator's ``memory`` after that.
        """
        self._rewards = [*self._rewards, reward][-JUDGED_WINDOW:]
        self._models[reward.base_version] = model, memory.optimiser
        kept = {each.base_version for each in self._rewards}
        self._models = {version: one for version, one in self._models.items() if version in kept}

    def model(self, version: int) -> tuple[NDArray[np.float32], bytes | None]:
        """Return a model that a counted round trained from, and the state of the federator's optimiser after it."""
        return self._models[version]

    def begin_anew(self) -> None:
        """Count no round of before: a model has taken the place of others."""
        self._rewards, self._models = [], {}

    def state(self) -> State:
        """Return all of it as arrays."""
        models = [self._models[each.base_version] for each in self._rewards]
        states = [optimiser or b"" for _, optimiser in models]
        return {
            "rewards": np.array([astuple(each) for each in self._rewards], np.float64).reshape(-1, 4),
            "rewarded_models": np.stack([model for model, _ in models]) if models else np.zeros((0, 0), np.float32),
            "rewarded_optimisers": np.frombuffer(b"".join(states), np.uint8),
            "rewarded_optimiser_sizes": np.array([len(each) for each in states], np.int64),
        }

    def restore(self, state: State) -> None:
        """Go on from a state."""
        rows = state["rewards"].astype(np.float64).tolist()
        self._rewards = [RoundReward(int(version), int(n), *rest) for version, n, *rest in rows]
        ends = np.cumsum(state["rewarded_optimiser_sizes"])[:-1]
        optimisers = np.split(state["rewarded_optimisers"], ends) if self._rewards else []
        models = state["rewarded_models"].astype(np.float32)
        self._models = {
            each.base_version: (model, optimiser.tobytes() or None)
            for each, model, optimiser in zip(self._rewards, models, optimisers, strict=True)
        }
