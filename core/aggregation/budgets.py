"""Budgets bound how far any client can take the model, even one that knows the defence.

A client moves the model by how its steps deviate from the median step of their round. Its recent movement is the sum of
those deviations, in which older ones fade; its budget says how far that sum may be from the median client's. A step
beyond the budget counts only in part: it is drawn towards the median step until the sum is on the edge. So a client
cannot pay for a long step with uncounted ones, no direction is free, and only used steps count.

Honest clients differ by chance, and a random walk goes as far as the root of its steps. So a budget has as many squared
usual lengths as there were steps, times the usual deviation of clients in one step. If clients differ for good, all
their sums are farther apart than by chance, and budgets are wider: ``OVER_MEDIAN`` times the median client's distance.

Names cost little, and the first steps of a client are bounded least. So once others are well known, little-known
clients have, besides their own budgets, one together: under any names, they lead the model as far as one such client
may.

The guarantee (``docs/robustness.md`` proves it): let D be a client's sum, c the median client's, r the budget, a the
deviations used and e the median client's. With |D - c| <= r in every one of T rounds, |sum (a - e)| <= r (1 + (1 -
fade)(T - 1)).

Shapes: n clients of the round, N of their peers, H horizons, k numbers of a sketch. Lengths are in usual lengths.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Horizon:
    """How many steps deviations add up over.

    Attributes:
        fade: what a step weighs after the next; 1 / (1 - fade) steps are remembered.
        chance: by how many times chance may exceed the expected squared length of a sum.
    """

    fade: float
    chance: float


HORIZONS = (Horizon(0.9, 5.0), Horizon(0.98, 4.0), Horizon(0.998, 3.0))
"""Ten steps, fifty, and five hundred. Chance makes short sums more uneven than long ones."""
OVER_MEDIAN = 2.5
"""How many times the median client's squared distance another client's may be."""

_FADES = np.array([horizon.fade for horizon in HORIZONS])
_CHANCES = np.array([horizon.chance for horizon in HORIZONS])


def faded_squares(n_steps: NDArray[np.integer], fade: float) -> NDArray[np.float64]:
    """Return (n,) how many squared steps a sum of so many steps (n,) has, older ones faded."""
    return (1.0 - fade ** (2.0 * n_steps.astype(np.float64))) / (1.0 - fade**2)


def faded_steps(n_steps: NDArray[np.integer]) -> NDArray[np.float64]:
    """Return (n, H) likewise for each horizon, plus one: the first steps are uneven, and little is known of them."""
    return 1.0 + np.stack([faded_squares(n_steps, horizon.fade) for horizon in HORIZONS], axis=1)


@dataclass(frozen=True, eq=False)
class BudgetPeers:
    """The clients that budgets are measured by: unsuspected ones, in the round or not.

    Attributes:
        sums: (N, H, k) their sums, including this round's steps as sent.
        n_steps: (N,) of each, at least 1.
        deviation: the median squared length of a client's deviation from the median step.
    """

    sums: NDArray[np.float64]
    n_steps: NDArray[np.integer]
    deviation: float


@dataclass(frozen=True, eq=False)
class DeviationBudgets:
    """The bounds of a round.

    Attributes:
        centre: (H, k) the median client's sum.
        squares: (H,) a client's squared budget per squared step in its sum.
    """

    centre: NDArray[np.float64]
    squares: NDArray[np.float64]


def deviation_budgets(peers: BudgetPeers) -> DeviationBudgets:
    """Measure the budgets of a round by peers, at least one."""
    centre = np.median(peers.sums, axis=0)
    apart = ((peers.sums - centre) ** 2).sum(axis=2) / faded_steps(peers.n_steps)
    return DeviationBudgets(centre, np.maximum(_CHANCES * peers.deviation, OVER_MEDIAN * np.median(apart, axis=0)))


def sums_if_unlimited(sums: NDArray[np.floating], deviations: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n, H, k) the sums after these deviations (n, k), if used in full."""
    asked: NDArray[np.float64] = _FADES[:, None] * sums + deviations[:, None, :]
    return asked


def granted_shares(
    sums: NDArray[np.floating], deviations: NDArray[np.float64], steps: NDArray[np.float64], bounds: DeviationBudgets
) -> NDArray[np.float64]:
    """Return (n,) in [0, 1], the share of each deviation that its client's budgets allow.

    It is 1 for nearly all. A client that is beyond a budget, because the median client has moved, may only come nearer.

    Args:
        sums: (n, H, k) before this round.
        deviations: (n, k) from the median step.
        steps: (n, H) squared steps of each sum, including this one (`faded_steps`).
    """
    away = _FADES[:, None] * sums - bounds.centre
    most = bounds.squares * steps
    before, along = (away**2).sum(axis=2), (away * deviations[:, None, :]).sum(axis=2)
    square = (deviations**2).sum(axis=1)[:, None]
    at = np.where(square > 0.0, square, 1.0)
    # The larger root of |away + t a|^2 = most; beyond the budget the nearest point of the way is best.
    root = (np.sqrt(np.maximum(along**2 - square * (before - most), 0.0)) - along) / at
    best = np.where(before <= most, root, -along / at)
    best = np.where((before + 2.0 * along + square <= most) | (square == 0.0), 1.0, best)
    granted_: NDArray[np.float64] = np.clip(best.min(axis=1), 0.0, 1.0)
    return granted_


def farthest_in_budgets(
    sums: NDArray[np.floating],
    deviations: NDArray[np.float64],
    shares: NDArray[np.float64],
    steps: NDArray[np.float64],
    bounds: DeviationBudgets,
) -> float:
    """Return the farthest these steps have led from the median client, in budgets: at most 1, as proven.

    A client that was beyond its budget before, because the median client had moved, is measured against that distance.

    Args:
        sums, deviations, steps, bounds: as in `granted_shares`.
        shares: (n,) of the deviations that were used.
    """
    before = np.linalg.norm(_FADES[:, None] * sums - bounds.centre, axis=2)
    after = np.linalg.norm(sums_after(sums, deviations, shares) - bounds.centre, axis=2)
    allowed = np.maximum(np.sqrt(bounds.squares * steps), before)
    return float(np.divide(after, allowed, out=np.zeros_like(after), where=after > 0.0).max(initial=0.0))


@dataclass(frozen=True, eq=False)
class SharedSum:
    """How far all little-known clients together have led the model.

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
        """Return the share in [0, 1] that strangers' deviations may use; the sum after that; its `farthest_in_budgets`.

        What they have in common with known clients leads nowhere: only differences count.

        Args:
            strangers: (s, k) deviations that their budgets allow.
            known: (m, k) used deviations of known clients; without any, all that strangers do counts.
            deviation: as in `BudgetPeers`.
        """
        together, chance = strangers.sum(axis=0), float(len(strangers))
        expected = np.zeros_like(together)
        if len(known):
            # The mean of few known clients is uneven as well.
            expected, chance = len(strangers) * known.mean(axis=0), chance + len(strangers) ** 2 / len(known)
        steps = _FADES**2 * self.steps + chance
        centre = np.broadcast_to(expected, self.sums.shape)
        bounds = DeviationBudgets(centre, _CHANCES * deviation)
        about = self.sums[None], together[None]
        shares = granted_shares(*about, 1.0 + steps[None], bounds)
        share = float(shares[0])
        sums = _FADES[:, None] * self.sums + share * together - expected
        away = farthest_in_budgets(*about, shares, 1.0 + steps[None], bounds)
        return share, SharedSum(sums.astype(np.float32), steps), away


def sums_after(
    sums: NDArray[np.floating], deviations: NDArray[np.float64], shares: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return (n, H, k) the sums after the used shares (n,) of the deviations (n, k)."""
    return sums_if_unlimited(sums, deviations * shares[:, None])
