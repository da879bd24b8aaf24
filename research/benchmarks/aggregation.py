"""Robust rules in one run: ours, the least that NumPy needs for the same result, and the peers' functions.

Run: OPENBLAS_NUM_THREADS=1 python research/benchmarks/aggregation.py [--repeats N] [--sizes 100x136 ...] [--json FILE]

The limit of a rule is the shortest sequence of bare NumPy calls that computes it (`limits` below), without checks,
bounds on memory or accounting for clients. No library has this code; if there are several ways, it is the fastest we
found. Ours and the limit run in turns on the same float32 updates. Figures are medians, and the ratio is the median of
the pairwise ratios. Times are the processor times of this process with all its threads, so other processes hardly
matter. Memory is the most that was allocated at once (tracemalloc), as a share of the updates; with less than a
megabyte of updates it is mostly fixed work space.

Peers are measured and compared if they are installed (make bench-peers): byzfl's aggregators, which count one neighbour
more than Krum's paper, and the functions of Flower's strategies. Their results must agree with ours.
"""

import contextlib
import functools
import importlib.metadata
import math
import os
import platform
import statistics
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

from command_line import parser_of, write_json

# Before NumPy is imported: one core, as for a federator beside a broker and a database.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from foltr.core.aggregation.bulyan import bulyan
from foltr.core.aggregation.centres import centred_clipping, geometric_median, norm_bounding
from foltr.core.aggregation.coordinates import median, trimmed_mean, weighted_mean
from foltr.core.aggregation.krum import krum, krum_scores, multi_krum
from foltr.core.aggregation.pre_steps import bucketing, nnm

SIZES = ["100x136", "1000x136", "100x20000", "1000x20000"]
# Slower peers are measured once.
ONCE_ABOVE_S, SKIP_ABOVE = 1.0, 2_000_000

Array = np.ndarray
Work = Callable[[], Any]


def ours(rows: Array, m: int) -> dict[str, Work]:
    """Return each rule and pre-step as a call on these updates, with equal weights unless noted."""
    n = len(rows)
    equal, unequal = np.ones(n), np.random.default_rng(1).integers(1, 9, n).astype(np.float64)
    return {
        "mean": lambda: weighted_mean(rows, equal).vector,
        "krum": lambda: krum(rows, m).vector,
        "multi-krum": lambda: multi_krum(rows, equal, m).vector,
        "trimmed-mean": lambda: trimmed_mean(rows, equal, m).vector,
        "median": lambda: median(rows, equal).vector,
        "bulyan": lambda: bulyan(rows, m).vector,
        "geometric-median": lambda: geometric_median(rows, equal).vector,
        "centred-clipping": lambda: centred_clipping(rows, equal).vector,
        "norm-bounding": lambda: norm_bounding(rows, equal).vector,
        "nnm": lambda: nnm(rows, equal, m).rows,
        "bucketing": lambda: bucketing(rows, equal, 2, np.random.default_rng(0)).rows,
        "trimmed-mean, weighted": lambda: trimmed_mean(rows, unequal, m).vector,
        "median, weighted": lambda: median(rows, unequal).vector,
    }


def limits(rows: Array, m: int) -> dict[str, Work]:
    """Return the shortest NumPy equivalent of each rule."""
    n, dim = rows.shape
    equal, unequal = np.ones(n), np.random.default_rng(1).integers(1, 9, n).astype(np.float64)
    # A block of columns that stays in the cache once transposed.
    width = min(dim, max(1, 512 * 1024 // (4 * n)))
    n_steps = int(geometric_median(rows, equal).used["n_iterations"])
    clip_norm = centred_clipping(rows, equal).used["clip_norm"]

    def sorted_blocks(chosen: Array | None = None) -> Any:
        for start in range(0, dim, width):
            columns = slice(start, start + width)
            block = np.ascontiguousarray((rows[:, columns] if chosen is None else rows[chosen, columns]).T)
            block.sort(axis=1)
            yield columns, block

    def distances() -> Array:
        products = rows @ rows.T
        squares = products.diagonal().copy()
        products *= -2
        products += squares
        products += squares[:, None]
        return products

    def scores() -> Array:
        squared = distances()
        squared.partition(n - m - 2, axis=1)
        return squared[:, 1 : n - m - 1].sum(axis=1)

    def one_multi_krum() -> Array:
        chosen = np.argsort(scores())[: n - m]
        factors = np.zeros(n, np.float32)
        factors[chosen] = 1 / (n - m)
        return factors @ rows

    def one_trimmed_mean() -> Array:
        result = np.empty(dim)
        for columns, block in sorted_blocks():
            result[columns] = block[:, m : n - m].mean(axis=1)
        return result

    def one_median() -> Array:
        result = np.empty(dim)
        for columns, block in sorted_blocks():
            result[columns] = (block[:, (n - 1) // 2] + block[:, n // 2]) / 2
        return result

    def one_bulyan() -> Array:
        squared = distances()
        order = np.argsort(squared, axis=1)
        squared.sort(axis=1)
        left = squared[:, 1 : n - m - 1].sum(axis=1)
        # The minimum for choosing in sequence: find the smallest, take one term from all the others.
        for step in range(n - 2 * m):
            best = left.argmin()
            left -= squared[:, step]
            left[best] = np.inf
        result = np.empty(dim)
        # The time does not depend on which updates are chosen.
        for columns, block in sorted_blocks(order[0, : n - 2 * m]):
            result[columns] = block[:, m : n - 3 * m].mean(axis=1)
        return result

    def pulled(centre: Array, factor: Callable[[Array], Array]) -> Array:
        total = np.zeros(dim, np.float32)
        length = max(1, 2 * 1024 * 1024 // (4 * dim))
        for start in range(0, n, length):
            differences = rows[start : start + length] - centre
            lengths = np.sqrt(np.einsum("ij,ij->i", differences, differences))
            total += factor(lengths) @ differences
        return total

    def one_geometric_median() -> Array:
        centre = np.zeros(dim, np.float32)
        for _ in range(n_steps):
            strength = np.float32(0)

            def inverse(lengths: Array) -> Array:
                nonlocal strength
                factors = 1 / lengths
                strength += factors.sum()
                return factors

            centre += pulled(centre, inverse) / strength
        return centre

    def one_centred_clipping() -> Array:
        centre = one_median().astype(np.float32)
        pulled(centre, lambda lengths: lengths)  # the distances whose median is the clip norm
        for _ in range(3):
            centre += pulled(centre, lambda lengths: np.minimum(1, clip_norm / lengths).astype(np.float32)) / n
        return centre

    def one_norm_bounding() -> Array:
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        return np.minimum(1, np.median(lengths) / lengths) @ rows / n

    def one_nnm() -> Array:
        squared = distances()
        edge = np.partition(squared, n - m - 1, axis=1)[:, n - m - 1, None]
        return (squared <= edge).astype(np.float32) @ rows / np.float32(n - m)

    def one_bucketing() -> Array:
        order = np.random.default_rng(0).permutation(n)
        half = n // 2
        return (rows[order[: 2 * half : 2]] + rows[order[1 : 2 * half : 2]]) * np.float32(0.5)

    def one_weighted_trimmed_mean() -> Array:
        result = np.empty(dim)
        for start in range(0, dim, width):
            block = np.ascontiguousarray(rows[:, start : start + width].T)
            order = np.argsort(block, axis=1)[:, m : n - m]
            weights = unequal.astype(np.float32)[order]
            total = np.einsum("ij,ij->i", np.take_along_axis(block, order, axis=1), weights)
            result[start : start + width] = total / weights.sum(axis=1)
        return result

    def one_weighted_median() -> Array:
        result = np.empty(dim)
        half = unequal.sum() / 2
        for start in range(0, dim, width):
            block = np.ascontiguousarray(rows[:, start : start + width].T)
            order = np.argsort(block, axis=1)
            reached = np.cumsum(unequal[order], axis=1)
            lines = np.arange(len(block))
            low, high = (reached < half).sum(axis=1), (reached <= half).sum(axis=1)
            result[start : start + width] = (block[lines, order[lines, low]] + block[lines, order[lines, high]]) / 2
        return result

    return {
        "mean": lambda: np.full(n, 1 / n, np.float32) @ rows,
        "krum": lambda: rows[scores().argmin()],
        "multi-krum": one_multi_krum,
        "trimmed-mean": one_trimmed_mean,
        "median": one_median,
        "bulyan": one_bulyan,
        "geometric-median": one_geometric_median,
        "centred-clipping": one_centred_clipping,
        "norm-bounding": one_norm_bounding,
        "nnm": one_nnm,
        "bucketing": one_bucketing,
        "trimmed-mean, weighted": one_weighted_trimmed_mean,
        "median, weighted": one_weighted_median,
    }


def byzfl_functions(rows: Array, m: int) -> dict[str, tuple[Work, Array]]:
    """Return by rule byzfl's function and our result for the same definition. Empty if it is not installed."""
    try:
        import byzfl
    except ImportError:
        return {}
    n = len(rows)
    equal = np.ones(n)
    # byzfl adds up n - f - 1 distances while Krum's paper has n - m - 2, so it equals ours for m = f - 1.
    best = np.argsort(krum_scores(rows, m - 1), kind="stable")
    return {
        "mean": (lambda: byzfl.Average()(rows), rows.mean(axis=0)),
        "krum": (lambda: byzfl.Krum(f=m)(rows), rows[best[0]]),
        "multi-krum": (lambda: byzfl.MultiKrum(f=m)(rows), rows[best[: n - m]].mean(axis=0)),
        "trimmed-mean": (lambda: byzfl.TrMean(f=m)(rows), trimmed_mean(rows, equal, m).vector),
        "median": (lambda: byzfl.Median()(rows), median(rows, equal).vector),
        "geometric-median": (
            lambda: byzfl.GeometricMedian(nu=1e-6, T=3)(rows),
            geometric_median(rows, equal, n_iterations=3, tolerance=0.0).vector,
        ),
        "centred-clipping": (
            lambda: byzfl.CenteredClipping(L=3, tau=1.0)(rows),
            centred_clipping(rows, equal, 1.0, 3, np.zeros(rows.shape[1])).vector,
        ),
        "nnm": (lambda: byzfl.NNM(f=m)(rows), nnm(rows, equal, m).rows),
    }


def flower_functions(rows: Array, m: int) -> dict[str, tuple[Work, Array]]:
    """Return by rule Flower's function and our result. Empty if it is not installed."""
    try:
        from flwr.server.strategy import aggregate
    except ImportError:
        return {}
    n = len(rows)
    equal = np.ones(n)
    updates = [([row], 1) for row in rows]
    return {
        "mean": (lambda: aggregate.aggregate(updates)[0], weighted_mean(rows, equal).vector),
        "krum": (lambda: aggregate.aggregate_krum(updates, m, 0)[0], krum(rows, m).vector),
        "multi-krum": (lambda: aggregate.aggregate_krum(updates, m, n - m)[0], multi_krum(rows, equal, m).vector),
        "trimmed-mean": (
            lambda: aggregate.aggregate_trimmed_avg(updates, m / n)[0],
            trimmed_mean(rows, equal, m).vector,
        ),
        "median": (lambda: aggregate.aggregate_median(updates)[0], median(rows, equal).vector),
        "bulyan": (
            lambda: aggregate.aggregate_bulyan(list(updates), m, aggregate.aggregate_krum, to_keep=0)[0],
            bulyan(rows, m).vector,
        ),
    }


def seconds(work: Work) -> float:
    """Return the processor time of one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def in_turns(first: Work, second: Work, repeats: int) -> tuple[float, float, float]:
    """Return the median seconds of both and the median ratio. Short work is repeated within a measurement."""
    first(), second()
    loops = max(1, math.ceil(0.002 / max(seconds(second), 1e-7)))

    def measured(work: Work) -> float:
        return seconds(lambda: [work() for _ in range(loops)]) / loops

    pairs = [(measured(first), measured(second)) for _ in range(repeats)]
    columns = list(zip(*pairs, strict=True))
    return statistics.median(columns[0]), statistics.median(columns[1]), statistics.median(a / b for a, b in pairs)


def peak_bytes(work: Work) -> int:
    """Return the peak of allocated bytes above the start."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def peer_seconds(work: Work, repeats: int) -> float:
    """Return the median of up to three, or the first if that is slow."""
    first = seconds(work)
    if first > ONCE_ABOVE_S:
        return first
    return statistics.median(seconds(work) for _ in range(min(3, repeats)))


def skipped(peer: str, rule: str, n: int, dim: int) -> bool:
    """Whether this would take minutes: Flower's pairs of vectors, its Bulyan, and byzfl's copy of all neighbours."""
    if peer == "flwr":
        return (rule == "bulyan" and n > 100) or (rule.endswith("krum") and n * n * dim > 2e9)
    return rule == "nnm" and n * n * dim > 2e9


def measure(n: int, dim: int, repeats: int, with_peers: bool) -> list[dict[str, Any]]:
    """Return a row for each rule at this size, with a fifth of the updates to be tolerated."""
    rows = np.random.default_rng(0).normal(size=(n, dim)).astype(np.float32)
    m = n // 5
    peers = {}
    if with_peers:
        peers = {"byzfl": byzfl_functions(rows, m), "flwr": flower_functions(rows, m)}
    least = limits(rows, m)
    results = []
    for rule, work in ours(rows, m).items():
        ours_s, limit_s, ratio = in_turns(work, least[rule], repeats)
        row = {
            "n": n,
            "d": dim,
            "rule": rule,
            "ours_ms": ours_s * 1e3,
            "limit_ms": limit_s * 1e3,
            "ratio": ratio,
            "memory": peak_bytes(work) / rows.nbytes,
        }
        for peer, functions in peers.items():
            if rule in functions and not skipped(peer, rule, n, dim):
                function, expected = functions[rule]
                np.testing.assert_allclose(function(), expected, rtol=1e-3, atol=1e-4, err_msg=f"{peer} {rule}")
                row[f"{peer}_ms"] = peer_seconds(function, repeats) * 1e3
        results.append(row)
        print_row(row)
    return results


def print_row(row: dict[str, Any]) -> None:
    peers = "".join(f"{row[key]:12.2f}" if key in row else f"{'-':>12}" for key in ("byzfl_ms", "flwr_ms"))
    print(
        f"{row['n']:5} x {row['d']:<6} {row['rule']:<24} {row['ours_ms']:10.3f} {row['limit_ms']:10.3f} "
        f"{row['ratio']:6.2f} {row['memory']:8.2f} {peers}",
        flush=True,
    )


def version_of(package: str) -> str:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return f"{package} {importlib.metadata.version(package)}"
    return f"no {package}"


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--sizes", nargs="+", default=SIZES, metavar="NxD")
    parser.add_argument("--no-peers", action="store_true", help="leave the peers out even if they are installed")
    options = parser.parse_args()
    # On one core, so that other processes do not matter.
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
    if not options.no_peers:
        with contextlib.suppress(ImportError):
            import torch

            torch.set_num_threads(1)
    packages = ", ".join(map(version_of, ("byzfl", "torch", "flwr")))
    print(f"{platform.platform()}, {platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}")
    print(f"{packages}; one core, float32, m = n / 5, medians of {options.repeats}")
    titles = f"{'ours ms':>10} {'limit ms':>10} {'ratio':>6} {'memory':>8} {'byzfl ms':>12}{'flwr ms':>12}"
    print(f"{'n x d':13} {'rule':<24} {titles}")
    measured = functools.partial(measure, repeats=options.repeats, with_peers=not options.no_peers)
    results = [row for size in options.sizes for row in measured(*map(int, size.split("x")))]
    write_json(options.json, {"results": results})


if __name__ == "__main__":
    main()
