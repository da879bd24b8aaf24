"""Real devices whose learning is a constant: ``python constant_devices.py DEVICES_FILE DIM FIRST STEP``.

Each `EdgeClient` has its own connection, identity and signature, and a store in memory. One interaction a round.
"""

import asyncio
import gc
import sys
from pathlib import Path
from typing import Any

import numpy as np
from servers import read_devices

from foltr.cli.output import configure_logging
from foltr.core.protocol.trainings import PdgdTraining
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.options import Experiment, Privacy
from foltr.edge_client.store.store import Interaction
from foltr.edge_client.sums.privacy_limits import PrivacyLimits


def constant(weights: np.ndarray, interaction: Interaction, training: PdgdTraining) -> np.ndarray:  # noqa: ARG001
    return weights + 1e-3


async def run(devices: list[dict[str, Any]], dim: int) -> None:
    """All devices, to the federation's last round."""
    features = np.ones((1, dim), np.float32)

    async def one(identity: dict[str, Any]) -> None:
        limits = PrivacyLimits(min_cohort=2)
        async with EdgeClient(
            store=":memory:",
            experiment=Experiment(learner=constant),
            privacy=Privacy(click_window_s=0.0, privacy_limits=limits),
            **identity,
        ) as client:
            newest = 0
            while True:
                round_ = await client.next_round(after=newest, timeout_s=600)
                if not round_.open:
                    return
                newest = round_.round
                client.record_clicks(client.rank(features), [0])

    # Hundreds of devices share this process's garbage collector, unlike devices in the field.
    gc.set_threshold(100_000, 20, 100)
    await asyncio.gather(*(one(identity) for identity in devices))


if __name__ == "__main__":
    configure_logging("error", "text")
    dim, first, step = map(int, sys.argv[2:])
    asyncio.run(run(read_devices(Path(sys.argv[1]))[first::step], dim))
