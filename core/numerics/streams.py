"""The random streams of a simulated federation: one for its first model, two for each client.

All derive from the experiment's seed. Those of a client, one for its user and one for its device, also depend on its
name, and on nothing else. So a client is the same as one of thousands in a simulator or as a separate process, with any
other participants.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class ClientStreams:
    """The randomness of one client.

    Attributes:
        user: for the user's draws: queries and clicks.
        device_seed: 63 bits; the seed of ``device``, and of a method's state on the device.
        device: for the device's draws: rankings, randomised responses, noise.
    """

    user: np.random.Generator
    device_seed: int
    device: np.random.Generator


def first_model_rng(seed: int | None) -> np.random.Generator:
    """Return the generator that the first model is drawn from.

    A separate stream, because generated data are drawn from ``default_rng(seed)``.

    Args:
        seed: of the experiment, not negative; None draws a secret one.
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
