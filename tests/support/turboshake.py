"""TurboSHAKE128 (RFC 9861), which the vectors of the VDAF draft are made with and no product code here needs."""

from typing import Final

_MASK: Final = 2**64 - 1
_RATE: Final = 168
_ROUNDS: Final = 12


def turboshake128(message: bytes, domain: int, size: int) -> bytes:
    """Return so many bytes that follow from a message, by the last twelve rounds of Keccak-p[1600]."""
    padded = message + bytes([domain])
    padded += bytes(-len(padded) % _RATE)
    padded = padded[:-1] + bytes([padded[-1] ^ 0x80])
    lanes = [[0] * 5 for _ in range(5)]
    for start in range(0, len(padded), _RATE):
        for i in range(_RATE // 8):
            lanes[i % 5][i // 5] ^= int.from_bytes(padded[start + 8 * i : start + 8 * i + 8], "little")
        lanes = _permuted(lanes)
    found = b""
    while len(found) < size:
        found += b"".join(lanes[i % 5][i // 5].to_bytes(8, "little") for i in range(_RATE // 8))
        lanes = _permuted(lanes)
    return found[:size]


def _round_constants() -> list[int]:
    constants, register = [], 1
    for _ in range(24):
        constant = 0
        for j in range(7):
            register = (register << 1 ^ (register >> 7) * 0x171) % 256
            constant ^= (register >> 1 & 1) << (2**j - 1)
        constants.append(constant)
    return constants


_CONSTANTS: Final = _round_constants()[-_ROUNDS:]


def _rotated(lane: int, n: int) -> int:
    n %= 64
    return (lane << n | lane >> (64 - n)) & _MASK


def _permuted(lanes: list[list[int]]) -> list[list[int]]:
    for constant in _CONSTANTS:
        parity = [column[0] ^ column[1] ^ column[2] ^ column[3] ^ column[4] for column in lanes]
        lanes = [
            [lane ^ parity[x - 1] ^ _rotated(parity[(x + 1) % 5], 1) for lane in column]
            for x, column in enumerate(lanes)
        ]
        x, y, moved = 1, 0, lanes[1][0]
        for t in range(24):
            x, y = y, (2 * x + 3 * y) % 5
            moved, lanes[x][y] = lanes[x][y], _rotated(moved, (t + 1) * (t + 2) // 2)
        lanes = [
            [lanes[x][y] ^ ~lanes[(x + 1) % 5][y] & lanes[(x + 2) % 5][y] & _MASK for y in range(5)] for x in range(5)
        ]
        lanes[0][0] ^= constant
    return lanes
