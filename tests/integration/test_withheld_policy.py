"""A broker that withholds the policy, and a federator that would see everything, get nothing from pinned devices."""

import asyncio
import contextlib

import numpy as np
import pytest
from integration.deployment import DIM, FEDERATION, Deployment
from support.broker_links import Inbox, connected
from support.federator_by_hand import adding_learner
from support.waiting import PATIENCE_S, until

from foltr.core.protocol.codec import open_envelope
from foltr.core.protocol.states import Privacy
from foltr.edge_client.blockers import BlockerKind
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.options import Experiment

N_DEVICES = 4


def click(client: EdgeClient) -> None:
    features = np.zeros((3, DIM), np.float32)
    features[:, 0] = 1.0
    client.record_clicks(client.rank(features), [0])


@contextlib.asynccontextmanager
async def overheard(url):
    """What devices send meanwhile, by kind."""
    inbox, kinds = Inbox(), set()
    root = f"foltr/v1/{FEDERATION}/clients"
    async with connected(url, "watcher", inbox, [f"{root}/#"]) as link:
        yield kinds
        await link.publish(f"{root}/marker", b"marker")
        while (message := await inbox.next(PATIENCE_S)).payload != b"marker":
            if message.payload and not message.topic.endswith("/inbox"):
                kinds.add(open_envelope(message.payload).kind)


@contextlib.asynccontextmanager
async def serving(service):
    """A federator for the time of the block."""
    started = asyncio.Event()
    task = asyncio.create_task(service.run(started.set))
    await started.wait()
    yield
    service.stop()
    await task


@pytest.mark.parametrize("privacy", list(Privacy))
async def test_a_trusted_federator_gets_nothing_from_pinned_devices(mosquitto_server, tmp_path, privacy):
    """It has the federation's key, and no policy is at the broker. Each device comes twice, with an empty store.

    Devices of a trusted federation send it what it asks for: that is what the pin is about.
    """
    url, db_url = mosquitto_server.url, f"sqlite:///{tmp_path / 'foltr.sqlite'}"
    async with (
        Deployment(tmp_path, url, db_url, N_DEVICES, privacy) as deployment,
        overheard(url) as kinds,
        serving(deployment.service(9, deployment.database)),
    ):
        for one in (*deployment.devices, *deployment.devices):
            async with EdgeClient(
                one, store=":memory:", experiment=Experiment(seed=1, learner=adding_learner)
            ) as client:
                click(client)
                await client.next_round(timeout_s=PATIENCE_S)
                await until(lambda client=client: client.has_joined, "it has not joined")
                click(client)
                if privacy is Privacy.SECURE:
                    assert client.blocker.kind is BlockerKind.NO_POLICY
                    assert "foltr policy publish" in client.blocker.message
                    assert client.n_waiting == 2
                else:
                    await until(lambda client=client: bool(client.receipts), "nothing was sent")
    assert kinds - {"status"} == ({"join"} if privacy is Privacy.SECURE else {"join", "update"})
