"""A group of the soak's devices: ``python soak_devices.py DEVICES_FILE FIRST COUNT N_COLUMNS PACE_S STORE_FOLDER``.

Device i adds 1 to weight ``i % N_COLUMNS`` with each interaction, so that a model shows its contributors. Its user
clicks at random moments, ``PACE_S`` seconds apart on average, independently of rounds. SIGTERM ends the group cleanly;
SIGUSR1 makes its devices leave the federation first; SIGKILL is the tested case: connections end without a goodbye, and
only the stores on disk remain.
"""

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from servers import read_devices

from foltr.cli.output import configure_logging
from foltr.core.protocol.trainings import PdgdTraining
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.options import Experiment, Privacy
from foltr.edge_client.store.store import Interaction
from foltr.edge_client.training.working_model import Learner


def one_hot_learner(column: int) -> Learner:
    def learn(weights: NDArray[np.float64], interaction: Interaction, training: PdgdTraining) -> NDArray[np.float64]:  # noqa: ARG001
        stepped = weights.copy()
        stepped[column] += 1.0
        return stepped

    return learn


class Group:
    """Devices that are started and ended together."""

    def __init__(self, n_columns: int, pace_s: float, stores: Path) -> None:
        self._n_columns, self._pace_s, self._stores = n_columns, pace_s, stores
        self._ended = asyncio.Event()
        self._leaving = False

    async def run(self, first: int, devices: list[dict[str, Any]]) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._ended.set)
        loop.add_signal_handler(signal.SIGUSR1, self._leave)
        await asyncio.gather(*(self._run_device(i, device) for i, device in enumerate(devices, start=first)))

    def _leave(self) -> None:
        self._leaving = True
        self._ended.set()

    async def _run_device(self, i: int, identity: dict[str, Any]) -> None:
        rng = np.random.default_rng()
        features = np.ones((1, self._n_columns), np.float32)
        store, learner = self._stores / f"{i}.sqlite", one_hot_learner(i % self._n_columns)
        at_once = Privacy(click_window_s=0.0)
        async with EdgeClient(
            store=store, privacy=at_once, experiment=Experiment(learner=learner), **identity
        ) as client:
            while not self._ended.is_set():
                try:
                    async with asyncio.timeout(rng.exponential(self._pace_s)):
                        await self._ended.wait()
                except TimeoutError:
                    if client.n_waiting == 0:
                        client.record_clicks(client.rank(features), [0])
            if self._leaving:
                await client.wait_connected(10)
                await client.leave(10)


if __name__ == "__main__":
    configure_logging("error", "text")
    first, count, columns = map(int, sys.argv[2:5])
    devices = read_devices(Path(sys.argv[1]))[first : first + count]
    asyncio.run(Group(columns, float(sys.argv[5]), Path(sys.argv[6])).run(first, devices))
