"""A device votes on the newest global model: is it better than the anchor, by its user's clicks?

When a list whose clicks show a preference is recorded, both models score all its candidates before anything is learned
from it. So neither model was trained on it, and no lists need be held back. The comparison is a handful of sums
(`foltr.core.learning.comparison`), stored in the transaction that stores the list. With an update the device sends only
one number of -1, 0 and 1. Under a policy that asks for votes it is masked (`foltr.edge_client.sums`).

It needs lists drawn from the scores. A method whose updates contain the device's noise sends no votes: they would
reveal of the clicks what the noise should hide.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from foltr.core.learning.agreement import agreement, preferences
from foltr.core.learning.comparison import Comparison
from foltr.core.logs import get_logger
from foltr.core.methods.base import scores_of
from foltr.core.methods.registry import Ranker, spec_of
from foltr.core.protocol.announcements import ModelAnnouncement
from foltr.core.protocol.codec import Envelope
from foltr.core.protocol.fields import unpack_vector
from foltr.core.protocol.trainings import Training
from foltr.core.protocol.updates import Vote
from foltr.edge_client.participation import Participation
from foltr.edge_client.serp import Serp
from foltr.edge_client.store.interaction_rows import Within
from foltr.edge_client.store.knowledge import AnchorKey, write_comparison
from foltr.edge_client.store.store import DeviceStore
from foltr.edge_client.votes.anchor import Anchor, key_of

log = get_logger(__name__)

WeightsUnder = Callable[[ModelAnnouncement], NDArray[np.floating]]
"""Maps a global model to the (n_weights,) of the ranker this device would begin with under it."""


@dataclass(frozen=True)
class ComparisonUpdate:
    """A comparison after one more list, with the anchor of that key."""

    key: AnchorKey
    comparison: Comparison


@dataclass(frozen=True, eq=False)
class _Pair:
    """The two models that are compared, and their ranking weights: (n_weights,) each."""

    key: AnchorKey
    newest: ModelAnnouncement
    anchor: ModelAnnouncement
    training: Training
    weights: tuple[NDArray[np.floating], NDArray[np.floating]]

    @property
    def ranker(self) -> Ranker:
        return self.newest.ranker


class Voter:
    """Compares and votes for one device. Any thread may record; the device's thread does everything else.

    Args:
        weights_under: called if a method has weights that stay on the device; else models are used as they came.
        enabled: False takes no anchor, and drops a stored one.
    """

    def __init__(
        self,
        store: DeviceStore,
        participation: Participation,
        anchor: Anchor,
        weights_under: WeightsUnder,
        client_id: str,
        *,
        enabled: bool,
    ) -> None:
        self._store = store
        self._participation = participation
        self.anchor = anchor
        self._weights_under = weights_under
        self._client_id = client_id
        self._enabled = enabled
        self._newest: ModelAnnouncement | None = None
        self._pair: _Pair | None = None
        self._key: AnchorKey | None = None
        self._comparison = Comparison()
        self._logged_idle = False
        # The anchor's message under a policy without votes: the next policy may have them.
        self._withheld: tuple[Envelope, bytes] | None = None
        # Between a recording thread and the device's, which may meanwhile start with another anchor.
        self._lock = threading.Lock()

    @property
    def takes_part(self) -> bool:
        """Whether this device compares and votes, if the method allows it."""
        policy = self._participation.policy
        return self._enabled and (policy is None or policy.policy.votes is not None)

    @property
    def comparison(self) -> Comparison:
        """The newest model's comparison with the anchor."""
        return self._comparison

    def restore(self) -> None:
        """Load the stored comparison, or drop it if the device gives no votes."""
        if self.takes_part:
            self.anchor.restore()
        else:
            self.anchor.drop()
        self.refresh_pair()

    def compare_newest(self, newest: ModelAnnouncement | None) -> None:
        """Compare this model from now on; None: stop."""
        self._newest = newest
        self.refresh_pair()

    def receive_anchor(self, envelope: Envelope, payload: bytes) -> None:
        """Take a message on the anchor's topic.

        Raises:
            MessageError: it cannot be read.
        """
        if self.takes_part:
            self._withheld = None
            self.anchor.receive(envelope, payload)
            self.refresh_pair()
        elif self._enabled:
            self._withheld = envelope, payload

    def receive_withheld_anchor(self) -> None:
        """Take the anchor's message from under a policy without votes, if the next policy has them.

        Raises:
            MessageError: it cannot be read.
        """
        if self._withheld is not None and self.takes_part:
            self.receive_anchor(*self._withheld)

    def drop_anchor(self) -> None:
        """Drop the anchor, until another one is announced."""
        self._withheld = None
        self.anchor.drop()
        self.refresh_pair()

    def refresh_pair(self) -> None:
        """Update the compared pair after a change of the anchor, the newest model, the method or the epoch."""
        if not self.takes_part and self.anchor.key is not None:
            self.anchor.drop()
        pair = self._pair_now()
        if pair is self._pair and self._key == self.anchor.key:
            return  # no change, as after most announcements; only this thread writes both
        with self._lock:
            if self._key != self.anchor.key:
                self._key = self.anchor.key
                self._comparison = Comparison() if self._key is None else self._store.comparison(self._key)
            self._pair = pair

    def prepare_update(
        self, serp: Serp, clicks: NDArray[np.bool_], before: NDArray[np.bool_] | None = None
    ) -> tuple[ComparisonUpdate | None, Within | None]:
        """Return the comparison after one more list, and what writes it; `apply_update` it once both are on disk.

        (None, None) if nothing can be compared, or the list shows no preference, or showed one before: it counts once.

        Args:
            clicks: (shown,).
            before: (shown,) those recorded earlier.
        """
        with self._lock:
            pair, so_far = self._pair, self._comparison
        if pair is None or serp.features.shape[1] != pair.ranker.n_features:
            return None, None
        said = preferences(serp.reversals, clicks)
        if said.total == 0.0 or (before is not None and preferences(serp.reversals, before).total > 0.0):
            return None, None
        with np.errstate(over="ignore", invalid="ignore"):  # a score that is not a number agrees with nothing
            newest, anchor = (
                agreement(scores_of(pair.ranker, weights, serp.features), serp.ranking, said)
                for weights in pair.weights
            )
        compared = ComparisonUpdate(pair.key, so_far.with_list(newest, anchor, said.total))
        return compared, partial(write_comparison, key=pair.key, comparison=compared.comparison)

    def apply_update(self, compared: ComparisonUpdate) -> None:
        """Use a written comparison, unless the anchor has changed since."""
        with self._lock:
            if compared.key == self._key:
                self._comparison = compared.comparison

    def vote(self) -> Vote | None:
        """Return the vote for an update; None if this device gives none."""
        anchor, training = self.anchor.current, self._participation.training
        if anchor is None or training is None or not self.takes_part or self._is_idle(training):
            return None
        return Vote(anchor_version=anchor.version, value=int(self._comparison.opinion))

    def forget(self) -> None:
        """Forget the comparison: the client was forgotten."""
        self.anchor.forget()
        self._newest = self._withheld = None
        with self._lock:
            self._pair, self._key, self._comparison = None, None, Comparison()

    def _pair_now(self) -> _Pair | None:
        anchor, newest, training = self.anchor.current, self._newest, self._participation.training
        if anchor is None or newest is None or training is None or not self.takes_part or self._is_idle(training):
            return None
        if newest.ranker != anchor.ranker or self._participation.other_schema is not None:
            return None
        if not all(self._participation.learns_from(one) for one in (newest, anchor)):
            return None
        before = self._pair
        if before is not None and before.newest is newest and before.anchor is anchor and before.training == training:
            return before
        key = key_of(anchor)
        if key_of(newest)[1] == key[1]:
            return None  # a model is not compared with itself
        weights = self._weights_of(newest, training), self._weights_of(anchor, training)
        return _Pair(key, newest, anchor, training, weights)

    def _weights_of(self, model: ModelAnnouncement, training: Training) -> NDArray[np.floating]:
        if spec_of(training).personal:
            return self._weights_under(model)
        return unpack_vector(model.weights)[: model.ranker.n_weights]

    def _is_idle(self, training: Training) -> bool:
        """Whether this method allows no votes; logged once."""
        cause = spec_of(training).no_votes_because
        if cause is not None and not self._logged_idle:
            log.info("voting_disabled", client_id=self._client_id, cause=cause)
            self._logged_idle = True
        return cause is not None
