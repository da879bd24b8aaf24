"""The 2^i oracle: device i contributes 2^i to one weight, so that any loss or double count shows in the sum.

As a program, ``python oracle.py N_ROUNDS FOLDER``, it runs a device for each credentials file in the folder, with its
store beside it, until the folder has a file `ENOUGH` and each has had ``N_ROUNDS`` updates counted, and prints how
many each was told do count.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from support.waiting import PATIENCE_S

from foltr.core.operator.credentials import Credentials, read_credentials
from foltr.core.protocol.fields import unpack_vector
from foltr.core.protocol.trainings import PdgdTraining
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.options import Connection, Experiment, Privacy
from foltr.edge_client.store.store import Interaction
from foltr.storage.database import Database
from foltr.storage.models import list_models
from foltr.storage.queries import list_contributions, list_rounds

ENOUGH = "enough"


def power_learner(i: int):
    """A learner whose every step adds 2^i to the first weight."""

    def learn(weights: NDArray[np.float64], _interaction: Interaction, _training: PdgdTraining) -> NDArray[np.float64]:
        stepped = weights.copy()
        stepped[0] += 2.0**i
        return stepped

    return learn


async def contribute(
    credentials: Credentials,
    *,
    broker: str | None = None,
    store: str = ":memory:",
    n_wanted: int | None = None,
    may_end: Callable[[], bool] = lambda: True,
) -> int:
    """One device, an interaction a round; returns how many updates count, as far as it was told."""
    i = int(credentials.name.removeprefix("oracle-"))
    client = EdgeClient(
        credentials,
        store=store,
        connection=Connection(broker),
        privacy=Privacy(click_window_s=0),
        experiment=Experiment(learner=power_learner(i), seed=i),
    )
    async with client:
        newest = 0
        while n_wanted is None or client.n_updates_counted < n_wanted or not may_end():
            round_ = await client.next_round(after=newest, timeout_s=PATIENCE_S)
            if not round_.open:
                break
            newest = round_.round
            if client.n_waiting == 0 and await client.wait_settled(0.001):
                client.record_clicks(client.rank(np.ones((1, 4), np.float32)), [0])
            # It goes on without an answer that ended with a federator.
            await client.wait_settled(60)
        return client.n_updates_counted


async def check_history(db_url: str, federation: str) -> dict[str, int]:
    """Recompute every model as base plus mean of its clients' 2^i; returns how many updates of each are stored."""
    async with await Database.connect(db_url) as database:
        rounds = await list_rounds(database, federation, limit=10_000)
        models = await list_models(database, federation, limit=10_000)
        contributions = await list_contributions(database, federation)
    weights = {model.version: float(unpack_vector(model.weights)[0]) for model in models}
    clients = {row.round: [c.client_id for c in contributions if c.round == row.round] for row in rounds}
    for row in rounds:
        if row.state == "completed":
            expected = sum(2 ** int(client_id.removeprefix("oracle-")) for client_id in clients[row.round])
            change = weights[row.model_version] - weights[row.base_version]
            assert round(change * row.n_updates) == expected, f"round {row.round}"
    return dict(Counter(contribution.client_id for contribution in contributions))


async def _contribute_all(paths: Sequence[Path], n_rounds: int, may_end: Callable[[], bool]) -> list[int]:
    return await asyncio.gather(
        *(
            contribute(
                read_credentials(path, "device"),
                store=str(path.with_suffix(".sqlite")),
                n_wanted=n_rounds,
                may_end=may_end,
            )
            for path in paths
        )
    )


def _main(n_rounds: int, folder: Path) -> None:
    from foltr.cli.output import configure_logging

    configure_logging("error", "text")
    told = asyncio.run(_contribute_all(sorted(folder.glob("oracle-*.json")), n_rounds, (folder / ENOUGH).exists))
    print(json.dumps(told))  # noqa: T201 (its output)


if __name__ == "__main__":
    _main(int(sys.argv[1]), Path(sys.argv[2]))
