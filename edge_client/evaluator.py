"""A device reports the ranker's quality by its user's clicks, if the federation asks.

An update then carries three means over its lists: whether one was clicked, the reciprocal rank of the first click, and
the reciprocal rank of these clicks in the application's order (`foltr.core.learning.rewards`); and the credits of lists
that mixed both orders. The federator announces those of all clients, by which the gate may open sooner.

A federator asks on a separate topic, for the present epoch. Under a policy the policy asks, and all is masked
(`foltr.edge_client.sums`). Updates are then few and small, so each has the credits of all lists since the one before,
also of those that wait for a later one. A method whose updates contain the device's noise is never evaluated: the means
would reveal of the clicks what the noise should hide.
"""

from collections.abc import Sequence
from math import fsum

from foltr.core.learning.credits import Credits
from foltr.core.learning.rewards import mean_of_lists
from foltr.core.logs import get_logger
from foltr.core.methods.registry import spec_of
from foltr.core.protocol.codec import Envelope
from foltr.core.protocol.evaluations import Evaluation, EvaluationRequest
from foltr.core.protocol.signing import epoch_and_number
from foltr.core.protocol.trainings import Training
from foltr.edge_client.gating import DeviceGate
from foltr.edge_client.participation import Participation
from foltr.edge_client.store.store import DeviceStore

log = get_logger(__name__)
_ALL = -1


class Evaluator:
    """Reports for one device the reward of its lists.

    Args:
        gate: gets the credits of all clients; None without one.
        is_enabled: False stores nothing of the base order, and reports nothing. Any thread may read it.
    """

    def __init__(
        self,
        federation: str,
        client_id: str,
        store: DeviceStore,
        participation: Participation,
        gate: DeviceGate | None = None,
        *,
        is_enabled: bool,
    ) -> None:
        self._federation = federation
        self._client_id = client_id
        self._store = store
        self._participation = participation
        self._gate = gate
        self.is_enabled = is_enabled
        self._epoch: int | None = None
        self._request: EvaluationRequest | None = None
        self._logged_idle = False

    def receive_request(self, envelope: Envelope) -> None:
        """Take a request; ignore another federation's. MessageError if it cannot be read."""
        request = envelope.read(EvaluationRequest)
        if request.federation == self._federation:
            self._epoch, self._request = epoch_and_number(envelope.sequence)[0], request
            self.share_credits()

    def share_credits(self) -> None:
        """Let the gate use the credits of all clients while they hold; again with each round, which has the epoch."""
        if self._gate is not None:
            request = self._request if self._is_asked() and self._is_current and self._has_credits() else None
            self._gate.share(Credits() if request is None else Credits(request.credit_total, request.credit_squares))

    def evaluation_of(self, interaction_ids: Sequence[int]) -> Evaluation | None:
        """Return the evaluation in an update of these interactions; None if nobody asks, or no rewards are stored."""
        if not self._is_asked():
            return None
        since = 0 if self._request is None else self._request.credits_since
        lists = self._store.earned(interaction_ids[0], interaction_ids[-1], since)
        if not lists:
            return None  # all were recorded by software without a base order
        credited = lists
        if self._participation.policy is not None:
            credited = self._store.earned(interaction_ids[0], self._store.waiting_ids(_ALL)[-1], since)
        clicked, reward, base_reward = mean_of_lists(lists)
        return Evaluation(
            clicked=clicked,
            reward=reward,
            base_reward=base_reward,
            credit_total=fsum(each.credit for each in credited),
            credit_squares=fsum(each.credit**2 for each in credited),
        )

    def _is_asked(self) -> bool:
        training, policy = self._participation.training, self._participation.policy
        if not self.is_enabled or training is None or self._is_idle(training):
            return False
        if policy is not None:
            return policy.policy.evaluation is not None
        return self._is_current

    @property
    def _is_current(self) -> bool:
        return self._epoch is not None and self._epoch == self._participation.epoch

    def _has_credits(self) -> bool:
        """Whether clients here send credits; if not, announced ones are not used, which is logged once."""
        policy = self._participation.policy
        if policy is None or policy.policy.credit_weight:
            return True
        if self._request is not None and self._request.credit_squares:
            cause = f"policy {policy.version} has no credits in its sums, and the federator announces some"
            self._log_idle(cause)
        return False

    def _is_idle(self, training: Training) -> bool:
        """Whether this method allows no evaluation; logged once."""
        cause = spec_of(training).no_evaluation_because
        if cause is not None:
            self._log_idle(cause)
        return cause is not None

    def _log_idle(self, cause: str) -> None:
        if not self._logged_idle:
            log.info("evaluation_disabled", client_id=self._client_id, cause=cause)
            self._logged_idle = True
