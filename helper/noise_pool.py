"""A helper draws noise ahead, at moments that no request decides.

How long drawing takes depends on the noise, and the federator can measure how long an answer takes. So noise is drawn
by the clock for each policy that the helper serves, enough for some rounds (`pool_size`). Noise of one tick can be
taken from the next tick on; otherwise repeated requests would show when it was drawn. Opening a sum takes one of them,
in the same time for any noise. If none is left, the helper does not answer, and the federator asks again.

Noise is kept in memory only. It leaves the stock before the sum is stored, and the sum is stored before it is sent. So
even if the helper is killed, no noise is in two sums and no sent sum has two noises. A file's backup could bring it
back.
"""

import os
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from foltr.core.protocol.policies import GaussianNoise, Policy
from foltr.core.protocol.signed_policies import SignedPolicy
from foltr.core.secure.coins import Entropy
from foltr.core.secure.noise import draw_gaussian, draw_laplace

Noise = NDArray[np.int64]

TICK_S = 1.0
ROUNDS_AHEAD, MOST_BYTES = 8, 64 * 2**20


class NoisePool:
    """The noise of one helper. Any thread may call.

    Args:
        entropy: gives the noise.
    """

    def __init__(self, entropy: Entropy = os.urandom) -> None:
        self._entropy = entropy
        self._lock = threading.Lock()
        self._stocks: dict[bytes, _Stock] = {}

    def serve(self, policies: Iterable[SignedPolicy]) -> None:
        """Draw for these policies from now on, and drop what was drawn for others."""
        with self._lock:
            serving = {each.hash: each.policy for each in policies if not each.policy.noise_by_clients}
            self._stocks = {key: self._stocks.get(key) or _Stock(policy) for key, policy in serving.items()}

    def tick(self) -> None:
        """Release what was drawn before; then draw what is lacking. Only one thread calls it, by the clock."""
        self.release()
        while self.draw():
            pass

    def release(self) -> None:
        """Make the noise of earlier ticks available."""
        with self._lock:
            for stock in self._stocks.values():
                stock.ready += stock.drawn
                stock.drawn.clear()

    def draw(self) -> bool:
        """Draw one noise if any is lacking; return whether one was drawn."""
        with self._lock:
            stock = next((each for each in self._stocks.values() if each.lacks), None)
        if stock is None:
            return False
        noise = draw_noise(stock.policy, self._entropy)
        with self._lock:
            stock.drawn.append(noise)
        return True

    def take(self, policy: SignedPolicy) -> Noise | None:
        """Return (n_summed,) noise that no other sum gets, or None if none is ready.

        Zeros where the clients add it.
        """
        if policy.policy.noise_by_clients:
            return np.zeros(policy.policy.n_summed, np.int64)
        with self._lock:
            stock = self._stocks.get(policy.hash)
            return stock.ready.popleft() if stock is not None and stock.ready else None


@dataclass
class _Stock:
    """The noise of one policy: what can be taken now, and what from the next tick on."""

    policy: Policy
    ready: deque[Noise] = field(default_factory=deque)
    drawn: list[Noise] = field(default_factory=list)

    @property
    def lacks(self) -> bool:
        return len(self.ready) + len(self.drawn) < pool_size(self.policy)


def pool_size(policy: Policy) -> int:
    """Return for how many sums noise is drawn ahead: of `ROUNDS_AHEAD` rounds, or what fits, and of one at least."""
    fitting = MOST_BYTES // (8 * policy.n_summed)
    return max(policy.cohorts, min(ROUNDS_AHEAD * policy.cohorts, fitting))


def draw_noise(policy: Policy, entropy: Entropy = os.urandom) -> Noise:
    """Draw (n_summed,): the whole noise of a sum, since each helper adds all of it."""
    noise = policy.noise
    if isinstance(noise, GaussianNoise):
        return draw_gaussian(policy.n_summed, noise.variance, entropy)
    return draw_laplace(policy.n_summed, noise.scale, entropy)
