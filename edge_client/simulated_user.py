"""A simulated user: queries from a ranking dataset, clicks from a click model, through the same SDK."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from edge_client.client import EdgeClient
from foltr.click_models import ClickModel, simulate_clicks
from foltr.datasets import RankingDataset


@dataclass
class SimulatedUser:
    """Issues random queries of ``dataset`` and clicks as ``click_model`` says.

    Attributes:
        n_interactions: how many result lists it has seen.
    """

    client: EdgeClient
    dataset: RankingDataset
    click_model: ClickModel
    rng: np.random.Generator
    n_interactions: int = 0

    def interact(self) -> None:
        """One query: see a result list, click or not."""
        query = self.dataset.query(int(self.rng.integers(self.dataset.n_queries)))
        serp = self.client.rank(query.features)
        clicks = simulate_clicks(self.click_model, query.relevance[serp.ranking], self.rng)
        self.client.record_clicks(serp, np.flatnonzero(clicks).tolist())
        self.n_interactions += 1

    async def take_part(
        self,
        interactions_per_round: int,
        *,
        n_rounds: int | None = None,
        round_timeout_s: float = 120.0,
        on_round: Callable[[int], None] | None = None,
    ) -> int:
        """Interact in every round until the federation's last, or ``n_rounds``; returns how many it saw.

        Args:
            on_round: told the number of each round as it opens.

        Raises:
            UnavailableError: no new round within ``round_timeout_s``.
        """
        seen = newest = 0
        while n_rounds is None or seen < n_rounds:
            round_ = await self.client.next_round(after=newest, timeout_s=round_timeout_s)
            if not round_.open:
                break
            newest = round_.round
            seen += 1
            if on_round is not None:
                on_round(newest)
            for _ in range(interactions_per_round):
                self.interact()
        await self.client.wait_settled(timeout_s=10.0)
        return seen
