"""The randomness of simulated clients: by name, reproducible, and independent."""

import numpy as np

from foltr.core.numerics.streams import client_streams, first_model_rng


def test_a_client_is_the_same_everywhere_and_no_other():
    """Only seed and name decide; user and device have a stream each, and so has the first model."""
    first, second = client_streams(7, "device-001"), client_streams(7, "device-001")
    assert first.device_seed == second.device_seed
    np.testing.assert_array_equal(first.user.random(5), second.user.random(5))
    np.testing.assert_array_equal(first.device.random(5), second.device.random(5))
    streams = [client_streams(7, "device-001"), client_streams(7, "device-002"), client_streams(8, "device-001")]
    assert len({one.device_seed for one in streams}) == 3
    drawn = [rng.random() for one in streams for rng in (one.user, one.device)]
    assert len(set(drawn)) == 6
    drawn = first_model_rng(7).random()
    assert drawn == first_model_rng(7).random() != first_model_rng(8).random()
    assert drawn != np.random.default_rng(7).random()
    assert first_model_rng(None).random() != first_model_rng(None).random()


def test_the_device_stream_follows_from_the_device_seed():
    """A seed fits a signed 64-bit column; a block of draws is those one by one: the simulator works in blocks."""
    for i in range(50):
        streams = client_streams(i, "device-001")
        assert 0 <= streams.device_seed < 2**63
        np.testing.assert_array_equal(streams.device.random(3), np.random.default_rng(streams.device_seed).random(3))
    blocks = client_streams(1, "device-001").user.random((4, 22))
    one_by_one = client_streams(1, "device-001").user
    np.testing.assert_array_equal(blocks, [one_by_one.random(22) for _ in range(4)])
