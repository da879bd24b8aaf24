"""Budgets bound where a client can take the model, whoever it is and whatever it knows.

A client moves the model by how its steps deviate from the median step of their round. What it has moved lately is the
sum of those deviations, in which older ones fade; its budget says how far that sum may be from the median client's.
What would take it beyond counts only in part: the step is drawn towards the median step until the sum is on the edge.
So a long step may not be repaid by uncounted ones, no direction is free, and it does not matter who is suspected: what
counts is what was used.

Honest clients are apart by chance, and a random walk is as far as the root of its steps: a budget has as many squared
usual lengths as these were, times what clients usually deviate in one. Where clients differ for good all their sums are
farther apart than by chance, and budgets are wider: ``OVER_MEDIAN`` times what the median client is apart.

Names cost little, and the first steps of a client are bounded least. So clients that are little known have, besides
their own, one budget together as soon as others are well known: whatever they are called, they lead the model as far as
one client may that sends as much as they do.

The guarantee (``docs/robustness.md`` proves it): let D be a client's sum, c the median client's, r the budget, a the
deviations used and e the median client's. With |D - c| <= r in every one of T rounds,
|sum (a - e)| <= r (1 + (1 - fade)(T - 1)).

Shapes: n clients of the round, N of their peers, H horizons, k numbers of a sketch. Lengths are in usual lengths.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Horizon:
    """A horizon is over how many steps deviations add up.

    Attributes:
        fade: what a step weighs after the next; 1 / (1 - fade) steps are remembered.
        chance: how many times the squared length that chance makes a sum's may be.
    """

    fade: float
    chance: float


HORIZONS = (Horizon(0.9, 5.0), Horizon(0.98, 4.0), Horizon(0.998, 3.0))
"""Ten steps, fifty, and five hundred. Chance makes short sums more uneven than long ones."""
OVER_MEDIAN = 2.5
"""How many times the median client's squared distance another's may be."""

_FADES = np.array([horizon.fade for horizon in HORIZONS])
_CHANCES = np.array([horizon.chance for horizon in HORIZONS])


def faded_squares(n_steps: NDArray[np.integer], fade: float) -> NDArray[np.float64]:
    """(n,) how many squared steps a sum of so many (n,) has, older ones faded."""
    return (1.0 - fade ** (2.0 * n_steps.astype(np.float64))) / (1.0 - fade**2)


def faded_steps(n_steps: NDArray[np.integer]) -> NDArray[np.float64]:
    """(n, H) likewise for each horizon, and one more: the first few are uneven, and little is known of them yet."""
    return 1.0 + np.stack([faded_squares(n_steps, horizon.fade) for horizon in HORIZONS], axis=1)


@dataclass(frozen=True, eq=False)
class Peers:
    """Those that budgets are measured by: clients that nothing speaks against, whoever is in the round.

    Attributes:
        sums: (N, H, k) their sums, with the steps of this round as they were asked for.
        n_steps: (N,) of each, at least 1.
        deviation: the median squared length of a client's deviation from the median step.
    """

    sums: NDArray[np.float64]
    n_steps: NDArray[np.integer]
    deviation: float


@dataclass(frozen=True, eq=False)
class Bounds:
    """The bounds of a round.

    Attributes:
        centre: (H, k) the median client's sum.
        squares: (H,) the squared budget of a client, for each of the squared steps that its sum has.
    """

    centre: NDArray[np.float64]
    squares: NDArray[np.float64]


def bounds_of(peers: Peers) -> Bounds:
    """Measure the budgets of a round by peers, at least one."""
    centre = np.median(peers.sums, axis=0)
    apart = ((peers.sums - centre) ** 2).sum(axis=2) / faded_steps(peers.n_steps)
    return Bounds(centre, np.maximum(_CHANCES * peers.deviation, OVER_MEDIAN * np.median(apart, axis=0)))


def asked_for(sums: NDArray[np.floating], deviations: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n, H, k) the sums after these deviations (n, k), were they used as they are."""
    asked: NDArray[np.float64] = _FADES[:, None] * sums + deviations[:, None, :]
    return asked


def granted(
    sums: NDArray[np.floating], deviations: NDArray[np.float64], steps: NDArray[np.float64], bounds: Bounds
) -> NDArray[np.float64]:
    """(n,) in [0, 1]: how much of each deviation its client's budgets let through.

    It is 1 for nearly all. Of who is beyond a budget already, as the median client has moved, what brings it nearer is
    let through, and nothing else.

    Args:
        sums: (n, H, k) before this round.
        deviations: (n, k) from the median step.
        steps: (n, H) squared steps of each sum, with this one (`faded_steps`).
    """
    away = _FADES[:, None] * sums - bounds.centre
    most = bounds.squares * steps
    before, along = (away**2).sum(axis=2), (away * deviations[:, None, :]).sum(axis=2)
    square = (deviations**2).sum(axis=1)[:, None]
    at = np.where(square > 0.0, square, 1.0)
    # |away + t a|^2 = most has its larger root there; beyond the budget the nearest point of the way is best.
    root = (np.sqrt(np.maximum(along**2 - square * (before - most), 0.0)) - along) / at
    best = np.where(before <= most, root, -along / at)
    best = np.where((before + 2.0 * along + square <= most) | (square == 0.0), 1.0, best)
    granted_: NDArray[np.float64] = np.clip(best.min(axis=1), 0.0, 1.0)
    return granted_


def farthest(
    sums: NDArray[np.floating],
    deviations: NDArray[np.float64],
    shares: NDArray[np.float64],
    steps: NDArray[np.float64],
    bounds: Bounds,
) -> float:
    """How far from the median client these steps have led, at most, in budgets: what was proven of them is at most 1.

    Of who was beyond its budget before, as the median client had moved, what counts is how far that was.

    Args:
        sums, deviations, steps, bounds: as in `granted`.
        shares: (n,) of the deviations that were used.
    """
    before = np.linalg.norm(_FADES[:, None] * sums - bounds.centre, axis=2)
    after = np.linalg.norm(used(sums, deviations, shares) - bounds.centre, axis=2)
    allowed = np.maximum(np.sqrt(bounds.squares * steps), before)
    return float(np.divide(after, allowed, out=np.zeros_like(after), where=after > 0.0).max(initial=0.0))


@dataclass(frozen=True, eq=False)
class SharedSum:
    """What clients that are little known have led the model by, all of them together.

    Attributes:
        sums: (H, k) float32.
        steps: (H,) float64, squared steps of each sum.
    """

    sums: NDArray[np.float32]
    steps: NDArray[np.float64]

    @classmethod
    def empty(cls, length: int) -> "SharedSum":
        return cls(np.zeros((len(HORIZONS), length), np.float32), np.zeros(len(HORIZONS)))

    def to_bytes(self) -> bytes:
        return self.sums.astype("<f4").tobytes() + self.steps.astype("<f8").tobytes()

    @classmethod
    def from_bytes(cls, stored: bytes, length: int) -> "SharedSum":
        """Read what `to_bytes` made; ValueError for another length."""
        n = len(HORIZONS)
        if len(stored) != n * (4 * length + 8):
            raise ValueError(f"{len(stored)} bytes of a shared sum of {length} numbers")
        sums, steps = stored[: 4 * n * length], stored[4 * n * length :]
        return cls(np.frombuffer(sums, "<f4").reshape(n, length), np.frombuffer(steps, "<f8"))

    def granted(
        self, strangers: NDArray[np.float64], known: NDArray[np.float64], deviation: float
    ) -> tuple[float, "SharedSum", float]:
        """How much is let through of what strangers would use, in [0, 1]; the sum after that; and its `farthest`.

        What they have in common with clients that are known leads nowhere: only what they differ by counts.

        Args:
            strangers: (s, k) deviations that their own budgets let through.
            known: (m, k) what was used of those of the clients that are known; of none all that strangers do counts.
            deviation: as in `Peers`.
        """
        together, chance = strangers.sum(axis=0), float(len(strangers))
        expected = np.zeros_like(together)
        if len(known):
            # The mean of few is uneven as well.
            expected, chance = len(strangers) * known.mean(axis=0), chance + len(strangers) ** 2 / len(known)
        steps = _FADES**2 * self.steps + chance
        centre = np.broadcast_to(expected, self.sums.shape)
        bounds = Bounds(centre, _CHANCES * deviation)
        about = self.sums[None], together[None]
        shares = granted(*about, 1.0 + steps[None], bounds)
        share = float(shares[0])
        sums = _FADES[:, None] * self.sums + share * together - expected
        away = farthest(*about, shares, 1.0 + steps[None], bounds)
        return share, SharedSum(sums.astype(np.float32), steps), away


def used(
    sums: NDArray[np.floating], deviations: NDArray[np.float64], shares: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(n, H, k) the sums after the shares (n,) of the deviations (n, k) that were used."""
    return asked_for(sums, deviations * shares[:, None])
