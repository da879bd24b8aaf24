"""Parses LETOR text from bytes to arrays, compiled.

`measure` counts documents and features, so that the arrays are allocated once; `parse` fills them, query by query, so
that at most one query is held in float64. Text that is not plainly valid is `ODD` and left to
`foltr.core.data.letor_lines`.

A numeral is a whole number w times a power of ten. If both are exact in float64, one multiplication or division rounds
right (Clinger 1990). Otherwise w times a 128-bit power of five decides the rounding (Lemire 2021, "Number parsing at a
gigabyte per second", algorithm 1; Mushtak and Lemire 2023 show that 128 bits always do). Digits after the eighteenth
only matter if w and w + 1 round to different numbers; that case, subnormal numbers and exponents beyond float64 are
rare enough to be left to Python's ``float``, with which all others agree bit for bit.
"""

import math

import numpy as np
from numpy.typing import NDArray

from foltr.core.data.letor_lines import HIGHEST_FEATURE, HIGHEST_GRADE
from foltr.core.numerics.compiled import compiled

READ, ODD, UNDECIDED, FULL = 0, 1, 2, 3
"""The result for a text: read; not plainly valid; a numeral that only Python's ``float`` decides; no room left."""

DOCS, QUERIES, HELD, QUERY, LINE, TOKEN_END, TOO_LARGE = range(7)
"""Entries of the reader's state: documents and queries done; the current query's documents in the block, and its id;
start of the unfinished line, end of its undecided numeral; whether a value is beyond float32."""

_KEPT_DIGITS = 18
_LOWEST_POWER, _HIGHEST_POWER = -342, 308
_LARGEST_EXACT = 2**53
_LARGEST_EXACT_POWER = 22
_EXPONENT_LIMIT = 100_000
# Largest query id read here; int64 goes a little further, and the line reader with it.
_LARGEST_ID = 10**18


def _powers_of_five() -> NDArray[np.uint64]:
    """(powers, 2) the leading 128 bits of 5^q, high word first; rounded up to 5^-27 for the proof."""
    rows = []
    for q in range(_LOWEST_POWER, _HIGHEST_POWER + 1):
        if q >= 0:
            power = 5**q
            bits = power << 128 >> power.bit_length()
        else:
            power = 5**-q
            bits = (1 << (127 + power.bit_length())) // power + (q >= -27)
        rows.append((bits >> 64, bits & 0xFFFF_FFFF_FFFF_FFFF))
    return np.array(rows, np.uint64)


_FIVES = _powers_of_five()
_TENS = np.array([float(10**q) for q in range(_LARGEST_EXACT_POWER + 1)])


@compiled
def measure(text: NDArray[np.uint8], stop: int) -> tuple[int, int]:
    """Count documents and find the highest feature number, without judging anything.

    Args:
        text: (bytes,) uint8.
        stop: where the text ends; whole lines.

    Returns:
        the number of lines with anything but white space before a `#`, and the highest number before a colon.
    """
    docs, highest, number = 0, 0, 0
    comment, empty = False, True
    for at in range(stop):
        byte = _byte(text, at)
        if byte == 10:
            docs += not empty
            comment, empty, number = False, True, 0
        elif comment:
            continue
        elif 48 <= byte <= 57:
            if number <= HIGHEST_FEATURE:
                number = number * 10 + byte - 48
            empty = False
        elif byte == 58:
            highest = max(highest, number)
            number = 0
        else:
            number = 0
            comment = byte == 35
            empty = empty and (comment or byte == 32 or 9 <= byte <= 13)
    return docs + (not empty), highest


@compiled
def parse(
    text: NDArray[np.uint8],
    start: int,
    stop: int,
    normalise: bool,
    features: NDArray[np.float32],
    relevance: NDArray[np.int16],
    offsets: NDArray[np.int64],
    query_ids: NDArray[np.int64],
    block: NDArray[np.float64],
    state: NDArray[np.int64],
    decided_at: NDArray[np.int64],
    decided: NDArray[np.float64],
) -> tuple[int, int]:
    """Read whole lines into the arrays; the current query's rows wait in ``block`` until the next query starts.

    Args:
        text: (bytes,) uint8.
        start: where the first line to read starts.
        stop: where the text ends.
        normalise: scale by query; otherwise the block's first row is all that is used of it.
        features: (docs, d) float32, filled.
        relevance: (docs,) int16, filled.
        offsets: (docs + 1,) int64, filled; so are
        query_ids: (docs,) int64.
        block: (rows, d) float64 scratch.
        state: (7,) int64, zeros at first; changed only by whole lines.
        decided_at: (numerals,) int64 positions of numerals in the first line that were undecided before, rising.
        decided: (numerals,) float64 what they are.

    Returns:
        what became of it, and where: on `UNDECIDED` the numeral, on `FULL` and `ODD` the line.
    """
    at = start
    next_decided = 0
    while at < stop:
        state[LINE] = at
        at = _skip_space(text, at, stop)
        if at == stop or text[at] == 10 or text[at] == 35:
            at = _next_line(text, at, stop)
            continue
        grade, at, status = decimal(text, at, stop)
        if status != READ or not 0 <= grade <= HIGHEST_GRADE or grade != np.floor(grade):
            return ODD, state[LINE]
        after_grade = at
        at = _skip_space(text, at, stop)
        if at == after_grade:
            return ODD, state[LINE]
        query, at, good = _query_id(text, at, stop)
        if not good or state[DOCS] == len(relevance):
            return ODD, state[LINE]
        if state[QUERIES] == 0 or query != state[QUERY]:
            finish_query(normalise, features, block, state)
            offsets[state[QUERIES]] = state[DOCS]
            query_ids[state[QUERIES]] = query
            state[QUERIES] += 1
            state[QUERY] = query
        if normalise and state[HELD] == len(block):
            return FULL, state[LINE]
        row = block[state[HELD] if normalise else 0]
        row[:] = 0.0
        previous = 0
        while True:
            before = at
            at = _skip_space(text, at, stop)
            if at == stop or text[at] == 10 or text[at] == 35:
                break
            feature = 0
            token = at
            while at < stop and 48 <= text[at] <= 57 and feature <= HIGHEST_FEATURE:
                feature = feature * 10 + _byte(text, at) - 48
                at += 1
            if before == token or at in (token, stop) or text[at] != 58:
                return ODD, state[LINE]
            if not previous < feature <= len(row):
                return ODD, state[LINE]
            token = at + 1
            value, at, status = decimal(text, token, stop)
            if status == UNDECIDED:
                if next_decided == len(decided_at) or decided_at[next_decided] != token:
                    state[TOKEN_END] = at
                    return UNDECIDED, token
                value = decided[next_decided]
                next_decided += 1
            if status == ODD or not np.isfinite(value):
                return ODD, state[LINE]
            row[feature - 1] = value
            previous = feature
        at = _next_line(text, at, stop)
        relevance[state[DOCS]] = np.int16(grade)
        if normalise:
            state[HELD] += 1
        else:
            for column in range(len(row)):
                features[state[DOCS], column] = row[column]
                if not np.isfinite(features[state[DOCS], column]):
                    state[TOO_LARGE] = 1
        state[DOCS] += 1
    return READ, stop


@compiled
def finish_query(
    normalise: bool, features: NDArray[np.float32], block: NDArray[np.float64], state: NDArray[np.int64]
) -> None:
    """Scale the block's rows to [0, 1] by column, as `foltr.core.data.letor_lines.normalise_by_query`, and move them
    out.

    Args:
        normalise: whether the block holds anything.
        features: (docs, d) float32; the last rows done are filled.
        block: (rows, d) float64.
        state: (7,) int64.
    """
    held = state[HELD]
    if not normalise or held == 0:
        return
    low, high = block[0].copy(), block[0].copy()
    for i in range(1, held):
        for column in range(block.shape[1]):
            value = block[i, column]
            low[column] = min(low[column], value)
            high[column] = max(high[column], value)
    for column in range(block.shape[1]):
        high[column] -= low[column]
        if not np.isfinite(high[column]):
            state[TOO_LARGE] = 1
        if high[column] == 0.0:
            # Constant: every difference is 0, so any divisor will do.
            high[column] = 1.0
    first = state[DOCS] - held
    for i in range(held):
        for column in range(block.shape[1]):
            features[first + i, column] = (block[i, column] - low[column]) / high[column]
    state[HELD] = 0


@compiled
def _byte(text: NDArray[np.uint8], at: int) -> int:
    """A byte as a signed number: machine code turns unsigned minus signed into a float."""
    return np.int64(text[at])  # type: ignore[return-value]  # one type to machine code


@compiled
def _skip_space(text: NDArray[np.uint8], at: int, stop: int) -> int:
    """Return the end of the white space within a line."""
    while at < stop and (text[at] == 32 or text[at] == 9 or 11 <= text[at] <= 13):
        at += 1
    return at


@compiled
def _next_line(text: NDArray[np.uint8], at: int, stop: int) -> int:
    """Return the start of the next line."""
    while at < stop and text[at] != 10:
        at += 1
    return min(at + 1, stop)


@compiled
def _query_id(text: NDArray[np.uint8], at: int, stop: int) -> tuple[int, int, bool]:
    """Return the number in `qid:[-]digits`, its end, and whether it is valid."""
    if stop - at < 5 or text[at] != 113 or text[at + 1] != 105 or text[at + 2] != 100 or text[at + 3] != 58:
        return 0, at, False
    at += 4
    negative = _byte(text, at) == 45
    if negative:
        at += 1
    query = 0
    first = at
    while at < stop and 48 <= text[at] <= 57 and query <= _LARGEST_ID:
        query = query * 10 + _byte(text, at) - 48
        at += 1
    return -query if negative else query, at, first < at and query <= _LARGEST_ID


@compiled
def decimal(text: NDArray[np.uint8], at: int, stop: int) -> tuple[float, int, int]:
    """Read `[+-] digits [. digits] [(e|E) [+-] digits]`, at least one digit before an exponent.

    Args:
        text: (bytes,) uint8.
        at: where the numeral starts.
        stop: where the text ends.

    Returns:
        the number, where the numeral ends, and `READ`, `ODD` or `UNDECIDED`.
    """
    negative = False
    if at < stop and (text[at] == 43 or text[at] == 45):
        negative = _byte(text, at) == 45
        at += 1
    whole, kept, exponent = 0, 0, 0
    any_digit, after_point, cut = False, False, False
    while at < stop:
        digit = _byte(text, at) - 48
        if 0 <= digit <= 9:
            any_digit = True
            if kept < _KEPT_DIGITS:
                whole = whole * 10 + digit
                if whole > 0:
                    kept += 1
                if after_point:
                    exponent -= 1
            else:
                cut = cut or digit > 0
                if not after_point:
                    exponent += 1
        elif digit == -2 and not after_point:
            after_point = True
        else:
            break
        at += 1
    if not any_digit:
        return 0.0, at, ODD
    if at < stop and (text[at] == 69 or text[at] == 101):
        at += 1
        below = False
        if at < stop and (text[at] == 43 or text[at] == 45):
            below = _byte(text, at) == 45
            at += 1
        written, any_digit = 0, False
        while at < stop and 48 <= text[at] <= 57:
            any_digit = True
            if written < _EXPONENT_LIMIT:
                written = written * 10 + _byte(text, at) - 48
            at += 1
        if not any_digit:
            return 0.0, at, ODD
        if written >= _EXPONENT_LIMIT:
            return 0.0, at, UNDECIDED
        exponent += -written if below else written
    if whole == 0:
        value = 0.0
    elif not cut and whole <= _LARGEST_EXACT and -_LARGEST_EXACT_POWER <= exponent <= _LARGEST_EXACT_POWER:
        value = whole * _TENS[exponent] if exponent >= 0 else whole / _TENS[-exponent]
    else:
        value = _rounded(whole, exponent)
        if math.isnan(value) or (cut and value != _rounded(whole + 1, exponent)):
            return 0.0, at, UNDECIDED
    return -value if negative else value, at, READ


@compiled
def _rounded(whole: int, exponent: int) -> float:
    """The float64 nearest to ``whole * 10^exponent``, 0 < whole < 2^63; NaN if it is not a normal number."""
    if not _LOWEST_POWER <= exponent <= _HIGHEST_POWER:
        return math.nan
    shift = 0
    while whole < 2**62 >> shift:
        shift += 1
    shift += 1
    w = np.uint64(whole) << np.uint64(shift)
    row = exponent - _LOWEST_POWER
    high, low = _product(w, _FIVES[row, 0])
    if high & np.uint64(0x1FF) == np.uint64(0x1FF):
        # Only then can the second word affect the kept bits.
        more, _ = _product(w, _FIVES[row, 1])
        low = low + more
        if low < more:
            high = high + np.uint64(1)
    upper = high >> np.uint64(63)
    mantissa = high >> (upper + np.uint64(9))
    # 217706 / 2^16 is log2(10), rounded so that the floor is right for every power in range.
    power = ((217706 * exponent) >> 16) + 63 - shift + 1023
    if upper == np.uint64(1):
        power += 1
    exactly_half = low <= np.uint64(1) and -4 <= exponent <= 23 and mantissa & np.uint64(3) == np.uint64(1)
    if exactly_half and mantissa << (upper + np.uint64(9)) == high:
        mantissa = mantissa - np.uint64(1)
    mantissa = (mantissa + (mantissa & np.uint64(1))) >> np.uint64(1)
    if power <= 0 or power > 2046:
        return math.nan
    return math.ldexp(np.float64(mantissa), power - 1075)


@compiled
def _product(a: np.uint64, b: np.uint64) -> tuple[np.uint64, np.uint64]:
    """The high and the low word of a 64 by 64 bit product."""
    half, mask = np.uint64(32), np.uint64(0xFFFF_FFFF)
    a_low, a_high, b_low, b_high = a & mask, a >> half, b & mask, b >> half
    low, across = a_low * b_low, a_high * b_low
    middle = a_low * b_high + (low >> half) + (across & mask)
    return a_high * b_high + (across >> half) + (middle >> half), a * b
