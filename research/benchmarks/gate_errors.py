"""How often a gate opens for a useless model: histories of users whose clicks favour neither order.

Run: python research/benchmarks/gate_errors.py [--histories N] [--searches N] [--users N,N] [--json FILE]

Each interleaved list credits one of the orders, as likely the one as the other, by the first turn: nothing tells sooner
by chance. Users are in federations of so many, whose credits are pooled after each round of five searches. A history
ends when its gate opens, by the own credits or by those of all. Shares of lists, bets and conditions are those of
`foltr.core.learning.gate`; here they are computed for all histories at once.
"""

import math
from typing import NamedTuple

import numpy as np
from command_line import parser_of, write_json
from gated_users import SEARCHES
from numpy.typing import NDArray

from foltr.core.learning.credits import LIARS, OPENS_AT, STAKES
from foltr.core.learning.gate import (
    BASE_DECAY,
    DISMISSED_BELOW,
    FEWEST_BASE_LISTS,
    FEWEST_PROMISING,
    OBJECTS_BELOW,
    SHARE_DISMISSED,
    SHARE_LIKELY,
    SHARE_PROMISING,
    SHARE_WARY,
    SHARED_LIKELY_ABOVE,
    SHARED_PROMISING_FROM,
)

Floats = NDArray[np.float64]


class Opened(NamedTuple):
    """How many histories opened their gate.

    Attributes:
        by_own, by_shared: by the user's own credits, and by those of all users.
        interleaved: mean share of interleaved lists.
    """

    n_users: int
    histories: int
    by_own: int
    by_shared: int
    interleaved: float

    @property
    def rate(self) -> float:
        return (self.by_own + self.by_shared) / self.histories


def run(n_users: int, n_federations: int, n_searches: int, rng: np.random.Generator) -> Opened:
    """Return how many gates of these federations ever open."""
    shape = (n_federations, n_users)
    total, squares, n_base = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    shared_total, shared_squares = np.zeros(n_federations), np.zeros(n_federations)
    by_own, by_shared = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
    n_interleaved = 0
    for number in range(n_searches):
        if number % SEARCHES == 0:
            shared_total, shared_squares = pooled_each(total, squares)
        base = _base_weight(n_base)
        shares = shares_of(total, squares, base, shared_total[:, None], shared_squares[:, None])
        is_closed = ~(by_own | by_shared)
        mixed = (rng.random(shape) < shares) & is_closed
        n_interleaved += int(mixed.sum())
        total += np.where(mixed, rng.choice([-1.0, 1.0], shape), 0.0)
        squares += mixed
        n_base += ~mixed & is_closed
        by_own |= is_closed & (growth_of(total, squares) >= OPENS_AT)
        base = _base_weight(n_base)
        conclusive = growth_of(shared_total, shared_squares)[:, None] >= OPENS_AT
        if conclusive.any():
            agrees = total >= OBJECTS_BELOW * np.sqrt(squares)
            by_shared |= is_closed & ~by_own & conclusive & agrees & (base >= FEWEST_BASE_LISTS)
    n = n_federations * n_users
    return Opened(n_users, n, int(by_own.sum()), int(by_shared.sum()), n_interleaved / (n * n_searches))


def shares_of(total: Floats, squares: Floats, base: Floats, shared_total: Floats, shared_squares: Floats) -> Floats:
    """Return `Gate.share_interleaved` of closed gates that were never open, beside a base that is not good.

    Credits weigh 1 each.
    """
    own, of_all = _scores(total, squares), _scores(shared_total, shared_squares)
    favoured = np.where(own > 1.0, SHARE_LIKELY, SHARE_PROMISING)
    worse = np.where(own < DISMISSED_BELOW, SHARE_DISMISSED, SHARE_WARY)
    by_own = np.where(squares < FEWEST_PROMISING, SHARE_WARY, np.where(total >= 0.0, favoured, worse))
    by_shared = np.where(of_all > SHARED_LIKELY_ABOVE, SHARE_LIKELY, SHARE_PROMISING)
    objects = (total < 0.0) & (by_shared == SHARE_PROMISING)
    says_nothing = (shared_squares == 0.0) | (of_all < SHARED_PROMISING_FROM)
    by_own_alone = (by_own == SHARE_DISMISSED) | says_nothing | objects
    both = np.maximum(by_own, by_shared)
    both = np.where(base < FEWEST_BASE_LISTS, np.minimum(both, SHARE_PROMISING), both)
    return np.where(by_own_alone, by_own, both)


def _scores(total: Floats, squares: Floats) -> Floats:
    """Return `Credits.score` of each."""
    scores: Floats = np.divide(total, np.sqrt(squares), out=np.zeros_like(total), where=squares > 0.0)
    return scores


def _base_weight(n_lists: Floats | int) -> Floats:
    """Return the weight of the base's fading mean after so many lists of it."""
    weight: Floats = np.asarray((1.0 - BASE_DECAY ** np.asarray(n_lists)) / (1.0 - BASE_DECAY))
    return weight


def growth_of(total: Floats, squares: Floats) -> Floats:
    """Return `Credits.growth` of each."""
    gains = [np.exp(np.minimum(stake * total - stake**2 * squares / 2, 700.0)) for stake in STAKES]
    growth: Floats = np.mean(gains, axis=0)
    return growth


def pooled_each(totals: Floats, squares: Floats) -> tuple[Floats, Floats]:
    """Return `foltr.core.learning.credits.pooled` of each federation (federations, users): totals and squares."""
    n_dropped = math.ceil(LIARS * totals.shape[1])
    if n_dropped >= totals.shape[1]:
        return np.zeros(len(totals)), np.zeros(len(totals))
    most = np.sort(squares, axis=1)[:, -1 - n_dropped, None]
    weights = np.divide(most, squares, out=np.ones_like(squares), where=squares > most)
    ordered = np.sort(totals * weights, axis=1)
    kept, dropped = ordered[:, :-n_dropped], ordered[:, -n_dropped:]
    lowest = np.where(kept[:, -1:] > 0.0, -kept[:, -1:], -np.inf)
    total = np.maximum(kept, lowest).sum(axis=1) + np.minimum(dropped, 0.0).sum(axis=1)
    return total, np.minimum(squares, most).sum(axis=1)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--histories", type=int, default=10_000)
    parser.add_argument("--searches", type=int, default=10_000, help="of each")
    parser.add_argument("--users", default="1,8,100", help="in a federation")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print("users  histories  opened by own credits  by all users'    rate  interleaved")
    rows = []
    for n_users in map(int, options.users.split(",")):
        n_federations = math.ceil(options.histories / n_users)
        found = run(n_users, n_federations, options.searches, np.random.default_rng([options.seed, n_users]))
        rows.append({**found._asdict(), "rate": found.rate})
        print(
            f"{n_users:5}  {found.histories:9,}  {found.by_own:21}  {found.by_shared:13}  {found.rate:6.2%}  "
            f"{found.interleaved:11.1%}",
            flush=True,
        )
    write_json(options.json, rows)


if __name__ == "__main__":
    main()
