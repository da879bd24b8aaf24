"""The 2^i oracle: device i contributes 2^i to one weight, so that any loss or double count shows in the sum.

As a program, ``python oracle.py BROKER FEDERATION N_CLIENTS N_ROUNDS STORE_FOLDER``, it runs such devices until
each has had ``N_ROUNDS`` updates counted, and prints how many each was told do count.
"""

import asyncio
import json
import sqlite3
import sys
from collections import Counter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_client.client import EdgeClient
from edge_client.store import Interaction
from foltr.messages import PdgdTraining, unpack_vector


def power_learner(i: int):
    """A learner whose every step adds 2^i to the first weight."""

    def learn(weights: NDArray[np.float64], _interaction: Interaction, _training: PdgdTraining) -> NDArray[np.float64]:
        stepped = weights.copy()
        stepped[0] += 2.0**i
        return stepped

    return learn


async def contribute(broker: str, federation: str, i: int, n_wanted: int, store: str) -> int:
    """One device: an interaction a round until ``n_wanted`` updates are known to count; returns how many do."""
    client = EdgeClient(
        broker, federation=federation, client_id=f"oracle-{i:02d}", store=store, learner=power_learner(i), seed=i
    )
    async with client:
        newest = 0
        while client.n_updates_counted < n_wanted:
            round_ = await client.next_round(after=newest, timeout_s=60)
            if not round_.open:
                break
            newest = round_.round
            if client.n_waiting == 0 and await client.wait_settled(0.001):
                client.record_clicks(client.rank(np.ones((1, 4), np.float32)), [0])
            await client.wait_settled(30)
        return client.n_updates_counted


def check_history(connection, federation: str) -> dict[str, int]:
    """Recompute every model from the stored updates; returns the number of counted updates per client.

    The federation's weights are the mean over the clients of each completed round, and every update has one
    interaction, so (model - base) * n must be the sum of 2^i over exactly the clients that the round lists.
    """
    rounds = connection.execute(
        "SELECT number, base_version, model_version, n_updates FROM rounds"
        " WHERE federation = ? AND state = 'completed' ORDER BY number",
        (federation,),
    ).fetchall()
    weights = {
        version: float(unpack_vector(bytes(blob))[0])
        for version, blob in connection.execute(
            "SELECT version, weights FROM models WHERE federation = ?", (federation,)
        ).fetchall()
    }
    counted: Counter[str] = Counter()
    for number, base_version, model_version, n_updates in rounds:
        clients = [
            row[0]
            for row in connection.execute(
                "SELECT client_id FROM updates WHERE federation = ? AND round = ?", (federation, number)
            ).fetchall()
        ]
        assert len(clients) == n_updates
        expected = sum(2 ** int(client_id.removeprefix("oracle-")) for client_id in clients)
        assert round((weights[model_version] - weights[base_version]) * n_updates) == expected, f"round {number}"
        counted.update(clients)
    return dict(counted)


def check_sqlite(path: Path, federation: str) -> dict[str, int]:
    connection = sqlite3.connect(path)
    try:
        return check_history(connection, federation)
    finally:
        connection.close()


async def _main(broker: str, federation: str, n_clients: int, n_rounds: int, folder: Path) -> None:
    from foltr.cli.output import configure_logging

    configure_logging("error", "text")
    told = await asyncio.gather(
        *(contribute(broker, federation, i, n_rounds, str(folder / f"oracle-{i:02d}.sqlite")) for i in range(n_clients))
    )
    print(json.dumps(told))  # noqa: T201 (its output)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5])))
