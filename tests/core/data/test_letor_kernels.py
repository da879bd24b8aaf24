"""The compiled reader agrees with the line reader, and its numbers with Python's."""

import math
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foltr.core.data import letor
from foltr.core.data.letor_kernels import ODD, READ, UNDECIDED, decimal
from foltr.core.data.letor_lines import read_lines
from foltr.core.numerics.compiled import COMPILED

pytestmark = pytest.mark.skipif(not COMPILED, reason="numba is not installed or switched off")

WHOLES = ("1", "9007199254740993", "123456789012345678")
POWERS = (-400, -343, -342, -324, -308, -307, -28, -27, -5, -4, -1, 0, 22, 23, 24, 55, 292, 308, 309)
SHIFTED = [f"{sign}{whole}e{power}" for sign in ("", "-", "+") for whole in WHOLES for power in POWERS]
# Exactly between two float64, and just beside it: rounding to even, decided by the last digit.
HALVES = """
    9007199254740993 9007199254740993.0000000000000000000000000000001 9007199254740992.9999999999999999999999999999999
    1.00000000000000011102230246251565404236316680908203125 1.00000000000000011102230246251565404236316680908203124
    1.00000000000000011102230246251565404236316680908203126 9223372036854775807 18446744073709551616 1e23 8.5e22
    2.2250738585072011e-308 2.2250738585072014e-308 4.9406564584124654e-324 2.4703282292062327e-324
    1.7976931348623157e308 1.7976931348623159e308 1.797693134862315808e308 123456789012345678901234567890
    0.000000000000000000000000000000000000000000001 -0 0e999999999999999999 1e-99999999999999999999
"""
LONG = ["1" + "0" * 400, "0." + "0" * 400 + "1", "0" * 50 + "1.5"]


def read(text: str) -> tuple[float, int]:
    data = np.frombuffer(text.encode() + b" ", np.uint8)
    value, end, status = decimal(data, 0, len(data))
    assert status == ODD or end == len(text)
    return value, status


def agrees(text: str) -> int:
    """The status, after a comparison bit for bit wherever the number was read."""
    value, status = read(text)
    expected = float(text)
    if status == READ:
        assert struct.pack("d", value) == struct.pack("d", expected), (text, value, expected)
    else:
        assert status == UNDECIDED, text
    return status


def test_awkward_numerals_are_pythons_bits_or_left_to_python() -> None:
    """Halves, powers at the edges of the tables, more digits than fit; what is no numeral is odd."""
    for text in SHIFTED + HALVES.split() + LONG:
        agrees(text)
    for text in ["", "+", "-", ".", "e5", "1e", "1e+", ".e1", "--1", "+-1", "nan", "inf", "x"]:
        assert read(text)[1] == ODD, text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_written_out_is_read_back(value: float) -> None:
    """Seventeen digits are read exactly, never left to Python unless subnormal."""
    status = agrees(repr(value))
    assert status == READ or abs(value) < 2.3e-308
    agrees(f"{value:.17e}")
    agrees(f"{value:.25g}")


@given(st.from_regex(r"[+-]?([0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40})([eE][+-]?[0-9]{1,3})?", fullmatch=True))
@example("0.1")
def test_every_numeral_agrees(text: str) -> None:
    agrees(text)


VALUES = ["0", "1", "-3.5", "1e3", "+7", ".25", "4.", "123456789", "1e-320", "0.1" + "0" * 30 + "1"]
lines = st.lists(st.tuples(st.integers(0, 4), st.lists(st.sampled_from(VALUES), max_size=6)), min_size=1, max_size=12)


@given(
    lines, st.integers(1, 4), st.booleans(), st.sampled_from(["\n", "\r\n", " # c 9:9\n", "\n\n# 5:5\n"]), st.booleans()
)
def test_both_readers_give_the_same_arrays(tmp_path_factory, documents, per_query, normalise, end, last_end) -> None:
    """Whatever the line ends, comments, empty lines and absent features, with chunks far smaller than the file."""
    text = "".join(
        f"{grade} qid:{i // per_query - 2} "
        + " ".join(f"{j}:{v}" for j, v in enumerate(values, 1) if (i + j) % 3)
        + end
        for i, (grade, values) in enumerate(documents)
    )
    path = tmp_path_factory.getbasetemp() / "both.txt"
    path.write_bytes((text if last_end else text.rstrip()).encode())
    expected = read_lines(path, normalise)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(letor, "_CHUNK_BYTES", 16)
        patch.setattr(letor, "_DOCS_A_QUERY", 1)
        found = letor.read_compiled(path, normalise)
    assert found is not None
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        assert found[name].tolist() == array.tolist(), name


def test_what_is_not_plainly_right_is_left_to_the_line_reader(tmp_path: Path) -> None:
    """What is plainly right is scaled in float64, also of neighbours beyond float32."""
    documents = ["1.5 qid:1 1:1", "0 1:1", "0 qid: 1:1", "0qid:1 1:1", "0 qid:1x", "63 qid:1", "0 qid:7 1:1"]
    values = ["1:", "1:1x", "1:1:1", "2:1 1:1", "1 :1", ":1", "1:1_0", "0:1", "100001:1"]
    for line in documents + [f"0 qid:1 {value}" for value in values]:
        path = tmp_path / "odd.txt"
        path.write_text(f"0 qid:7 1:1\n0 qid:1 1:2\n{line}\n0 qid:8 1:1 3:4\n")
        assert letor.read_compiled(path, True) is None, line
    path = tmp_path / "large.txt"
    path.write_text("".join(f"0 qid:1 1:{2**30 + i}\n" for i in range(3)))
    found = letor.read_compiled(path, True)
    assert found is not None
    assert found["features"].ravel().tolist() == [0.0, 0.5, 1.0]
    assert not math.isnan(found["features"].sum())
