"""The first list of a process comes at once, also where numba is installed and nothing of it is loaded yet."""

import asyncio
import sys

import numpy as np
import pytest
from support.federator_by_hand import N_FEATURES, Federator, model
from support.waiting import PATIENCE_S

from foltr.core.numerics.compiled import COMPILED
from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.trainings import PdgdTraining

# What imports numba waits until it is told to go on.
CODE = f"""
import asyncio, sys, threading
import numpy as np
from foltr import Connection, EdgeClient, Experiment, Privacy

goes_on, asked = threading.Event(), threading.Event()

class Waits:
    def find_spec(self, name, path=None, target=None):
        if name == "numba":
            asked.set()
            assert goes_on.wait(240)

sys.meta_path.insert(0, Waits())

async def until(condition):
    async with asyncio.timeout(240):
        while not condition():
            await asyncio.sleep(0.005)

async def main():
    rng = np.random.default_rng(1)
    connection = Connection(sys.argv[1], "mail", "device-7")
    options = {{"privacy": Privacy(click_window_s=0), "experiment": Experiment(seed=1)}}
    async with EdgeClient(store=":memory:", connection=connection, **options) as client:
        serp = client.rank(rng.random((20, {N_FEATURES})))
        assert serp.model_version is None
        waits = asyncio.create_task(client.next_round(timeout_s=240.0))
        await until(asked.is_set)
        assert client.model_version == 3
        for _ in range(3):
            serp = client.rank(rng.random((120, {N_FEATURES})), exploration="sampling")
            assert serp.model_version == 3
            client.record_clicks(serp, [1, 4])
        before = client.weights
        assert client.n_waiting == 3
        await asyncio.sleep(0.05)
        assert not waits.done()
        assert client.weights.tobytes() == before.tobytes()
        goes_on.set()
        await waits
        assert "numba" in sys.modules
        assert client.weights.tobytes() != before.tobytes()

asyncio.run(main())
"""


@pytest.mark.skipif(not COMPILED, reason="numba is not installed or switched off")
async def test_neither_a_list_nor_a_click_waits_for_kernels(mqtt_broker):
    """They are made and stored while the thread that loads kernels stands still; a round is there once it has ended."""
    announcement = model(3).model_copy(update={"weights": pack_vector(np.linspace(0.0, 1.0, N_FEATURES))})
    async with Federator(mqtt_broker) as federator:
        training = PdgdTraining(min_interactions=1000, max_interactions=1000)
        await federator.announce(1, newest=announcement, training=training)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", CODE, mqtt_broker), stderr=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(PATIENCE_S):
            _, error = await process.communicate()
    assert process.returncode == 0, error.decode()
