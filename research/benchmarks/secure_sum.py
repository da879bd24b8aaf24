"""Times of the arithmetic of secure sums, on one core: what a client, a helper and the federator compute in a round.

Run: python research/benchmarks/secure_sum.py [--clients N,N] [--dims D,D] [--helpers C,C] [--repeats N] [--json FILE]

Client: encoding an update and masking it for all helpers. Helper: adding up masks, per client of the set. Noise: drawn
once a round by each helper, for epsilon 8 in 20 participations. Federator: adding up all that arrived, and subtracting
the answers. Whole: all of these for a round in sequence, with noise drawn ahead. Nothing is sealed, signed, stored or
sent. Figures are the least of the repetitions, because other processes only add to them.

If Flower is installed (make bench-peers), its SecAgg+ is the peer (secagg_plus.py). Its client also exchanges keys and
shares; it has neither helpers nor noise.
"""

import functools
import itertools
import os
import platform
import time
from collections.abc import Callable

import numpy as np
from command_line import parser_of, write_json
from secagg_plus import measure_flower

from foltr.core.secure.accounting import gaussian_variance, rho_for
from foltr.core.secure.coins import SEED_BYTES, Words, seeded_entropy
from foltr.core.secure.encoding import bound_for, encode_l2
from foltr.core.secure.field import from_signed
from foltr.core.secure.masks import add_up_masks, mask_words, open_masks, release_sum
from foltr.core.secure.noise import draw_gaussian

CLIP_NORM = 0.15
# This many vectors and seeds are made. Larger rounds repeat them, which takes equally long.
N_DISTINCT = 50


_TITLES = {
    "n": 6,
    "d": 8,
    "c": 4,
    "client ms": 11,
    "helper ms": 11,
    "noise ms": 10,
    "federator ms": 14,
    "whole ms": 11,
    "flwr client": 13,
    "flwr server": 13,
    "flwr whole": 12,
}


def least_ms(work: Callable[[], object], repeats: int) -> float:
    """Return the least wall-clock time of a call."""
    taken = []
    for _ in range(repeats):
        before = time.perf_counter()
        work()
        taken.append(time.perf_counter() - before)
    return 1e3 * min(taken)


def measure(n_clients: int, dim: int, n_helpers: int, repeats: int) -> dict[str, float]:
    """Return one row of the table."""
    bound = bound_for(dim)
    variance = gaussian_variance(bound, rho_for(8.0, 1e-6), 20)
    update = np.random.default_rng(1).normal(size=dim).astype(np.float32)
    update *= CLIP_NORM / np.linalg.norm(update)
    seeds = [os.urandom(SEED_BYTES) for _ in range(N_DISTINCT)]
    noise = draw_gaussian(dim, variance)

    def client(own: list[bytes]) -> Words:
        return mask_words(from_signed(encode_l2(update, CLIP_NORM, bound, seeded_entropy(os.urandom(SEED_BYTES)))), own)

    masked = [client([seed]) for seed in seeds]
    answers = [open_masks(seeds, noise)] * n_helpers
    client_ms = least_ms(lambda: client([os.urandom(SEED_BYTES) for _ in range(n_helpers)]), repeats)
    helper_ms = least_ms(lambda: add_up_masks(seeds, dim), repeats) / N_DISTINCT
    arrived = list(itertools.islice(itertools.cycle(masked), n_clients))
    federator_ms = least_ms(lambda: release_sum(arrived, answers, dim), repeats)
    return {
        "clients": n_clients,
        "dim": dim,
        "helpers": n_helpers,
        "client_ms": client_ms,
        "helper_ms_a_client": helper_ms,
        "noise_ms": least_ms(lambda: draw_gaussian(dim, variance), repeats),
        "federator_ms": federator_ms,
        "whole_ms": n_clients * (client_ms + n_helpers * helper_ms) + federator_ms,
    }


@functools.cache
def flower(n_clients: int, dim: int, repeats: int) -> dict[str, float]:
    """Return Flower's figures of this size. Empty if it is not installed."""
    try:
        return measure_flower(n_clients, dim, min(repeats, 3))
    except ImportError:
        return {}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--clients", default="10,50,100,1000,5000")
    parser.add_argument("--dims", default="136,20000")
    parser.add_argument("--helpers", default="2,3,5")
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    sizes = [[int(one) for one in text.split(",")] for text in (options.clients, options.dims, options.helpers)]
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    print(f"{platform.platform()}, {platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}")
    print("".join(f"{title:>{width}}" for title, width in _TITLES.items()))
    rows = []
    for dim, n_helpers, n_clients in itertools.product(sizes[1], sizes[2], sizes[0]):
        row = {**measure(n_clients, dim, n_helpers, options.repeats), **flower(n_clients, dim, options.repeats)}
        rows.append(row)
        peer = "".join(
            f"{row[f'flwr_{part}_ms']:{width}.1f}" if f"flwr_{part}_ms" in row else f"{'-':>{width}}"
            for part, width in (("client", 13), ("server", 13), ("whole", 12))
        )
        print(
            f"{n_clients:6}{dim:8}{n_helpers:4}{row['client_ms']:11.3f}{row['helper_ms_a_client']:11.4f}"
            f"{row['noise_ms']:10.2f}{row['federator_ms']:14.3f}{row['whole_ms']:11.1f}{peer}",
            flush=True,
        )
    write_json(options.json, {"results": rows})


if __name__ == "__main__":
    main()
