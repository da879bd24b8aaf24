"""Several simulated devices in one process, each a real MQTT peer with a connection of its own."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
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
# So long without a new round is worth a line; each later line waits twice as long, as a round may take ten minutes.
_SILENCE_S, _LONGEST_SILENCE_S = 15.0, 300.0
_LOOK_S = 2.5
_N_LOOKED_AT = 20
# So long a broker may take to read its files again after a device was enrolled.
_LOCKED_OUT_S = 60.0
# As many documents as any federation may ask to show.
_LONGEST_SERP = 1000


@dataclass(frozen=True, eq=False)
class FleetUser:
    """What one device's user does.

    Attributes:
        dataset: whose queries it issues.
        queries: (n,) indices of those it may issue; None: all.
        click_models: of several, one is drawn for each interaction.
        n_interactions: in a round.
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
        data, clicks, interactions: of the users that ``users`` does not name, who are all alike.
        credentials: by name; empty: nothing is signed.
        credentials_files: where they are from, by name.
        users: by name, where devices differ.
        alterations: by name, of devices that change what they send by themselves.
        schema, privacy: of the devices, see `EdgeClient`.
        alive_file: touched while nothing but the federator keeps devices from taking part.
        receipts: how often each receipt code was received, over all devices that are done.
        refused: why devices could not take part, by name.
        forgotten: devices that the federation has erased, or had before.
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
            UnavailableError: some could not take part; the others have.
        """
        log.info("clients_started", n_clients=len(self.stores), federation=self.federation, broker=self.broker_url)
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._say_when_waiting())
                await asyncio.wait([group.create_task(self._run_device(*one)) for one in self.stores.items()])
                watching.cancel()
        except BaseExceptionGroup as failures:
            # One line is enough: the same cause usually stops them all.
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
        """Say why devices wait: soon after something is in the way, and now and then while there is no new round."""
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
            if blocker is not None and seen is last and seen is not told:  # not what passes while all begin
                log.warning("clients_wait", federation=self.federation, cause=blocker.message)
                told = seen
            elif told is not None and seen is None:
                log.info("clients_resumed", federation=self.federation)
                told = None
            elif silent_s >= say_after_s:
                why = "the federator is there: foltr rounds why" if blocker is None else blocker.message
                log.warning("no_new_round", newest=before, federation=self.federation, hint=why)
                silent_s, say_after_s = 0.0, min(2 * say_after_s, _LONGEST_SILENCE_S)

    def _blocker(self) -> Blocker | None:
        """What keeps one of the first devices from taking part; the same usually stops them all."""
        looked_at = islice(self._clients.values(), _N_LOOKED_AT)
        return next((found for client in looked_at if (found := client.blocker) is not None), None)

    def _seen_round(self, number: int) -> None:
        if number > self.newest_round:
            self.newest_round = number
            log.info("round_open", round=number, n_clients=len(self.stores))

    def user(self, name: str) -> FleetUser:
        """Return what the user of a device does."""
        if name in self.users:
            return self.users[name]
        return FleetUser(
            self.data.train, None, (click_model(self.clicks, self.data.n_grades),), n_interactions=self.interactions
        )

    async def _run_device(self, name: str, store: str) -> None:
        streams, chosen = client_streams(self.seed, name), self.user(name)
        click_models = tuple(personal(model, streams.user) for model in chosen.click_models)
        client = EdgeClient(
            # By its file, where there is one: beside it `foltr erasure request --credentials` keeps a wish.
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
            # A simulated user has no application with an order worth keeping.
            ranking=Ranking(propensities=_propensities(click_models), gate=False),
            privacy=self.privacy,
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
                # Who is to take part for ever waits for ever to be let in.
                n_rounds = await (taking_part if self.n_rounds is None else _unless_locked_out(client, taking_part))
                log.debug("device_done", client_id=name, rounds=n_rounds, interactions=user.n_interactions)
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
        """Note a device that no federation took in, or takes in no more."""
        blocker = client.blocker
        if client.forgotten or (client.has_joined and (blocker is None or blocker.kind not in REFUSALS)):
            return
        self.refused[name] = why if blocker is None else blocker.message
        log.error("device_refused", client_id=name, cause=self.refused[name])


async def _unless_locked_out(client: EdgeClient, taking_part: Coroutine[Any, Any, int]) -> int:
    """Take part, unless the broker does not let the device in for as long as it may need to hear of a new one.

    Raises:
        UnavailableError: it does not.
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
    """How likely a user examines each position, if it is one click model's examination that falls with the rank."""
    if len(click_models) > 1 or click_models[0].examination_exponent == 0.0:
        return None
    examination = examination_by_rank(click_models[0].examination_exponent, _LONGEST_SERP)
    return examination[examination > 0.0]  # the last ones may be too small for a float64
