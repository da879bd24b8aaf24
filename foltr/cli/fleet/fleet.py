"""Several simulated devices in one process, each a separate MQTT client."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import structlog
from numpy.typing import NDArray

from foltr.core.alive_file import NO_ALIVE_FILE, AliveFile
from foltr.core.data.dataset import RankingDataset
from foltr.core.data.sources import LoadedData
from foltr.core.errors import FoltrError, UnavailableError, first_cause
from foltr.core.evaluation.click_models import ClickModel, click_model, examination_by_rank, personal
from foltr.core.numerics.streams import client_streams
from foltr.core.operator.credentials import Credentials
from foltr.core.protocol.schemas import FeatureSchema
from foltr.edge_client.blockers import REFUSALS, Blocker, BlockerKind
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.contribution import Alteration
from foltr.edge_client.options import Connection, Experiment, Privacy, Ranking
from foltr.edge_client.simulated_user import SimulatedUser

log = structlog.get_logger(__name__)

_ROUND_TIMEOUT_S = 86_400.0
# Log after this long without a new round. The interval doubles each time, as a round may take ten minutes.
_SILENCE_S, _LONGEST_SILENCE_S = 15.0, 300.0
_LOOK_S = 2.5
_N_LOOKED_AT = 20
# How long a broker may take to reload its files after an enrolment.
_LOCKED_OUT_S = 60.0
# Upper limit of documents that a federation may show.
_LONGEST_SERP = 1000


@dataclass(frozen=True, eq=False)
class FleetUser:
    """The behaviour of one device's user.

    Attributes:
        dataset: source of the queries.
        queries: (n,) indices of the queries used; None: all.
        click_models: one is drawn for each interaction.
        n_interactions: per round.
    """

    dataset: RankingDataset
    queries: NDArray[np.int64] | None
    click_models: tuple[ClickModel, ...]
    n_interactions: int


@dataclass
class Fleet:
    """Devices by name, each with its store (a path or ``:memory:``).

    Attributes:
        broker_url: None takes the one in the credentials.
        data, clicks, interactions: shared by all users not in ``users``.
        credentials: by name; empty: nothing is signed.
        credentials_files: the files they come from, by name.
        users: by name, if devices differ.
        alterations: by name, for devices that alter their updates.
        schema, privacy: of the devices, see `EdgeClient`.
        alive_file: touched while devices can take part or wait only for the federator.
        receipts: counts by receipt code, over all finished devices.
        refused: why devices could not take part, by name.
        forgotten: devices that the federation has erased, now or earlier.
    """

    broker_url: str | None
    federation: str
    data: LoadedData
    clicks: str
    interactions: int
    seed: int
    stores: dict[str, str]
    credentials: dict[str, Credentials] = field(default_factory=dict)
    credentials_files: Mapping[str, Path] = field(default_factory=dict)
    users: Mapping[str, FleetUser] = field(default_factory=dict)
    n_rounds: int | None = None
    give_up_after_s: float | None = None
    alterations: Mapping[str, Alteration] = field(default_factory=dict)
    schema: FeatureSchema | None = None
    privacy: Privacy = field(default_factory=Privacy)
    alive_file: AliveFile = NO_ALIVE_FILE
    receipts: Counter[str] = field(default_factory=Counter)
    newest_round: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    forgotten: set[str] = field(default_factory=set)
    _clients: dict[str, EdgeClient] = field(default_factory=dict)

    async def run(self) -> None:
        """Run all devices to the federation's last round (or ``n_rounds``).

        Raises:
            UnavailableError: some could not take part; the others have finished.
        """
        log.info("clients_started", n_clients=len(self.stores), federation=self.federation, broker=self.broker_url)
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._say_when_waiting())
                await asyncio.wait([group.create_task(self._run_device(*one)) for one in self.stores.items()])
                watching.cancel()
        except BaseExceptionGroup as failures:
            # Report one: the same cause usually stops them all.
            expected, others = failures.split(FoltrError)
            if others is None and expected is not None:
                raise first_cause(expected) from failures
            raise
        if self.refused:
            raise self._refusal()

    def _refusal(self) -> UnavailableError:
        name, why = next(iter(self.refused.items()))
        n, all_ = len(self.refused), len(self.stores)
        return UnavailableError(why if all_ == 1 else f"{n} of {all_} devices could not take part; {name}: {why}")

    async def _say_when_waiting(self) -> None:
        """Log why devices wait: soon after a blocker appears, and at intervals without a new round."""
        silent_s, say_after_s, before = 0.0, _SILENCE_S, self.newest_round
        seen: BlockerKind | None = None
        told: BlockerKind | None = None
        while True:
            await asyncio.sleep(_LOOK_S)
            if self.newest_round != before:
                silent_s, say_after_s, before = 0.0, _SILENCE_S, self.newest_round
            else:
                silent_s += _LOOK_S
            blocker = self._blocker()
            if blocker is None or blocker.kind is BlockerKind.FEDERATOR_AWAY:
                self.alive_file.touch()
            last, seen = seen, None if blocker is None else blocker.kind
            if blocker is not None and seen is last and seen is not told:  # not blockers that pass during the start
                log.warning("clients_blocked", federation=self.federation, cause=blocker.message)
                told = seen
            elif told is not None and seen is None:
                log.info("clients_resumed", federation=self.federation)
                told = None
            elif silent_s >= say_after_s:
                why = "the federator is running; see: foltr rounds why" if blocker is None else blocker.message
                log.warning("rounds_stalled", newest=before, federation=self.federation, hint=why)
                silent_s, say_after_s = 0.0, min(2 * say_after_s, _LONGEST_SILENCE_S)

    def _blocker(self) -> Blocker | None:
        """Return a blocker of one of the first devices. It usually stops them all."""
        looked_at = islice(self._clients.values(), _N_LOOKED_AT)
        return next((found for client in looked_at if (found := client.blocker) is not None), None)

    def _seen_round(self, number: int) -> None:
        if number > self.newest_round:
            self.newest_round = number
            log.info("round_opened", round=number, n_clients=len(self.stores))

    def user(self, name: str) -> FleetUser:
        """Return the behaviour of a device's user."""
        if name in self.users:
            return self.users[name]
        return FleetUser(
            self.data.train, None, (click_model(self.clicks, self.data.n_grades),), n_interactions=self.interactions
        )

    async def _run_device(self, name: str, store: str) -> None:
        streams, chosen = client_streams(self.seed, name), self.user(name)
        click_models = tuple(personal(model, streams.user) for model in chosen.click_models)
        client = EdgeClient(
            # The file if there is one: `foltr erasure request --credentials` saves a request beside it.
            self.credentials_files.get(name) or self.credentials.get(name),
            store=store,
            schema=self.schema,
            connection=Connection(
                broker=self.broker_url, federation=self.federation, client_id=name, give_up_after_s=self.give_up_after_s
            ),
            experiment=Experiment(
                seed=streams.device_seed,
                alter_update=self.alterations.get(name),
            ),
            # A simulated user has no application whose order should be kept.
            ranking=Ranking(propensities=_propensities(click_models), gate=False),
            privacy=replace(self.privacy, click_window_s=0.0),  # simulated users do not come back to a list
        )
        async with client:
            self._clients[name] = client
            try:
                if self.give_up_after_s is not None:
                    await client.wait_connected(self.give_up_after_s)
                user = SimulatedUser(client, chosen.dataset, click_models, streams.user, chosen.queries)
                taking_part = user.take_part(
                    chosen.n_interactions,
                    n_rounds=self.n_rounds,
                    round_timeout_s=_ROUND_TIMEOUT_S,
                    on_round=self._seen_round,
                )
                # Without a limit of rounds, a device also waits for admission without limit.
                n_rounds = await (taking_part if self.n_rounds is None else _unless_locked_out(client, taking_part))
                log.debug("device_finished", client_id=name, rounds=n_rounds, interactions=user.n_interactions)
                self._note_refused(name, client, "the federator has not answered")
            except UnavailableError as error:
                if client.blocker is None or client.blocker.kind not in REFUSALS:
                    raise
                self._note_refused(name, client, str(error))
            finally:
                del self._clients[name]
                if client.forgotten:
                    self.forgotten.add(name)
                self.receipts.update(client.receipts)

    def _note_refused(self, name: str, client: EdgeClient, why: str) -> None:
        """Record a device that the federation does not admit, or no longer."""
        blocker = client.blocker
        if client.forgotten or (client.has_joined and (blocker is None or blocker.kind not in REFUSALS)):
            return
        self.refused[name] = why if blocker is None else blocker.message
        log.error("device_refused", client_id=name, cause=self.refused[name])


async def _unless_locked_out(client: EdgeClient, taking_part: Coroutine[Any, Any, int]) -> int:
    """Take part, unless the broker refuses the device longer than it takes to learn of a new user.

    Raises:
        UnavailableError: it does.
    """
    task = asyncio.create_task(taking_part)
    locked_out_s = 0.0
    try:
        while not (await asyncio.wait([task], timeout=_LOOK_S))[0]:
            blocker = client.blocker
            is_locked_out = blocker is not None and blocker.kind is BlockerKind.LOGIN_REFUSED
            locked_out_s = locked_out_s + _LOOK_S if is_locked_out else 0.0
            if blocker is not None and locked_out_s >= _LOCKED_OUT_S:
                raise UnavailableError(blocker.message)
        return await task
    finally:
        task.cancel()
        await asyncio.wait([task])


def _propensities(click_models: tuple[ClickModel, ...]) -> NDArray[np.float64] | None:
    """Return the examination probability by position, if a single click model has one that falls with the rank."""
    if len(click_models) > 1 or click_models[0].examination_exponent == 0.0:
        return None
    examination = examination_by_rank(click_models[0].examination_exponent, _LONGEST_SERP)
    return examination[examination > 0.0]  # the last ones may be too small for a float64
