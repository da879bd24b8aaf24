"""A simulated user: queries from a ranking dataset, clicks from a click model, through the same SDK."""

import asyncio
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from foltr.core.data.dataset import RankingDataset
from foltr.core.errors import UnavailableError
from foltr.core.evaluation.click_models import ClickModel, clicks_from_draws, personal
from foltr.core.protocol.announcements import RoundAnnouncement
from foltr.edge_client.blockers import REFUSALS
from foltr.edge_client.client import EdgeClient

# If a broker refuses a device, it may just not know of its enrolment yet.
_LOOK_S = 30.0
_SETTLE_S = 10.0


class SimulatedUser:
    """Issues random queries of ``dataset``, and clicks by a click model.

    Args:
        click_models: one or several; of several, one is drawn for each interaction.
        rng: draws what is personal about the click models now, and then one block for each interaction, like the
            simulator's users (see `foltr.core.numerics.streams`).
        queries: (n,) indices of the queries that it may issue; None: all of ``dataset``.

    Attributes:
        n_interactions: how many result lists it has seen.
    """

    def __init__(
        self,
        client: EdgeClient,
        dataset: RankingDataset,
        click_models: ClickModel | Sequence[ClickModel],
        rng: np.random.Generator,
        queries: NDArray[np.int64] | None = None,
    ) -> None:
        self._client = client
        self._dataset = dataset
        models = (click_models,) if isinstance(click_models, ClickModel) else click_models
        self._click_models = tuple(personal(model, rng) for model in models)
        self._rng = rng
        self._queries = np.arange(dataset.n_queries) if queries is None else queries
        self.n_interactions = 0

    def interact(self) -> None:
        """One query: see a result list, click or not."""
        draws = self._rng.random(2 + 2 * self._client.serp_length)
        query = self._dataset.query(int(self._queries[int(draws[0] * len(self._queries))]))
        click_model = self._click_models[int(draws[1] * len(self._click_models))]
        serp = self._client.rank(query.features)
        clicks = clicks_from_draws(click_model, query.relevance[serp.ranking], draws[2:])
        self._client.record_clicks(serp, np.flatnonzero(clicks).tolist())
        self.n_interactions += 1

    async def take_part(
        self,
        interactions_per_round: int,
        *,
        n_rounds: int | None = None,
        round_timeout_s: float = 120.0,
        on_round: Callable[[int], None] | None = None,
    ) -> int:
        """Interact in every round until the federation's last, or ``n_rounds``; return the number of rounds.

        Also ends once its client was forgotten.

        Args:
            interactions_per_round: which the device learns from.
            on_round: called with the number of each round as it opens.

        Raises:
            UnavailableError: no new round within ``round_timeout_s``, or the device is refused.
        """
        seen = newest = 0
        while n_rounds is None or seen < n_rounds:
            try:
                round_ = await self._next_round(newest, round_timeout_s)
            except UnavailableError:
                if self._client.forgotten:
                    break
                raise
            if not round_.open:
                break
            newest = round_.round
            seen += 1
            if on_round is not None:
                on_round(newest)
            for _ in range(interactions_per_round):
                self.interact()
        await self._client.wait_settled(timeout_s=_SETTLE_S)
        return seen

    async def _next_round(self, after: int, timeout_s: float) -> RoundAnnouncement:
        """Wait for a round while one is possible; a refused device would wait in vain."""
        loop, left_s = asyncio.get_running_loop(), timeout_s
        while True:
            look_s, started = min(left_s, _LOOK_S), loop.time()
            try:
                return await self._client.next_round(after, timeout_s=look_s)
            except UnavailableError:
                left_s -= look_s
                # An error before the timeout is final.
                if left_s <= 0.0 or loop.time() - started < look_s or self._is_refused:
                    raise

    @property
    def _is_refused(self) -> bool:
        blocker = self._client.blocker
        return blocker is not None and blocker.kind in REFUSALS
