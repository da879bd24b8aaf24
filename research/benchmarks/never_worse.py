"""What users lose while a federation learns, and after how many searches their gates open.

Run: python research/benchmarks/never_worse.py [--bases B,B] [--clicks NAME,NAME] [--users N] [--searches N]
     [--new-users N] [--seeds N] [--json FILE]

A base is the MRR@10 of a made search, or `desktop`: the standard library's documentation by BM25. Users click what they
want and 5 % of what else they read (clean), or 30 % (noisy). All is as by default. In thousandths of MRR@10, by blocks
of a hundred searches of each user: what the lists shown gain over the base's, expected over all that may be shown. The
interval is that of the mean over seeds. Then the searches after which half and nine tenths of the gates had been open,
of the first users and of those that join a federation whose users have made so many searches, and how many lists users
see of a model that is turned upside down. Floors: how many interleaved lists any bet needs to know that the model is
better, and how many of its own any rule needs to notice that it was turned.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from command_line import parser_of, write_json
from gated_users import SEARCHES, GatedFederation, User
from known_searches import DesktopSearch, KnownSearch, MadeSearch
from numpy.typing import NDArray

from foltr.core.evaluation.click_models import click_model

BLOCK = 100
CLICKS = {"clean": "navigational", "noisy": "informational"}
_T_95 = {2: 12.7, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}


class Arm(NamedTuple):
    """What is measured.

    Attributes:
        base: MRR@10 of a made search, or `desktop`.
        n_new: users that join at the end of the others' searches, and search 600 times.
    """

    base: str
    clicks: str
    n_users: int
    n_searches: int
    n_new: int


def measure(arm: Arm, n_seeds: int) -> dict[str, Any]:
    """Return one row of the table."""
    gains, of_model, opened, opened_new, base_mrr = [], [], [], [], []
    n_closing: list[int] = []
    to_know, to_notice = [], []
    for seed in range(1, n_seeds + 1):
        search: KnownSearch = DesktopSearch(seed) if arm.base == "desktop" else MadeSearch(float(arm.base))
        federation = GatedFederation(search, click_model(CLICKS[arm.clicks], 2), arm.n_users, seed)
        first = list(federation.users)
        federation.run(arm.n_searches // SEARCHES)
        gains.append(_by_block([user.gains for user in first]))
        of_model.append(_by_block([user.of_model for user in first]))
        opened += [_opened_after(user) for user in first]
        n_closing += federation.lists_until_closed()
        to_know.append(federation.lists_to_know())
        to_notice.append(federation.lists_to_notice())
        new = federation.join(arm.n_new)
        federation.run(600 // SEARCHES if new else 0)
        opened_new += [_opened_after(user) for user in new]
        base_mrr.append(search.base_mrr)
    by_seed = np.array(gains)
    means = by_seed.mean(axis=0)
    worst = int(means.argmin())
    return {
        **arm._asdict(),
        "base_mrr": float(np.mean(base_mrr)),
        "gains": (1000 * means).tolist(),
        "intervals": (1000 * _half_width(by_seed)).tolist(),
        "worst": 1000 * float(means[worst]),
        "worst_interval": 1000 * float(_half_width(by_seed)[worst]),
        "worst_block": worst + 1,
        "model_gains": (1000 * np.mean(of_model, axis=0)).tolist(),
        "opened": _quantiles(opened),
        "opened_new": _quantiles(opened_new),
        "upside_down": _quantiles(n_closing),
        "to_know": float(np.median(to_know)),
        "to_notice": float(np.median(to_notice)),
    }


def _by_block(by_user: list[list[float]]) -> NDArray[np.float64]:
    """Return (blocks,) means over users."""
    values = np.array(by_user)
    means: NDArray[np.float64] = values.reshape(len(values), -1, BLOCK).mean(axis=(0, 2))
    return means


def _half_width(by_seed: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (blocks,) half the 95 % interval of the mean over seeds."""
    n = len(by_seed)
    if n < 2:
        return np.full(by_seed.shape[1], np.nan)
    width: NDArray[np.float64] = by_seed.std(axis=0, ddof=1) / math.sqrt(n) * _T_95.get(n, 2.0)
    return width


def _opened_after(user: User) -> float:
    return math.inf if user.opened_after is None else float(user.opened_after)


def _quantiles(counts: list[float] | list[int]) -> list[float | None]:
    """Return the median, and the least number that nine in ten do not exceed; None if it is not reached."""
    if not counts:
        return [None, None]
    ordered = sorted(map(float, counts))
    chosen = [ordered[math.ceil(share * len(ordered)) - 1] for share in (0.5, 0.9)]
    return [None if math.isinf(one) else one for one in chosen]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--bases", default="0.3,0.45,0.6,0.75,0.85,0.95")
    parser.add_argument("--clicks", default="clean,noisy")
    parser.add_argument("--users", type=int, default=8)
    parser.add_argument("--searches", type=int, default=1500, help="of each user, a multiple of 100")
    parser.add_argument("--new-users", type=int, default=0, help="that join after that, for 600 searches")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    print(
        "base      clicks  worst block of 100     block 1    last  model, last  opened 50 %/90 %   new   turned  floors"
    )
    rows = []
    for base in options.bases.split(","):
        for clicks in options.clicks.split(","):
            row = measure(Arm(base, clicks, options.users, options.searches, options.new_users), options.seeds)
            rows.append(row)
            _show(row)
    write_json(options.json, rows)


def _show(row: dict[str, Any]) -> None:
    counts = "  ".join(
        "/".join("-" if one is None else f"{one:.0f}" for one in row[name])
        for name in ("opened", "opened_new", "upside_down")
    )
    print(
        f"{row['base']:9} {row['clicks']:6}  {row['worst']:+6.2f} ± {row['worst_interval']:.2f} (block "
        f"{row['worst_block']:2})  {row['gains'][0]:+7.2f} {row['gains'][-1]:+7.2f}  {row['model_gains'][-1]:+8.1f}    "
        f"{counts}    {row['to_know']:.0f} {row['to_notice']:.0f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
