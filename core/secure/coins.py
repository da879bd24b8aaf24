"""Random integers and coins with exact probabilities, many at a time.

If noise protects a person, a slightly wrong probability is a slightly broken promise: Mironov, "On significance of the
least significant bits for differential privacy" (CCS 2012), reads inputs from rounded noise. So floating-point numbers
decide nothing here. A coin with a rational probability compares a uniform number with it one 64-bit digit after
another; the first digit nearly always decides. Whole arrays are compared at once.

Randomness is a function from a number of bytes to so many bytes: `os.urandom` to protect somebody, and for tests and
simulations ``numpy.random.default_rng(seed).bytes``.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

Entropy = Callable[[int], bytes]
Words = NDArray[np.uint64]
SEED_BYTES: Final = 32
LARGEST_DENOMINATOR: Final = 2**32 - 1
"""The largest denominator of fractions that `binary_digits` divides within 64 bits."""


def seeded_entropy(seed: bytes) -> Entropy:
    """Return random bytes that follow from a seed of 32: AES-256 in counter mode, from the zero block on.

    Without the seed they look like any other random bytes. They come ten times as fast as the system's.
    """
    if len(seed) != SEED_BYTES:
        raise ValueError(f"a seed has {SEED_BYTES} bytes, not {len(seed)}")
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    encryptor = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()
    return lambda n: encryptor.update(bytes(n))


def random_words(size: int, entropy: Entropy) -> Words:
    """Return (size,) uniform 64-bit words."""
    return np.frombuffer(entropy(8 * size), "<u8").astype(np.uint64)


def random_bits(size: int, entropy: Entropy) -> NDArray[np.bool_]:
    """Return (size,) fair coins."""
    packed = np.frombuffer(entropy(-(-size // 8)), np.uint8)
    return np.unpackbits(packed, count=size).astype(np.bool_)


def uniform_below(bound: int, size: int, entropy: Entropy) -> Words:
    """Return (size,) numbers of 0 to bound - 1, each equally likely.

    Words at or above the largest multiple of the bound are drawn again; otherwise the first remainders would be more
    likely.
    """
    drawn = random_words(size, entropy)
    last = np.uint64(2**64 - 2**64 % bound - 1)
    while (beyond := np.flatnonzero(drawn > last)).size:
        drawn[beyond] = random_words(beyond.size, entropy)
    return drawn % np.uint64(bound)


def binary_digits(numerators: Words, denominator: int) -> Words:
    """Return the first 64 binary digits of fractions below 1, as integers.

    Args:
        numerators: (n,), each below the denominator.
        denominator: at most `LARGEST_DENOMINATOR`.
    """
    divisor, half = np.uint64(denominator), np.uint64(32)
    high, rest = np.divmod(numerators << half, divisor)
    return (high << half) | ((rest << half) // divisor)


def flip_exponential(
    digits: Words, fraction_of: Callable[[int], tuple[int, int]], entropy: Entropy
) -> NDArray[np.bool_]:
    """Return (n,) coins that show heads with probability exp(-x_i) for 0 <= x_i < 1.

    Canonne, Kamath & Steinke, "The discrete Gaussian for differential privacy" (2020), Algorithm 1: coins with
    probability x/1, x/2, x/3 ... are flipped until one shows tails; the result is heads if their number is odd. Since
    floor(floor(2^64 x) / k) = floor(2^64 x / k), the first digit of each follows from that of x.

    Args:
        digits: (n,) the first 64 binary digits of each x.
        fraction_of: numerator and denominator of the x with an index, needed for the one comparison in 2^64 that its
            first digit leaves open.
        entropy: gives random bytes.
    """
    heads = np.zeros(digits.size, np.bool_)
    left, k = np.arange(digits.size), 1
    while left.size:
        goes_on = _flip(digits[left] // np.uint64(k), left, fraction_of, k, entropy)
        heads[left[~goes_on]] = k % 2 == 1
        left, k = left[goes_on], k + 1
    return heads


def draw_geometric(size: int, entropy: Entropy) -> NDArray[np.int64]:
    """Return (size,) numbers that are v or more with probability exp(-v).

    Each counts the heads that a coin of probability exp(-1) shows before tails. Such a head is two heads of a coin of
    probability exp(-1/2).
    """
    runs = np.zeros(size, np.int64)
    left = np.arange(size)
    while left.size:
        halves = np.full(left.size, 2**63, np.uint64)
        left = left[flip_exponential(halves, lambda _: (1, 2), entropy)]
        runs[left] += 1
    return runs // 2


def is_below(numerator: int, denominator: int, entropy: Entropy) -> bool:
    """Flip one coin with a rational probability below 1, by comparing a uniform number with it digit by digit."""
    while True:
        digit, numerator = divmod(numerator << 64, denominator)
        drawn = int.from_bytes(entropy(8), "little")
        if drawn != digit:
            return drawn < digit


def _flip(
    digits: Words,
    indices: NDArray[np.int64],
    fraction_of: Callable[[int], tuple[int, int]],
    divisor: int,
    entropy: Entropy,
) -> NDArray[np.bool_]:
    """(n,) coins whose probabilities are fractions, of these indices, over a divisor, and begin with these digits."""
    drawn = random_words(digits.size, entropy)
    heads = drawn < digits
    for i in np.flatnonzero(drawn == digits).tolist():
        numerator, denominator = fraction_of(int(indices[i]))
        heads[i] = is_below((numerator << 64) % (denominator * divisor), denominator * divisor, entropy)
    return heads
