"""A device under a policy, against real brokers: the policy comes by its topic, and a kill costs nothing twice."""

import asyncio
import contextlib
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cli.commands import environment
from support.device_stores import stored
from support.device_under_policy import CLIP_NORM, FEDERATOR, identity, opened
from support.federator_by_hand import TOPICS, Federator, enrolled
from support.secure_policies import policy
from support.waiting import PATIENCE_S

from foltr.core.failpoints import VARIABLE, Failpoint
from foltr.core.operator.credentials import write_credentials
from foltr.core.protocol.codec import open_envelope
from foltr.core.protocol.policies import SecureRound
from foltr.core.protocol.updates import ModelUpdate

REPOSITORY = Path(__file__).parents[2]
POLICY = policy(proofs=True)
SECURE = SecureRound(policy_hash=POLICY.hash, clip_norm=CLIP_NORM)
# A device that clicks twice, and then waits to be killed.
CLICKING = """
import asyncio, sys
import numpy as np
from foltr import Connection, EdgeClient, Experiment, Privacy

def add(weights, interaction, training):
    return weights + interaction.features[0]

async def main(url, credentials, store):
    experiment = Experiment(seed=1, learner=add)
    at_once, connection = Privacy(click_window_s=0), Connection(url)
    async with EdgeClient(
        credentials, store=store, connection=connection, privacy=at_once, experiment=experiment
    ) as client:
        await client.next_round(timeout_s=240.0)
        for number in (3, 8):
            features = np.zeros((3, 16), np.float32)
            features[:, number] = 1.0
            client.record_clicks(client.rank(features), [0])
        await asyncio.sleep(600)

asyncio.run(main(*sys.argv[1:]))
"""


async def publish_policy(federator):
    await federator.link.publish(TOPICS.policy, POLICY.signed, retain=True)


def numbers_in(update, credentials):
    return np.flatnonzero(opened(update, POLICY, credentials.key.public)).tolist()


@pytest.mark.parametrize(
    "place", [Failpoint.UPDATE_STORED, pytest.param(Failpoint.IN_UPDATE_TRANSACTION, marks=pytest.mark.nightly)]
)
async def test_kill_9_around_the_commit_charges_once_and_sends_what_was_charged(mosquitto_server, path, place):
    """Before the commit nothing is charged or sent; after it, the next life sends the bytes that are in the store."""
    credentials, url = identity(POLICY), mosquitto_server.url
    file = path.with_name("device-7.json")
    write_credentials(file, credentials)
    async with Federator(url, key=FEDERATOR) as federator:
        await publish_policy(federator)
        await federator.announce(1, sequence=1, secure=SECURE)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", CLICKING, url, str(file), str(path)),
            cwd=REPOSITORY,
            env=environment(**{VARIABLE: f"{place}=kill", "NUMBA_DISABLE_JIT": "1"}),
            stdout=subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(PATIENCE_S):
                assert await process.wait() == -signal.SIGKILL
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        with stored(path) as store:
            pending, n_charged = store.pending_update(), store.spent().last
        assert (pending is not None, n_charged) == ((True, 1) if place is Failpoint.UPDATE_STORED else (False, 0))
        assert federator.n_heard("updates") == 0
        async with enrolled(url, credentials, path) as client:
            payload = await federator.next("updates")
            update = open_envelope(payload).read(ModelUpdate)
            assert pending is None or payload == pending.payload
            assert numbers_in(update, credentials) == [3, 8]
            await federator.accept(update, client)
            assert client.n_waiting == 0
    with stored(path) as store:
        assert store.spent().last == 1
