"""A forged norm proof: the best that a device can do for integers that are far too long.

Modulo p, one additional number can make the squares add up to B: a square root modulo p. The proof of the sum is then
valid. But that number is huge, and only projection rows that skip it, each with probability 1/2, stay within T. All 96
rows skip it once in 2^96 messages. If the excess is spread over many numbers, almost every row meets it.
"""

from itertools import count

import numpy as np
from numpy.typing import NDArray

from foltr.core.secure.coins import Entropy, Words
from foltr.core.secure.field import MODULUS, from_signed
from foltr.core.secure.norm_proof import ProofShape, prove_sum

# p - 1 = 2^32 (2^32 - 1), and 7 is not a square modulo p.
_TWOS, _ODD, _NO_SQUARE = 32, 2**32 - 1, 7


def forge_norm_proof(encoded: NDArray[np.int64], shape: ProofShape, entropy: Entropy) -> Words:
    """Return (n_proof,) words that pass as a norm proof of (dim,) integers of any length once in 2^96 times."""
    missing = shape.bound**2 - int(encoded @ encoded)
    small, root = next((small, root) for small in count() if (root := square_root(missing - small**2)) is not None)
    return prove_sum(np.concatenate([from_signed(encoded), np.array([small, 0, 0, root], np.uint64)]), shape, entropy)


def square_root(number: int) -> int | None:
    """Return a root modulo p by Tonelli and Shanks. None for a non-square."""
    number %= MODULUS
    if number and pow(number, (MODULUS - 1) // 2, MODULUS) != 1:
        return None
    root, rest = pow(number, (_ODD + 1) // 2, MODULUS), pow(number, _ODD, MODULUS)
    for k in range(_TWOS - 1, 0, -1):
        # root^2 = number * rest, and the order of rest is at most 2^k.
        if pow(rest, 2 ** (k - 1), MODULUS) != 1:
            factor = pow(_NO_SQUARE, _ODD * 2 ** (_TWOS - 1 - k), MODULUS)
            root, rest = root * factor % MODULUS, rest * factor * factor % MODULUS
    return root
