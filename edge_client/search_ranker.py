"""A search learns from its users' clicks, without an event loop in sight.

    ranker = SearchRanker("device-7.json", store="clicks.sqlite")
    serp = ranker.rank(features)
    ranker.record_clicks(serp, [0, 3])

Any thread may call it, and many at once; so may several processes with the same store, such as the workers of a web
server (`foltr.edge_client.workers`). It is the same device as `foltr.edge_client.client.EdgeClient`, with a separate
thread for the network and for learning. Without credentials it only stores the clicks, and loads nothing of a client.

Callers wait for the store, never for the network or for learning. Ranking takes a snapshot of the working model and no
lock. Plain functions compute everything, as on a device without numba: nobody waits for machine code.
"""

import weakref
from collections.abc import Callable, Iterable, Iterator, KeysView, ValuesView
from contextlib import nullcontext
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from foltr.core.erasure.states import ForgetState
from foltr.core.errors import DataError, SettingsError
from foltr.core.learning.gate import Gate
from foltr.core.learning.rows import Rows, as_numbers
from foltr.core.numerics.compiled import plain_functions
from foltr.core.protocol.explorations import Exploration, NoExploration
from foltr.core.protocol.schemas import FeatureSchema
from foltr.core.version import __version__
from foltr.edge_client.background import BackgroundDevice, load_client
from foltr.edge_client.device import SERP_LENGTH, Device
from foltr.edge_client.device_state import DeviceState, Settled, dropped, state_of
from foltr.edge_client.events import Observer
from foltr.edge_client.features import Features
from foltr.edge_client.gating import judged_by
from foltr.edge_client.options import (
    Experiment,
    Privacy,
    Ranking,
    check_groups,
    checked_exploration,
    checked_type,
    declared_schema,
)
from foltr.edge_client.recording import rewards_of, store_list, with_those_before
from foltr.edge_client.report import Report
from foltr.edge_client.serp import Serp
from foltr.edge_client.serps import as_features, clicks_on, make_serp, read_candidates
from foltr.edge_client.store.gate_rows import write_gate
from foltr.edge_client.store.recent_lists import RecentList
from foltr.edge_client.store.store import DeviceStore
from foltr.edge_client.workers.requests import Enrolment
from foltr.edge_client.workers.shared_device import SharedDevice, runs_in_owner

if TYPE_CHECKING:
    from foltr.core.operator.credentials import Credentials
    from foltr.edge_client.agent import Agent
    from foltr.edge_client.blockers import Blocker
    from foltr.edge_client.client import EdgeClient
    from foltr.edge_client.forgetting import ForgetResult

STORE = "foltr-search.sqlite"


@runs_in_owner
class SearchRanker(Device):
    """Ranks search results on one device, and learns with a federation; for all threads and processes on one machine.

    Close it, or use it in a ``with``; a process that ends without either closes it too.

    Args:
        credentials: what ``foltr device enrol`` wrote for this device, or its path. None: clicks wait for `enrol`.
        store: the device's SQLite file. Processes with the same arguments share it. ``":memory:"`` keeps nothing.
        n_features: how many columns the features have; others are refused at once.
        schema: of the features, or its JSON file (docs/features.md). None: features are scaled already.
        ranking: how lists are made.
        privacy: what is kept and reported of the user's clicks.
        on_event: called with each event (`foltr.edge_client.events`) by the ranker's thread, in one of its processes;
            errors go to the log.
        experiment: for experiments and tests.

    Raises:
        SettingsError: an argument or the credentials are wrong, or the store is another client's.
        DataError: the store cannot be opened, e.g. because an `EdgeClient` has it.
    """

    def __init__(
        self,
        credentials: "str | Path | Credentials | None" = None,
        *,
        store: str | Path = STORE,
        n_features: int | None = None,
        schema: FeatureSchema | str | Path | None = None,
        ranking: Ranking = Ranking(),  # noqa: B008 (frozen)
        privacy: Privacy = Privacy(),  # noqa: B008
        on_event: Observer | None = None,
        experiment: Experiment = Experiment(),  # noqa: B008
    ) -> None:
        check_groups(on_event, (ranking, Ranking), (privacy, Privacy), (experiment, Experiment))
        self._schema = declared_schema(schema)
        self._n_features = _checked_n_features(n_features, self._schema)
        self._gated, self._keeps_rewards = ranking.gate, privacy.evaluation
        self._client_of = partial(
            _client,
            schema=self._schema,
            ranking=ranking,
            privacy=privacy,
            on_event=on_event,
            experiment=experiment,
        )
        self._exploration, self._rng = checked_exploration(ranking.exploration), np.random.default_rng(experiment.seed)
        self._features = Features(self._schema, None)
        given: object = store
        if isinstance(given, str | Path) and str(given) != ":memory:":
            store = Path(given).absolute()  # it may be opened later, when another process has ended
        opened = partial(
            _opened,
            store,
            self._client_of,
            privacy,
            self._features,
            self._n_features,
        )
        terms = {
            "software": __version__,
            "n_features": str(self._n_features),
            "schema": "None" if self._features.hash is None else self._features.hash.hex(),
            "ranking": repr(ranking),
            "privacy": repr(privacy),
        }
        self._shared = SharedDevice(store, terms, _absolute(credentials), opened, self)
        # If nobody closes it, at the end of the process.
        self._close = weakref.finalize(self, self._shared.close)
        self._shared.join()

    def enrol(self, credentials: "str | Path | Credentials") -> None:
        """Take part in a federation from here on. What was recorded before belongs to this client, and is learned.

        Does nothing if it is enrolled with these credentials already, e.g. by another process.

        Raises:
            SettingsError: the credentials are wrong, or the store is another client's: nothing was changed.
            UsageError: it is enrolled with other credentials, or closed.
        """
        from foltr.core.operator.credentials import Credentials

        checked_type("credentials", credentials, Credentials, str, Path)
        self._enrol(_absolute(credentials))

    def _enrol(self, enrolment: Enrolment) -> None:
        self._shared.check_open()
        client = self._client_of(enrolment)
        self._shared.enrol(enrolment, lambda: self._shared.device.start(client, self._features.remarks))

    def _enrol_as(self, enrolment: Enrolment) -> None:
        """Be enrolled as another process of this store is."""
        agent, client = self.agent, self._client_of(enrolment)
        if agent is None:
            self._enrol(enrolment)
        elif (agent.federation, agent.client_id) != (client.federation, client.client_id):
            raise SettingsError(
                f"credentials: of {client.client_id}, but the store is used by {agent.client_id} of "
                f"{agent.federation!r}; one store per client"
            )

    def _remember(self, serps: list[Serp]) -> None:
        """Keep lists that another process made while it could not ask."""
        for serp in serps:
            self.store.recent.remember(serp)

    def close(self) -> None:
        """Say goodbye and close the store, within 10 s. The next start sends what is left.

        Afterwards `rank` uses the application's order, and `record_clicks` raises.
        """
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def agent(self) -> "Agent | None":
        return self._shared.agent

    @property
    def store(self) -> DeviceStore:
        return self._shared.device.store

    @property
    def client_id(self) -> str | None:
        """The name it is enrolled under; None before that."""
        return None if self.agent is None else self.agent.client_id

    @property
    def state(self) -> DeviceState:
        """As `Device.state`, also before it is enrolled and once it is closed."""
        if self._shared.is_away:
            return DeviceState("closed" if self._shared.is_closed else "without the process that owns the store")
        if self.agent is None and self.store.forgotten:
            return DeviceState("forgotten", remarks=("nothing is recorded",))
        if self.agent is None:
            remarks = ("clicks are kept in the store", *dropped(self.store), *self._features.remarks)
            return DeviceState("not enrolled", remarks=remarks, n_dropped=self.store.n_dropped)
        return state_of(self.agent, self.agent.blocker, self._n_features)

    @property
    def blocker(self) -> "Blocker | None":
        """As `EdgeClient.blocker`; None also before it is enrolled, and once it is closed."""
        return None if self._shared.is_away else super().blocker

    @property
    def forgotten(self) -> bool:
        """As `Device.forgotten`, also without the credentials of its store's client."""
        return super().forgotten or (not self._shared.is_away and self.store.forgotten)

    @property
    def next_visit_at(self) -> datetime | None:
        """As `EdgeClient.next_visit_at`; None also once it is closed."""
        return None if self._shared.is_away else super().next_visit_at

    def rank(
        self,
        features: Rows,
        k: int | None = None,
        *,
        base: npt.ArrayLike | None = None,
        exploration: Exploration | str | None = None,
    ) -> Serp:
        """Rank candidate documents; see `EdgeClient.rank`. It never waits for the network.

        Before it is enrolled lists are drawn around the application's order, to be learned from later. After `close`,
        once its client is forgotten, and while the process that owns the store does not answer, they have that order.

        Raises:
            DataError: as `EdgeClient.rank`, or the number of features is not ``n_features``.
        """
        features = self._checked_width(features)
        if k is None:
            k = self.serp_length if self._shared.is_here else SERP_LENGTH
        asked, agent, is_away = checked_exploration(exploration), self.agent, self._shared.is_away
        with plain_functions():
            if agent is not None and not is_away:
                return agent.rank(features, k, base, asked)
            is_over = is_away or self.store.forgotten
            chosen = NoExploration() if is_over else asked or self._exploration
            candidates = read_candidates(self._features.scaled(features), base)
            self._features.warn_unscaled(candidates.features, candidates.span)
            serp = make_serp(candidates, k, None, self._rng, exploration=chosen)
        if is_away:
            self._shared.keep(serp)
        elif not is_over:
            self.store.recent.remember(serp)
        return serp

    def record_clicks(self, serp: Serp | str, clicked: Iterable[int]) -> bool:
        """Record clicks; see `EdgeClient.record_clicks`. On disk when it returns, and learned afterwards.

        Args:
            serp: the list, or its ``serp_id``, also after a restart (`Privacy.recent_lists`).

        Returns:
            as `EdgeClient.record_clicks`.

        Raises:
            DataError: as `EdgeClient.record_clicks`, or the disk is full.
            UsageError: it is closed.
            UnavailableError: the process that owns the store does not answer. To try again does no harm.
        """
        self._shared.check_open()
        with self._shared.device.life if self.agent is None else nullcontext():
            agent = self.agent
            if agent is None:  # and does not become a client meanwhile, which would miss the gate that this writes
                return self._record_alone(serp, clicked)
        with plain_functions():  # models are compared by the list
            return agent.record_clicks(serp, clicked)

    def _record_alone(self, serp: Serp | str, clicked: Iterable[int]) -> bool:
        """Record clicks without a client."""
        if self.store.forgotten:
            return False
        shown = self.store.recent.find(serp)
        clicks = with_those_before(shown, clicks_on(shown.serp, clicked))
        return clicks is None or self._store_alone(shown, clicks)

    def _store_alone(self, shown: RecentList, clicks: npt.NDArray[np.bool_]) -> bool:
        gate = judged_by(self.store.gate(), shown.serp, clicks, shown.before) if self._gated else None
        write = None if gate is None else partial(write_gate, gate=gate)
        rewards = rewards_of(shown.serp, clicks) if self._keeps_rewards else None
        return store_list(self.store, shown, clicks, write, rewards, gate) is not None

    def scores(self, features: Rows) -> npt.NDArray[np.float32]:
        """Return as `EdgeClient.scores` does; zeros before it is enrolled."""
        features = self._checked_width(features)
        with plain_functions():
            if self.agent is None:
                return np.zeros(len(as_features(self._features.scaled(features))), np.float32)
            return self.agent.scores(features)

    @property
    def gate(self) -> Gate:
        """As `EdgeClient.gate`; before it is enrolled it covers only the application's lists."""
        if self.agent is not None or not self._gated or self._shared.is_away:
            return super().gate
        return self.store.gate()

    @property
    def _is_gated(self) -> bool:
        return self._gated

    def report(self) -> Report:
        """Return as `Device.report` does. Raises UsageError if it is closed."""
        self._shared.check_open()
        return super().report()

    def _as_sent(self, argument: str, value: Any) -> Any:
        """Return an argument for the process that owns the store, which may lack the libraries of the rows."""
        if argument == "features":
            return as_numbers(value, None if self._schema is None else self._schema.names)
        return list(value) if isinstance(value, Iterator | KeysView | ValuesView) else value

    def _checked_width(self, features: Rows) -> Rows:
        """Return the features; DataError if they are not as many as the application said."""
        if self._n_features is None:
            return features
        numbers = as_numbers(features)
        if numbers.ndim == 2 and numbers.shape[1] not in (0, self._n_features):
            raise DataError(
                f"features: {numbers.shape[1]} columns, but this application set n_features={self._n_features}; give "
                "one row for each document"
            )
        return numbers

    def wait_connected(self, timeout_s: float = 30.0) -> None:
        """Wait for the broker; see `EdgeClient.wait_connected`. Optional.

        Raises:
            UsageError: it is not enrolled, or closed, or this is an observer.
        """
        self._shared.device.call(lambda client: client.wait_connected(timeout_s))

    def wait_settled(self, timeout_s: float = 60.0) -> Settled:
        """Wait for receipts as `EdgeClient.wait_settled` does. Raises UsageError as `wait_connected` does."""
        return self._shared.device.call(lambda client: client.wait_settled(timeout_s))

    def leave(self, timeout_s: float = 10.0) -> bool:
        """Leave the federation as `EdgeClient.leave` does. Raises UsageError as `wait_connected` does."""
        return self._shared.device.call(lambda client: client.leave(timeout_s))

    def forget_me(self, timeout_s: float = 60.0) -> "ForgetResult":
        """Ask for this client's erasure as `EdgeClient.forget_me` does.

        If it was never enrolled, its store is cleared and starts as a new one.

        Raises:
            DataError, FoltrError: as `EdgeClient.forget_me`.
            UsageError: it is closed, or called by an observer, or it lacks the credentials of its store's client.
        """
        if self.agent is not None or self.store.owner is not None:
            return self._shared.device.call(lambda client: client.forget_me(timeout_s))
        from foltr.edge_client.forgetting import ForgetResult

        self._shared.check_open()
        self.store.forget()
        return ForgetResult(ForgetState.FORGOTTEN)


def _client(enrolment: Enrolment, **options: Any) -> "EdgeClient":
    return load_client()(enrolment, **options)


def _opened(
    store: str | Path,
    client_of: "Callable[[Enrolment], EdgeClient]",
    privacy: Privacy,
    features: Features,
    n_features: int | None,
    enrolment: Enrolment,
) -> BackgroundDevice:
    """Open the store, and become a client if there are credentials."""
    # Before the store is opened, so that a bad argument leaves nothing locked.
    client = None if enrolment is None else client_of(enrolment)
    opened = DeviceStore(
        store,
        client_id=None,
        federation=None,
        max_interactions=privacy.max_interactions,
        max_kept=privacy.keep_interactions,
        max_recent=privacy.recent_lists,
    )
    opened.schema_hash, opened.recent.n_features = features.hash, n_features
    device = BackgroundDevice(opened)
    if client is not None:
        try:
            device.start(client, features.remarks)
        except BaseException:
            device.close()
            raise
    return device


def _absolute(credentials: Enrolment) -> Enrolment:
    """Return credentials as other processes can read them, too."""
    return Path(credentials).absolute() if isinstance(credentials, str | Path) else credentials


def _checked_n_features(n_features: int | None, schema: FeatureSchema | None) -> int | None:
    """Return the number; SettingsError if it is below 1, or a schema gives it already."""
    if n_features is not None and schema is not None:
        raise SettingsError("n_features: the schema says how many there are; leave one of the two out")
    is_number = isinstance(n_features, int) and not isinstance(n_features, bool) and n_features >= 1
    if n_features is not None and not is_number:
        raise SettingsError(f"n_features: {n_features!r} is not a number of columns; give how many each document has")
    return n_features
