"""A simulated federation draws from streams: one for its first model, two for each client.

All follow from the experiment's seed, and those of a client, one for its user and one for its device, from its name
besides and nothing else: a client is the same whether it is one of thousands in a simulator or a process of its own,
and whoever else takes part.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class ClientStreams:
    """The randomness of one client.

    Attributes:
        user: what the user draws: queries and clicks.
        device_seed: 63 bits; the seed of ``device``, and of what a method keeps to the device.
        device: what the device draws: rankings, randomised responses, noise.
    """

    user: np.random.Generator
    device_seed: int
    device: np.random.Generator


def first_model_rng(seed: int | None) -> np.random.Generator:
    """Return the generator that the first model is drawn from.

    Its own stream, because ``default_rng(seed)`` is what generated data are drawn from.

    Args:
        seed: of the experiment, not negative; None draws one that nobody knows.
    """
    if seed is None:
        return np.random.default_rng()
    return np.random.default_rng(np.random.SeedSequence([seed, *b"first model"]))


def client_streams(seed: int, client_id: str) -> ClientStreams:
    """The streams of a client in an experiment.

    Args:
        seed: of the experiment, not negative.
        client_id: the client's name in the federation.
    """
    for_user, for_device = np.random.SeedSequence([seed, *client_id.encode()]).spawn(2)
    # 63 bits, because SQL's integers and the protocol's sequence numbers have a sign.
    device_seed = int(for_device.generate_state(1, np.uint64)[0] >> np.uint64(1))
    return ClientStreams(np.random.default_rng(for_user), device_seed, np.random.default_rng(device_seed))
