"""A forged norm proof: the best that a device can make of integers that are far too long.

Modulo p the squares may add up to B after all. One more number makes them: a square root modulo p, so the proof of the
sum is a true one, and nobody who sees no more than it could tell. That number is huge, and only the rows of the
projection that miss it, each with a probability of 1/2, stay within T: all 96 of them once in 2^96 messages. Spread
over many numbers, what is too much is met by almost every row.
"""

from itertools import count

import numpy as np
from numpy.typing import NDArray

from foltr.core.secure.coins import Entropy, Words
from foltr.core.secure.field import MODULUS, from_signed
from foltr.core.secure.norm_proof import ProofShape, prove_sum

# p - 1 = 2^32 (2^32 - 1), and 7 is no square modulo p.
_TWOS, _ODD, _NO_SQUARE = 32, 2**32 - 1, 7


def forge_norm_proof(encoded: NDArray[np.int64], shape: ProofShape, entropy: Entropy) -> Words:
    """Return (n_proof,) what passes for a proof of the norm of (dim,) integers once in 2^96 times, however long."""
    missing = shape.bound**2 - int(encoded @ encoded)
    small, root = next((small, root) for small in count() if (root := square_root(missing - small**2)) is not None)
    return prove_sum(np.concatenate([from_signed(encoded), np.array([small, 0, 0, root], np.uint64)]), shape, entropy)


def square_root(number: int) -> int | None:
    """Return a root modulo p by Tonelli and Shanks; None where there is none."""
    number %= MODULUS
    if number and pow(number, (MODULUS - 1) // 2, MODULUS) != 1:
        return None
    root, rest = pow(number, (_ODD + 1) // 2, MODULUS), pow(number, _ODD, MODULUS)
    for k in range(_TWOS - 1, 0, -1):
        # root^2 = number * rest, and the order of rest is 2^k at most.
        if pow(rest, 2 ** (k - 1), MODULUS) != 1:
            factor = pow(_NO_SQUARE, _ODD * 2 ** (_TWOS - 1 - k), MODULUS)
            root, rest = root * factor % MODULUS, rest * factor * factor % MODULUS
    return root
