"""Times and sizes of norm proofs, on one core: the additional work of a device, and of each verifier for a device.

Run: python research/benchmarks/norm_proof.py [--dims D,D] [--helpers C,C] [--repeats N] [--json FILE]

Client: proving, and masking the proof, in addition to masking the vector; it computes with whole arrays, because
devices do not have numba. Helper, for one device: expanding its share from a seed, the challenge, the answer.
Federator, for one device: challenge, answer, the sum of all answers, the verdict. Helper and federator are measured
both with numba, which uses machine code for long vectors, and with whole arrays. Bytes: what a device sends in
addition, and what a helper answers for each device. Nothing is sealed, signed, stored or sent. Figures are the least of
the repetitions, because other processes only add to them.
"""

import contextlib
import itertools
import os
import platform

import numpy as np
from command_line import parser_of, write_json
from secure_sum import least_ms

from foltr.core.numerics.compiled import COMPILED, plain_functions
from foltr.core.secure.coins import SEED_BYTES
from foltr.core.secure.encoding import bound_for, encode_l2
from foltr.core.secure.field import add_up, from_signed, subtract
from foltr.core.secure.masks import expand_seed, mask_words
from foltr.core.secure.norm_proof import (
    VERIFY_KEY_BYTES,
    ProofShape,
    answer_share,
    challenge_for,
    is_norm_proof_valid,
    proof_shape,
    prove_norm,
)

_TICKET = bytes(32)
_COLUMNS = {
    "dim": ("d", 8),
    "helpers": ("c", 4),
    "client_ms": ("client ms", 11),
    "proof_bytes": ("bytes", 9),
    "helper_ms": ("helper ms", 11),
    "federator_ms": ("federator ms", 14),
    "helper_numpy_ms": ("NumPy: helper", 15),
    "federator_numpy_ms": ("federator", 11),
    "answer_bytes": ("answer bytes", 14),
}


def measure(dim: int, n_helpers: int, repeats: int) -> dict[str, float]:
    """Return one row of the table."""
    shape = proof_shape(dim, bound_for(dim))
    encoded = encode_l2(np.random.default_rng(1).normal(size=dim), 1e-6, shape.bound, os.urandom)
    seeds = [os.urandom(SEED_BYTES) for _ in range(n_helpers)]
    key = os.urandom(VERIFY_KEY_BYTES)

    def client() -> np.ndarray:
        return mask_words(np.concatenate([from_signed(encoded), prove_norm(encoded, shape)]), seeds)

    with plain_functions():
        more_ms = least_ms(client, repeats) - least_ms(lambda: mask_words(from_signed(encoded), seeds), repeats)
    sent = client()
    answers = [answer_of_helper(seed, key, shape) for seed in seeds]

    def federator() -> bool:
        own = answer_share(sent, challenge_for(key, _TICKET, shape), shape)
        return is_norm_proof_valid(add_up([own, *answers], shape.n_answer), shape)

    if not federator():
        raise SystemExit("an honest device was rejected")
    row = {"dim": dim, "helpers": n_helpers, "client_ms": more_ms, "proof_bytes": 8 * shape.n_proof}
    for name, form in (("", contextlib.nullcontext), ("_numpy", plain_functions)):
        if name or COMPILED:
            with form():
                row[f"helper{name}_ms"] = least_ms(lambda: answer_of_helper(seeds[0], key, shape), repeats)
                row[f"federator{name}_ms"] = least_ms(federator, repeats)
    return {**row, "answer_bytes": 8 * shape.n_answer}


def answer_of_helper(seed: bytes, key: bytes, shape: ProofShape) -> np.ndarray:
    """(n_answer,): a helper's answer on the share that follows from its seed."""
    share = subtract(np.zeros(shape.n_values, np.uint64), expand_seed(seed, shape.n_values))
    return answer_share(share, challenge_for(key, _TICKET, shape), shape)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--dims", default="136,20000")
    parser.add_argument("--helpers", default="2,3,5")
    parser.add_argument("--repeats", type=int, default=50)
    options = parser.parse_args()
    dims, helpers = ([int(one) for one in text.split(",")] for text in (options.dims, options.helpers))
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    print(f"{platform.platform()}, {platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}")
    print("".join(f"{title:>{width}}" for title, width in _COLUMNS.values()))
    rows = []
    for dim, n_helpers in itertools.product(dims, helpers):
        row = measure(dim, n_helpers, options.repeats)
        rows.append(row)
        print("".join(f"{cell(row.get(name)):>{width}}" for name, (_, width) in _COLUMNS.items()), flush=True)
    write_json(options.json, {"results": rows})


def cell(figure: float | None) -> str:
    """Format a figure: a whole number unchanged, a time with three digits, nothing without numba."""
    if figure is None:
        return "-"
    return str(figure) if isinstance(figure, int) else f"{figure:.3f}"


if __name__ == "__main__":
    main()
