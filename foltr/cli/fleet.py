"""Several simulated devices in one process, each a real MQTT peer with a connection of its own."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import structlog

from edge_client.client import EdgeClient
from edge_client.simulated_user import SimulatedUser
from foltr.cli.datasets import LoadedData
from foltr.click_models import click_model
from foltr.credentials import Credentials
from foltr.errors import FoltrError, first_cause

log = structlog.get_logger(__name__)

_ROUND_TIMEOUT_S = 86_400.0
_SILENCE_S = 15.0


@dataclass
class Fleet:
    """Devices by name, each with its store (a path or ``:memory:``).

    Attributes:
        broker_url: None takes the one in the credentials.
        credentials: by name; empty: nothing is signed.
        receipts: how often each receipt code was received, over all devices that are done.
    """

    broker_url: str | None
    federation: str
    data: LoadedData
    clicks: str
    interactions: int
    seed: int
    stores: dict[str, str]
    credentials: dict[str, Credentials] = field(default_factory=dict)
    n_rounds: int | None = None
    give_up_after_s: float | None = None
    receipts: Counter[str] = field(default_factory=Counter)
    newest_round: int = 0

    async def run(self) -> None:
        """Run all devices to the federation's last round (or ``n_rounds``)."""
        log.info("clients_started", n_clients=len(self.stores), federation=self.federation, broker=self.broker_url)
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._say_when_waiting())
                devices = []
                for name, store in self.stores.items():
                    # By name, so that devices in processes of their own differ as those of one process do.
                    seed = np.random.SeedSequence([self.seed, *name.encode()])
                    devices.append(group.create_task(self._run_device(name, store, seed)))
                await asyncio.wait(devices)
                watching.cancel()
        except BaseExceptionGroup as failures:
            # One line is enough: the same cause usually stops them all.
            expected, others = failures.split(FoltrError)
            if others is None and expected is not None:
                raise first_cause(expected) from failures
            raise

    async def _say_when_waiting(self) -> None:
        while True:
            before = self.newest_round
            await asyncio.sleep(_SILENCE_S)
            if self.newest_round == before:
                log.warning("no_new_round", newest=before, federation=self.federation, hint="is its federator running?")

    def _seen_round(self, number: int) -> None:
        if number > self.newest_round:
            self.newest_round = number
            log.info("round_open", round=number, n_clients=len(self.stores))

    async def _run_device(self, name: str, store: str, seed: np.random.SeedSequence) -> None:
        for_user, for_rankings = seed.spawn(2)
        client = EdgeClient(
            self.broker_url,
            federation=self.federation,
            client_id=name,
            credentials=self.credentials.get(name),
            store=store,
            seed=int(for_rankings.generate_state(1)[0]),
            give_up_after_s=self.give_up_after_s,
        )
        async with client:
            try:
                if self.give_up_after_s is not None:
                    await client.wait_connected(self.give_up_after_s)
                user = SimulatedUser(
                    client,
                    self.data.train,
                    click_model(self.clicks, self.data.n_grades),
                    np.random.default_rng(for_user),
                )
                n_rounds = await user.take_part(
                    self.interactions,
                    n_rounds=self.n_rounds,
                    round_timeout_s=_ROUND_TIMEOUT_S,
                    on_round=self._seen_round,
                )
                log.debug("device_done", client_id=name, rounds=n_rounds, interactions=user.n_interactions)
            finally:
                self.receipts.update(client.receipts)
