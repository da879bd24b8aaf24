"""A device reports the ranker's quality by its user's clicks, if the federation asks.

An update then carries three means over its lists: whether one was clicked, the reciprocal rank of the first click, and
the reciprocal rank of these clicks in the application's order (`foltr.core.learning.rewards`).

A federator asks on a separate topic, for the present epoch. Under a policy the policy asks, and the means are masked
(`foltr.edge_client.sums`). A method whose updates contain the device's noise is never evaluated: the means would reveal
of the clicks what the noise should hide.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from foltr.core.learning.rewards import base_order_reward, mean_of_lists
from foltr.core.logs import get_logger
from foltr.core.methods.registry import spec_of
from foltr.core.protocol.codec import Envelope
from foltr.core.protocol.evaluations import Evaluation, EvaluationRequest
from foltr.core.protocol.signing import epoch_and_number
from foltr.core.protocol.trainings import Training
from foltr.edge_client.participation import Participation
from foltr.edge_client.serp import Serp
from foltr.edge_client.store.store import DeviceStore

log = get_logger(__name__)


class Evaluator:
    """Reports for one device the reward of its lists. Any thread may call `base_reward_of`.

    Args:
        enabled: False stores nothing of the base order, and reports nothing.
    """

    def __init__(
        self, federation: str, client_id: str, store: DeviceStore, participation: Participation, *, enabled: bool
    ) -> None:
        self._federation = federation
        self._client_id = client_id
        self._store = store
        self._participation = participation
        self._enabled = enabled
        self._epoch: int | None = None
        self._logged_idle = False

    def receive_request(self, envelope: Envelope) -> None:
        """Take a request; ignore another federation's. MessageError if it cannot be read."""
        if envelope.read(EvaluationRequest).federation == self._federation:
            self._epoch = epoch_and_number(envelope.sequence)[0]

    def base_reward_of(self, serp: Serp, clicks: NDArray[np.bool_]) -> float | None:
        """Return the base reward of a list with its clicks (shown,); None if nobody may know it."""
        if not self._enabled or serp.base_positions is None:
            return None
        return base_order_reward(serp.base_positions, clicks)

    def evaluation_of(self, interaction_ids: Sequence[int]) -> Evaluation | None:
        """Return the evaluation in an update of these interactions; None if nobody asks, or no rewards are stored."""
        if not self._is_asked():
            return None
        lists = self._store.earned(interaction_ids[0], interaction_ids[-1])
        if not lists:
            return None  # all were recorded by software without a base order
        clicked, reward, base_reward = mean_of_lists(lists)
        return Evaluation(clicked=clicked, reward=reward, base_reward=base_reward)

    def _is_asked(self) -> bool:
        training, policy = self._participation.training, self._participation.policy
        if not self._enabled or training is None or self._is_idle(training):
            return False
        if policy is not None:
            return policy.policy.evaluation is not None
        return self._epoch is not None and self._epoch == self._participation.epoch

    def _is_idle(self, training: Training) -> bool:
        """Whether this method allows no evaluation; logged once."""
        cause = spec_of(training).no_evaluation_because
        if cause is not None and not self._logged_idle:
            log.info("evaluation_disabled", client_id=self._client_id, cause=cause)
            self._logged_idle = True
        return cause is not None
