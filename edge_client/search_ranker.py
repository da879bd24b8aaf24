"""A search learns from its users' clicks, without an event loop in sight.

    ranker = SearchRanker("device-7.json", store="clicks.sqlite")
    serp = ranker.rank(features)
    ranker.record_clicks(serp, [0, 3])

Any thread may do so, and many at once. It is the device that `edge_client.client.EdgeClient` is, with a thread of its
own for the network and for learning. Without credentials it keeps the application's order and the clicks, until there
are some.
"""

import weakref
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from edge_client.device_state import DeviceState
from edge_client.events import Observer
from edge_client.forgetting import ForgetResult
from edge_client.guard.held_back import RefusedModel
from edge_client.hindrances import Hindrance
from edge_client.options import (
    DeviceOptions,
    broker_address,
    checked_exploration,
    checked_guard,
    checked_keep_interactions,
    checked_n_features,
    checked_propensities,
    checked_seed,
    declared_schema,
)
from edge_client.serps import Serp
from edge_client.store.store import KEPT_INTERACTIONS
from edge_client.sums.privacy_limits import USUAL_PRIVACY, PrivacyLimits
from edge_client.threaded_device import ThreadedDevice
from edge_client.training.unlearning_limits import USUAL_LIMITS, UnlearningLimits
from foltr.erasure.states import ForgetState
from foltr.errors import DataError
from foltr.learning.comparison import Comparison
from foltr.learning.gate import Gate
from foltr.operator.credentials import Credentials, read_credentials
from foltr.operator.wish_file import wish_file
from foltr.protocol.explorations import Exploration
from foltr.protocol.schemas import FeatureSchema

STORE = "foltr-search.sqlite"


class SearchRanker:
    """Ranks search results on one device, and learns with a federation; for every thread of one process.

    Close it, or use it in a ``with``; a process that ends without either closes it too.

    Args:
        credentials: what ``foltr device enrol`` wrote for this device, or its path; None for now: lists are drawn
            around the application's order, and clicks are recorded. `enrol`, or a later start with credentials, goes
            on with them.
        store: the device's own SQLite file; by default ``foltr-search.sqlite`` in the working directory, with and
            without credentials. ``":memory:"`` keeps nothing. It is one process's; two take two, and two devices.
        n_features: how many columns the application's features have. What has others is refused at once, and not when
            a model comes.
        schema: of the application's features, or its JSON file (docs/features.md): `rank` scales them by it. It says
            how many there are, too. Where the federation's is another one nothing is learned, lists are in the order
            given, and `schema_difference` says so. None: the application scales its features itself.
        on_event: told what happens (`edge_client.events`), by this ranker's own thread; what it raises is in the log.
        exploration, max_interactions, keep_interactions, seed, propensities, guard, gate, votes,
            evaluation, unlearning_limits, privacy_limits: as `EdgeClient` says.

    Raises:
        SettingsError: an argument or the credentials are wrong, or the store is another client's.
        DataError: the store cannot be opened, say because another process has it.
    """

    def __init__(
        self,
        credentials: str | Path | Credentials | None = None,
        *,
        store: str | Path = STORE,
        n_features: int | None = None,
        schema: FeatureSchema | str | Path | None = None,
        exploration: Exploration | str | None = None,
        max_interactions: int = 10_000,
        keep_interactions: int = KEPT_INTERACTIONS,
        seed: int | None = None,
        propensities: npt.ArrayLike | None = None,
        guard: float | None = None,
        gate: bool = True,
        votes: bool = True,
        evaluation: bool = True,
        unlearning_limits: UnlearningLimits = USUAL_LIMITS,
        privacy_limits: PrivacyLimits = USUAL_PRIVACY,
        on_event: Observer | None = None,
    ) -> None:
        self._schema = declared_schema(schema)
        self._n_features = checked_n_features(n_features, self._schema)
        self._exploration = checked_exploration(exploration)
        self._seed = checked_seed(seed)
        self._propensities = checked_propensities(propensities)
        self._guard = checked_guard(guard, exploration)
        self._gate = gate
        self._votes = votes
        self._evaluation = evaluation
        self._unlearning_limits = unlearning_limits
        self._privacy_limits = privacy_limits
        # Before the store is opened: what cannot be used leaves nothing locked behind.
        options = None if credentials is None else self._options(credentials)
        max_kept = checked_keep_interactions(keep_interactions)
        self._device = ThreadedDevice(
            store, max_interactions, max_kept, on_event, self._schema, self._exploration, self._seed, gate
        )
        # Also where nobody closes it, and at the end of the process.
        self._close = weakref.finalize(self, self._device.close)
        if options is not None:
            try:
                self._device.enrol(options)
            except BaseException:
                self.close()
                raise

    def _options(self, credentials: str | Path | Credentials) -> DeviceOptions:
        beside = None if isinstance(credentials, Credentials) else wish_file(Path(credentials))
        if not isinstance(credentials, Credentials):
            credentials = read_credentials(Path(credentials), "device")
        return DeviceOptions(
            credentials.federation,
            credentials.name,
            broker_address(None, credentials),
            credentials,
            exploration=self._exploration,
            seed=self._seed,
            propensities=self._propensities,
            guard=self._guard,
            gate=self._gate,
            votes=self._votes,
            evaluation=self._evaluation,
            schema=self._schema,
            unlearning_limits=self._unlearning_limits,
            wish_file=beside,
            privacy_limits=self._privacy_limits,
        )

    # --- its life -------------------------------------------------------------------------------------------

    def enrol(self, credentials: str | Path | Credentials) -> None:
        """Take part in a federation from here on. What was recorded before is this client's, and is learned.

        Raises:
            SettingsError: the credentials are wrong, or the store is another client's: nothing was changed.
            UsageError: it is enrolled already, or closed.
        """
        self._device.enrol(self._options(credentials))

    def close(self) -> None:
        """Say goodbye and close the store, within 10 s. What is left to send is sent at the next start.

        `rank` goes on in the application's order; `record_clicks` is an error.
        """
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def state(self) -> DeviceState:
        """What it is doing, and whose order it shows; as text, in words for a log or a settings page."""
        return self._device.state(self._n_features)

    @property
    def next_visit_at(self) -> datetime | None:
        """When this device comes by again, where its federation asks that it does not stay connected; else None.

        None also during a visit, and where it comes only if it is called, having left. An application may end until
        then: the moment is in the store, and the next start keeps it.
        """
        return self._device.next_visit_at

    @property
    def hindrance(self) -> Hindrance | None:
        """As `EdgeClient.hindrance`; None also as long as it is not enrolled."""
        return self._device.hindrance

    # --- lists and clicks -----------------------------------------------------------------------------------

    def rank(
        self,
        features: npt.ArrayLike,
        k: int | None = None,
        *,
        base: npt.ArrayLike | None = None,
        exploration: Exploration | str | None = None,
    ) -> Serp:
        """Rank candidate documents as `EdgeClient.rank` says. It waits for nothing and nobody.

        After `close`, and in a process that was forked from this one, they are in the application's order.

        Raises:
            DataError: as `EdgeClient.rank`, and where the features are not as many as ``n_features``.
        """
        self._check_width(features)
        k = self.serp_length if k is None else k
        return self._device.rank(features, k, base, checked_exploration(exploration))

    def record_clicks(self, serp: Serp, clicked: Iterable[int]) -> None:
        """Record clicks as `EdgeClient.record_clicks` says: on disk when it returns. It is learned afterwards.

        Raises:
            DataError: what was given are no positions of the list, or the disk is full.
            UsageError: it is closed, or this process was forked from the one that made it.
        """
        self._device.record(serp, clicked)

    @property
    def serp_length(self) -> int:
        """As `EdgeClient.serp_length`."""
        return self._device.serp_length

    @property
    def weights(self) -> npt.NDArray[np.float64] | None:
        """As `EdgeClient.weights`."""
        return None if self._device.agent is None else self._device.agent.weights

    @property
    def gate(self) -> Gate:
        """As `EdgeClient.gate`; before it is enrolled there are only the application's own lists in it."""
        return self._device.gate

    @property
    def comparison(self) -> Comparison:
        """As `EdgeClient.comparison`; before it is enrolled nothing is compared."""
        return Comparison() if self._device.agent is None else self._device.agent.voter.comparison

    def scores(self, features: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Return as `EdgeClient.scores` does."""
        self._check_width(features)
        return self._device.scores(features)

    def _check_width(self, features: npt.ArrayLike) -> None:
        shape = np.shape(features)
        if self._n_features is not None and len(shape) == 2 and shape[1] != self._n_features:
            raise DataError(
                f"features: {shape[1]} columns, but this application said n_features={self._n_features}; "
                "give one row for each document"
            )

    @property
    def schema_difference(self) -> str | None:
        """As `EdgeClient.schema_difference`."""
        return None if self._device.agent is None else self._device.agent.schema_difference

    # --- what it knows ----------------------------------------------------------------------------------------

    @property
    def client_id(self) -> str | None:
        """The name it is enrolled under; None as long as it is not."""
        return None if self._device.agent is None else self._device.agent.client_id

    @property
    def model_version(self) -> int | None:
        """As `EdgeClient.model_version`."""
        working_model = None if self._device.agent is None else self._device.agent.trainer.working_model
        return None if working_model is None else working_model.base_version

    @property
    def n_waiting(self) -> int:
        """As `EdgeClient.n_waiting`."""
        return self._device.n_waiting()

    @property
    def counted_through(self) -> int | None:
        """As `EdgeClient.counted_through`."""
        return self._device.mark()

    @property
    def n_updates_counted(self) -> int:
        """As `EdgeClient.n_updates_counted`."""
        return 0 if self._device.agent is None else self._device.agent.contributor.n_counted

    @property
    def receipts(self) -> dict[str, int]:
        """As `EdgeClient.receipts`, as of now."""
        return {} if self._device.agent is None else dict(self._device.agent.inbox.receipts)

    @property
    def quarantined(self) -> bool:
        """As `EdgeClient.quarantined`."""
        return self._device.agent is not None and self._device.agent.contributor.quarantined

    @property
    def refused_models(self) -> tuple[RefusedModel, ...]:
        """As `EdgeClient.refused_models`."""
        guard = None if self._device.agent is None else self._device.agent.models.guard
        return () if guard is None else guard.refused_models

    @property
    def forgotten(self) -> bool:
        """As `EdgeClient.forgotten`."""
        return self._device.agent is not None and self._device.agent.forgotten

    @property
    def forget_state(self) -> ForgetState | None:
        """As `EdgeClient.forget_state`."""
        return None if self._device.agent is None else self._device.agent.forgetting.state

    # --- what it asks of the federation -------------------------------------------------------------------------

    def wait_connected(self, timeout_s: float = 30.0) -> None:
        """Wait for the broker as `EdgeClient.wait_connected` does. Never needed.

        Raises:
            UsageError: it is not enrolled, or closed, or this is an observer.
        """
        self._device.call(lambda runtime: runtime.wait_connected(timeout_s))

    def wait_settled(self, timeout_s: float = 60.0) -> bool:
        """Wait for the pending update's receipt as `EdgeClient.wait_settled` does. Raises as `wait_connected` does."""
        return self._device.call(lambda runtime: runtime.wait_settled(timeout_s))

    def leave(self, timeout_s: float = 10.0) -> bool:
        """Leave the federation as `EdgeClient.leave` does. Raises UsageError as `wait_connected` does."""
        return self._device.call(lambda runtime: runtime.leave(timeout_s))

    def forget_me(self, timeout_s: float = 60.0) -> ForgetResult:
        """Ask for this client's erasure as `EdgeClient.forget_me` does.

        One that was never enrolled has nobody to ask: what its store has is deleted, and it begins anew.

        Raises:
            DataError, FoltrError: as `EdgeClient.forget_me`.
            UsageError: it is closed, or this is an observer, or its store is a client's whose credentials it has not.
        """
        return self._device.forget_me(timeout_s)
