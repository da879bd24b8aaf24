"""Norm proofs in plain integers, honest and forged: written from the design alone, without foltr's arithmetic."""

import itertools
import math
from collections.abc import Sequence

import numpy as np

from foltr.core.secure.norm_proof import ROWS, Challenge, ProofShape

P = 2**64 - 2**32 + 1


def root(order: int) -> int:
    return pow(7, (P - 1) // order, P)


def message_of(inputs: Sequence[int], masks: Sequence[int], first: Sequence[int], shape: ProofShape) -> list[int]:
    """V for these q and a, whatever their length: with the G that belongs to them."""
    wires = [coefficients_of(wire) for wire in wires_of(inputs, first, shape)]
    points = [pow(root(2 * shape.degree), i, P) for i in range(2 * shape.degree - 1)]
    gadget = [sum(value_at(wire, point) ** 2 for wire in wires) for point in points]
    return [number % P for number in (*inputs, *masks, *first, *gadget)]


def wires_of(inputs: Sequence[int], first: Sequence[int], shape: ProofShape) -> list[list[int]]:
    """The P values of each wire polynomial: its first, an input of each call, zeros."""
    padded = [*inputs, *[0] * (shape.n_wires * (shape.degree - 1) - len(inputs))]
    return [[first[wire], *padded[wire :: shape.n_wires]] for wire in range(shape.n_wires)]


def coefficients_of(values: Sequence[int]) -> list[int]:
    """Those of the polynomial that has these values at the powers of a root of unity."""
    order = len(values)
    inverse = pow(root(order), -1, P)
    powers = [pow(inverse, i, P) for i in range(order)]
    return [
        sum(value * powers[j * k % order] for k, value in enumerate(values)) * pow(order, -1, P) % P
        for j in range(order)
    ]


def value_at(coefficients: Sequence[int], point: int) -> int:
    """The value of a polynomial at a point."""
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * point + coefficient) % P
    return value


def answer_of(values: Sequence[int], challenge: Challenge, shape: ProofShape) -> list[int]:
    """What a verifier says of a share: v, f_l(t), G(t), z."""
    ends = list(itertools.accumulate([shape.n_inputs, ROWS, shape.n_wires, 2 * shape.degree - 1]))
    inputs, masks, first, gadget = (values[start:end] for start, end in zip([0, *ends], ends, strict=False))
    at_point = [value_at(coefficients_of(wire), challenge.point) for wire in wires_of(inputs, first, shape)]
    order = 2 * shape.degree
    # The value that was not sent is such that the coefficient of degree 2P - 1, a sum of w^k G(w^k) over 2P, is zero.
    last = -sum(pow(root(order), k, P) * value for k, value in enumerate(gadget)) * root(order)
    gadget_at_point = value_at(coefficients_of([*gadget, last]), challenge.point)
    projected = [
        (sum(coefficient * number for coefficient, number in zip(row, inputs, strict=True)) + mask) % P
        for row, mask in zip(rows_of(challenge, shape).tolist(), masks, strict=True)
    ]
    return [sum(gadget[2::2]) % P, *at_point, gadget_at_point, *projected]


def rows_of(challenge: Challenge, shape: ProofShape) -> np.ndarray:
    """(ROWS, D) of -1, 0 and 1: R."""
    index = np.arange(shape.n_inputs)
    pairs = challenge.bits[index // 8] >> (index % 8)[:, np.newaxis, np.newaxis].astype(np.uint8) & 1
    return (pairs.sum(axis=1, dtype=np.int64) - 1).T


def square_root(number: int) -> int | None:
    """A square root modulo p (Tonelli and Shanks), None where there is none."""
    odd = (P - 1) >> 32
    found, left = pow(number, (odd + 1) // 2, P), pow(number, odd, P)
    for k in range(31, 0, -1):
        # The order of what is left divides 2^k after each step.
        if pow(left, 2 ** (k - 1), P) != 1:
            found, left = found * root(2 ** (k + 1)) % P, left * root(2**k) % P
    return found if found * found % P == number % P else None


def roots_that_add_up(number: int) -> list[int]:
    """Four numbers whose squares are this one modulo p: three small ones, and a root of what is left."""
    found = ((small, square_root(number - small * small)) for small in range(1000))
    small, rest = next((small, rest) for small, rest in found if rest is not None)
    return [min(rest, P - rest), small, 0, 0]


def centred(number: int) -> int:
    """The integer nearest to zero that leaves this."""
    return (number + P // 2) % P - P // 2


def length_of(numbers: Sequence[int]) -> float:
    return math.sqrt(sum(centred(number) ** 2 for number in numbers))
