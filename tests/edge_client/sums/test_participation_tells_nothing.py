"""Under a policy everybody may see when a device takes part; neither that nor what is sent then tells of clicks."""

import numpy as np
import pytest
from support.device_under_policy import UPDATES, DeviceUnderPolicy
from support.federator_by_hand import N_FEATURES
from support.secure_policies import policy

from foltr.core.protocol.trainings import PdgdTraining

N_LISTS, K = 40, 4
TRAINING = PdgdTraining(min_interactions=1, max_interactions=10)
USERS = {
    "nothing": lambda _number: [],
    "the first": lambda _number: [0],
    "the last": lambda _number: [K - 1],
    "all": lambda _number: list(range(K)),
    "now and then": lambda number: [number % K] if number % 3 == 0 else [],
}


async def rounds_of(path, clicks, **options):
    """After which of its lists a device sends an update, where each is answered and the next round opens at once."""
    device = DeviceUnderPolicy(path, policy(n_interactions=3), learner=None, **options)
    features = np.random.default_rng(3).random((N_LISTS, 8, N_FEATURES), np.float32)
    number, sent = 1, []
    device.announce(number, training=TRAINING)
    for at, candidates in enumerate(features):
        device.agent.record_clicks(device.agent.rank(candidates, k=K), clicks(at))
        payloads = [payload for topic, payload in await device.sent() if topic == UPDATES]
        if payloads:
            sent.append((at, len(payloads), {len(payload) for payload in payloads}))
            device.join(watermark=len(sent))
            number += 1
            device.announce(number, training=TRAINING)
    return sent


async def test_when_a_device_takes_part_does_not_hang_on_what_was_clicked(tmp_path):
    """Whatever its user clicks, it sends after the same lists, and as many bytes."""
    found = {name: await rounds_of(tmp_path / f"{i}.sqlite", clicks) for i, (name, clicks) in enumerate(USERS.items())}
    assert len(found["all"]) > 5
    assert all(sent == found["all"] for sent in found.values()), found


@pytest.mark.parametrize("gate", [True, False])
async def test_nor_on_whether_its_gate_is_open(tmp_path, gate):
    """Lists in the application's own order are an update's as those of the model."""
    found = [await rounds_of(tmp_path / f"{i}.sqlite", clicks, gate=gate) for i, clicks in enumerate(USERS.values())]
    assert all(sent == found[0] for sent in found)
