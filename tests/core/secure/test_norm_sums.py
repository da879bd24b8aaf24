"""What takes a verifier its time is the same by machine code and by whole arrays, and that of integers of any size."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.completed_process import completed

from foltr.core.numerics.compiled import COMPILED, plain_functions
from foltr.core.protocol.policies import MAX_SECURE_DIM
from foltr.core.secure.field import MODULUS
from foltr.core.secure.masks import expand_seed
from foltr.core.secure.norm_proof import LEAST_COMPILED, answer_share, challenge_for, proof_shape
from foltr.core.secure.norm_sums import combine, sum_halves

EDGES = [0, 1, 2**32 - 1, 2**32, 2**63, MODULUS // 2, MODULUS - 2**32, MODULUS - 1]
numbers = st.sampled_from(EDGES) | st.integers(0, MODULUS - 1)
both_forms = pytest.mark.parametrize("plain", [False, True] if COMPILED else [True], ids=lambda plain: "arrays" * plain)


def in_form(plain, function, *args):
    if not plain:
        return function(*args)
    with plain_functions():
        return function(*args)


@both_forms
@settings(derandomize=True)
@given(data=st.data(), n=st.integers(1, 9), m=st.integers(1, 5))
def test_rows_are_combined_as_integers_are(plain, data, n, m):
    weights = data.draw(st.lists(numbers, min_size=n, max_size=n))
    rows = [data.draw(st.lists(numbers, min_size=m, max_size=m)) for _ in range(n)]
    expected = [sum(weights[i] * rows[i][j] for i in range(n)) % MODULUS for j in range(m)]
    assert in_form(plain, combine, np.array(weights, np.uint64), np.array(rows, np.uint64)).tolist() == expected


@both_forms
def test_many_rows_are_combined_in_several_parts(plain):
    weights, rows = expand_seed(bytes(32), 70), expand_seed(b"r" * 32, 70 * 300).reshape(70, 300)
    columns = rows.T.tolist()
    expected = [sum(map(int.__mul__, weights.tolist(), column)) % MODULUS for column in columns]
    assert in_form(plain, combine, weights, rows).tolist() == expected


@both_forms
@settings(derandomize=True, max_examples=40)
@given(words=st.lists(numbers, min_size=1, max_size=40), seed=st.integers(0, 2**32))
def test_halves_are_added_up_as_integers_are(plain, words, seed):
    """Each coefficient is one bit more another, less 1, also of the words that fill the last group."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 256, (-(-len(words) // 8), 2, 5), dtype=np.uint8)
    found = in_form(plain, sum_halves, np.array(words, np.uint64), bits)
    for row in range(5):
        pairs = [bits[i // 8, :, row] >> (i % 8) & 1 for i in range(len(words))]
        coefficients = [int(pair.sum()) - 1 for pair in pairs]
        halves = zip(*(divmod(word, 2**32) for word in words), strict=True)
        high, low = (sum(c * half for c, half in zip(coefficients, part, strict=True)) for part in halves)
        assert found[row].tolist() == [low, high]


@both_forms
def test_the_longest_sums_of_halves_are_exact(plain):
    """So many of the largest words as a policy can have at most, each with the same coefficient."""
    assert MAX_SECURE_DIM + 4 <= 2**21
    words, largest = np.full(2**21, MODULUS - 1, np.uint64), 2**21 * (2**32 - 1)
    for byte, sign in ((0, -1), (255, 1)):
        bits = np.full((2**18, 2, 2), byte, np.uint8)
        assert in_form(plain, sum_halves, words, bits).tolist() == [[0, sign * largest]] * 2


@pytest.mark.skipif(not COMPILED, reason="numba is not installed or switched off")
def test_both_forms_answer_the_same(monkeypatch):
    """To the bit, of random shares, and in a thread, where verifiers compute."""
    for dim in [1, 4, 136, 20_000]:
        monkeypatch.setattr("foltr.core.secure.norm_proof.LEAST_COMPILED", 0)
        shape, rng = proof_shape(dim, 256), np.random.default_rng(dim)
        for _ in range(3):
            share = rng.integers(0, MODULUS, shape.n_values, np.uint64)
            challenge = challenge_for(rng.bytes(32), rng.bytes(32), shape)
            plain = in_form(True, answer_share, share, challenge, shape)
            with ThreadPoolExecutor(1) as pool:
                assert np.array_equal(pool.submit(answer_share, share, challenge, shape).result(), plain), dim


@pytest.mark.parametrize(("dim", "loaded"), [(136, False), (LEAST_COMPILED, COMPILED)])
def test_machine_code_is_loaded_for_long_vectors_alone(dim, loaded):
    """It takes a process a second and 120 MB, for a tenth of a millisecond where vectors are short."""
    program = f"""
import sys
import numpy as np
from foltr.core.secure.norm_proof import LEAST_COMPILED, answer_share, challenge_for, proof_shape
shape = proof_shape({dim}, 256)
answer_share(np.zeros(shape.n_values, np.uint64), challenge_for(bytes(32), bytes(32), shape), shape)
print("numba" in sys.modules)
"""
    done = completed([sys.executable, "-c", program], check=True)
    assert done.stdout.strip() == str(loaded)
