"""A device that learns each click as a power of two, so that every model tells which clicks are in it.

As a program, ``python clicker.py CREDENTIALS STORE LOG N_CLICKS``, it records until so many clicks are on its disk and
all of them count. The log has a line ``tried K`` before a click is recorded and ``stored K`` after; a click is tried
once, so the next life of a process that was killed goes on with the next one.
"""

import asyncio
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from support.waiting import PATIENCE_S

from foltr.core.operator.credentials import read_credentials
from foltr.core.protocol.trainings import PdgdTraining
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.options import Experiment, Privacy
from foltr.edge_client.store.store import Interaction

# float32 counts exactly up to 2^24.
MOST_CLICKS = 22


def learn(weights: NDArray[np.float64], interaction: Interaction, _training: PdgdTraining) -> NDArray[np.float64]:
    """Add the click's own power of two to the first weight."""
    stepped = weights.copy()
    stepped[0] += float(interaction.features[0, 0])
    return stepped


def clicks_in(log: Path, word: str) -> list[int]:
    """The clicks that the log has a line with this word of."""
    lines = log.read_text(encoding="ascii").splitlines() if log.exists() else []
    return [int(line.split(" ")[1]) for line in lines if line.startswith(word)]


def _record(client: EdgeClient, log: Path) -> None:
    k = len(clicks_in(log, "tried"))
    assert k < MOST_CLICKS, "there are no more powers of two"
    with log.open("a", encoding="ascii") as lines:
        lines.write(f"tried {k}\n")
        lines.flush()
        client.record_clicks(client.rank(np.full((1, 4), 2.0**k, np.float32)), [0])
        lines.write(f"stored {k}\n")


async def click(credentials: Path, store: Path, log: Path, n_clicks: int) -> None:
    """Record clicks, a few at a time, until all that wait have become updates that count."""
    device = read_credentials(credentials, "device")
    options = {"privacy": Privacy(click_window_s=0), "experiment": Experiment(learner=learn, seed=1)}
    async with EdgeClient(device, store=str(store), **options) as client:
        await client.next_round(timeout_s=PATIENCE_S)
        # An update has two of them: one that is left over waits for another.
        while (is_short := len(clicks_in(log, "stored")) < n_clicks) or client.n_waiting:
            if is_short or client.n_waiting % 2:
                _record(client, log)
            await asyncio.sleep(0.05)
        assert not (await client.wait_settled(PATIENCE_S)).is_pending


if __name__ == "__main__":
    asyncio.run(click(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])))
