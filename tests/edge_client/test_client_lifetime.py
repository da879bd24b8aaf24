"""A client's life: entered in one event loop, used there, and what it says elsewhere; what it tells as it happens."""

import asyncio
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from structlog.testing import capture_logs
from support.device_stores import stored
from support.federator_by_hand import N_FEATURES, Federator, device, see
from support.waiting import PATIENCE_S, until

from foltr.core.erasure.states import ForgetState
from foltr.core.errors import DataError, UsageError
from foltr.core.protocol.receipts import ReceiptCode
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.events import Connected, ForgetStateChanged, Forgotten, ModelInUse, UpdateAnswered

DOCUMENTS = np.eye(3, N_FEATURES)


def test_a_client_that_is_never_entered_keeps_no_store(nowhere, path):
    """Neither makes it, nor locks it for the one that is; it names how to enter it, as a plain `with` would not."""
    client = device(nowhere, path)
    assert not path.exists()
    with stored(path):
        pass
    with pytest.raises(UsageError, match="was not entered yet: `async with EdgeClient"):
        client.rank(DOCUMENTS)
    with pytest.raises(UsageError, match=r"`async with EdgeClient.*`with SearchRanker"), client:
        pass


async def test_a_client_belongs_to_the_thread_that_entered_it(nowhere):
    """Recorded elsewhere, a click would be learned while the loop sends: it is told so, and nothing is stored."""
    async with device(nowhere) as client:
        serp = await asyncio.to_thread(client.rank, DOCUMENTS)
        with pytest.raises(UsageError, match=r"another thread.*SearchRanker"):
            await asyncio.to_thread(client.record_clicks, serp, [0])
        assert client.n_waiting == 0
        client.record_clicks(serp, [0])
        assert client.n_waiting == 1


@pytest.mark.parametrize("wait", ["wait_connected", "next_round", "wait_settled", "leave", "forget_me"])
async def test_a_client_belongs_to_the_loop_that_entered_it(nowhere, wait):
    """Another loop would wait for ever."""
    async with device(nowhere) as client:
        with pytest.raises(UsageError, match=r"another event loop.*SearchRanker"):
            await asyncio.to_thread(lambda: asyncio.run(getattr(client, wait)(timeout_s=PATIENCE_S)))


async def test_a_client_that_is_over_says_so(nowhere, path):
    """It ranks on, stores nothing, and is not entered again: what went before is in its counters."""
    async with device(nowhere, path) as client:
        serp = client.rank(DOCUMENTS)
    assert len(client.rank(DOCUMENTS).ranking) == 3
    with pytest.raises(UsageError, match="it is closed"):
        client.record_clicks(serp, [0])
    with pytest.raises(UsageError, match="entered before"):
        await client.__aenter__()


async def test_scores_and_weights_are_those_that_rank(mqtt_broker):
    """With what the device has learned; before the first model there are none, and all documents are alike."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker, exploration="none", gate=False) as client:
        assert client.weights is None
        assert client.scores(DOCUMENTS).tolist() == [0.0, 0.0, 0.0]
        await federator.announce(1, min_interactions=5)
        await client.next_round()
        see(client, 1, 1, 2)
        assert client.weights[:4].tolist() == [0.0, 2.0, 1.0, 0.0]
        assert client.scores(DOCUMENTS).tolist() == [0.0, 2.0, 1.0]
        assert client.rank(DOCUMENTS).ranking.tolist() == [1, 2, 0]
        client.weights[:] = 7.0
        assert client.weights[:3].tolist() == [0.0, 2.0, 1.0]
        with pytest.raises(DataError, match="3 columns"):
            client.scores(np.eye(3))


async def test_what_happens_is_told(mqtt_broker):
    """The connection, a model, the answer to an update, the end; an observer that fails harms nobody."""
    heard = []

    def observe(event):
        heard.append(event)
        raise ValueError("of the application")

    with capture_logs() as logs:
        async with Federator(mqtt_broker) as federator, device(mqtt_broker, on_event=observe) as client:
            await client.wait_connected(PATIENCE_S)
            await until(lambda: heard == [Connected()])
            await federator.announce(1, base=4)
            await client.next_round()
            see(client, 1, 2)
            await federator.accept(await federator.update(), client)
            await federator.membership("device-7", ReceiptCode.FORGOTTEN)
            await until(lambda: client.forgotten)
            assert client.receipts == {"accepted": 1}
            assert str(client.receipts) == "{'accepted': 1}"
    erasing = ForgetStateChanged(ForgetState.ERASING)
    assert heard == [Connected(), ModelInUse(4), UpdateAnswered("accepted"), erasing, Forgotten()]
    assert [line["what"] for line in logs if line["event"] == "observer_failed"] == [
        "Connected",
        "ModelInUse",
        "UpdateAnswered",
        "ForgetStateChanged",
        "Forgotten",
    ]


def test_the_door_is_where_an_application_looks():
    """`from foltr import EdgeClient`; nothing behind it is imported before it is asked for."""
    import foltr

    assert foltr.EdgeClient is EdgeClient
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = foltr.Nothing
    run = partial(subprocess.run, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    code = "import sys, foltr; print([m for m in ('numpy', 'asyncio', 'edge_client', 'pydantic') if m in sys.modules])"
    assert run([sys.executable, "-c", code]).stdout == "[]\n"
    code = "from foltr import *; from foltr import EdgeClient as e; print(EdgeClient is e)"
    assert run([sys.executable, "-c", code]).stdout == "True\n"
