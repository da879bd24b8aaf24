"""A verifier that is written from docs/protocol.md and docs/privacy.md alone finds what the vectors of proofs say.

So nothing here is foltr's: of the document each sentence on bytes is one line or two.
"""

import hashlib
import hmac
import json
import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

FOLDER = Path(__file__).parents[2] / "clients" / "vectors"
VECTORS, VOTES, EVALUATIONS = (
    json.loads((FOLDER / f"{name}_proofs.json").read_text()) for name in ("norm", "vote", "evaluation")
)
p = 2**64 - 2**32 + 1
T = 151_850_024


def key_stream(key: bytes, n: int) -> bytes:
    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(n))


def prg(seed: bytes) -> Iterator[int]:
    """More numbers than any test takes."""
    stream = key_stream(seed, 80_000)
    numbers = (int.from_bytes(stream[at : at + 8], "little") for at in range(0, len(stream), 8))
    return (number for number in numbers if number < p)


def numbers_of(text: str) -> list[int]:
    data = bytes.fromhex(text)
    return [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8)]


def words_of(numbers: list[int]) -> str:
    return b"".join(number.to_bytes(8, "little") for number in numbers).hex()


def shape_of(dim: int) -> tuple[int, int]:
    """P and L: the power of two with the least L + 2P - 1, the smaller of two."""
    length, degree = min((-(-(dim + 4) // (2**k - 1)) + 2 * 2**k - 1, 2**k) for k in range(1, 20))
    return degree, length - 2 * degree + 1


def name_of(ticket: dict) -> bytes:
    name = b"foltr ticket\n" + bytes.fromhex(ticket["policy_hash"]["bytes"])
    for each in (ticket["federation"], ticket["client_id"]):
        name += bytes([len(each)]) + each.encode()
    for number in (ticket["round"], ticket["cohort"], ticket["participation"]):
        name += number.to_bytes(8, "little")
    name += bytes.fromhex(ticket["update_id"]) + bytes.fromhex(ticket["digest"]["bytes"])
    return hashlib.sha256(name).digest()


def point_of(verify_key: bytes, name: bytes, degree: int) -> int:
    key = hmac.digest(verify_key, b"foltr norm proof point 1\n" + name, "sha256")
    return next(number for number in prg(key) if pow(number, 2 * degree, p) != 1)


def rows_of(verify_key: bytes, name: bytes, n_columns: int) -> list[list[int]]:
    key = hmac.digest(verify_key, b"foltr norm proof rows 1\n" + name, "sha256")
    stream = key_stream(key, 192 * -(-n_columns // 8))

    def entry(j: int, i: int) -> int:
        g, k = divmod(i, 8)
        return (stream[192 * g + j] >> k & 1) + (stream[192 * g + 96 + j] >> k & 1) - 1

    return [[entry(j, i) for i in range(n_columns)] for j in range(96)]


def value_through(places: list[int], values: list[int], point: int) -> int:
    """The value at a point of the polynomial of least degree through these (Lagrange)."""
    total = 0
    for place, value in zip(places, values, strict=True):
        others = [other for other in places if other != place]
        above, below = (math.prod(at - other for other in others) for at in (point, place))
        total += value * above * pow(below, -1, p)
    return total % p


def answer_about(share: list[int], dim: int, t: int, rows: list[list[int]]) -> list[int]:
    degree, n_wires = shape_of(dim)
    x, m, w = share[: dim + 4], share[dim + 4 : dim + 100], share[dim + 100 : dim + 100 + n_wires]
    gadget = share[dim + 100 + n_wires :]
    omega = pow(7, (p - 1) // (2 * degree), p)
    roots = [pow(omega, i, p) for i in range(2 * degree - 1)]
    padded = x + [0] * (n_wires * (degree - 1) - len(x))
    v = sum(gadget[2 * k] for k in range(1, degree)) % p
    wires = [
        value_through(roots[::2], [w[wire]] + [padded[(k - 1) * n_wires + wire] for k in range(1, degree)], t)
        for wire in range(n_wires)
    ]
    z = [(sum(r * number for r, number in zip(row, x, strict=True)) + m[j]) % p for j, row in enumerate(rows)]
    return [v, *wires, value_through(roots, gadget, t), *z]


def is_accepted(total: list[int], dim: int, bound: int) -> bool:
    n_wires = shape_of(dim)[1]
    v, wires, gadget, z = total[0], total[1 : 1 + n_wires], total[1 + n_wires], total[2 + n_wires :]
    nearest = [number - p if number > p // 2 else number for number in z]
    return v == bound**2 and gadget == sum(f * f for f in wires) % p and all(-T <= number <= T for number in nearest)


@pytest.fixture(scope="module", params=VECTORS, ids=lambda vector: f"{vector['dim']}-{vector['bound']}")
def vector(request):
    return request.param


def test_a_vector_is_sent_behind_a_mask_for_each_helper(vector):
    """The digest in the ticket is of what is sent."""
    proven = numbers_of(vector["proven"])
    masks = [list(islice(prg(bytes.fromhex(seed)), len(proven))) for seed in vector["seeds"]]
    sent = [(number + sum(of_helpers)) % p for number, *of_helpers in zip(proven, *masks, strict=True)]
    assert proven[: vector["dim"]] == [number % p for number in vector["encoded"]]
    assert words_of(sent) == vector["sent"]
    digest = hashlib.sha256(bytes.fromhex(vector["sent"])).hexdigest()
    assert digest == vector["ticket"]["digest"]["bytes"]


def test_seals_are_for_one_ticket_and_one_policy(vector):
    """The seed of a mask for the helper north; the verify key of policy 3 for the federator."""
    name = name_of(vector["ticket"])
    of_policy = b"foltr verify key 1\n" + (3).to_bytes(8, "big") + b"mail\n@federator"
    assert name.hex() == vector["name"]
    assert hashlib.sha256(b"foltr seed 1\n" + name + b"north").hexdigest() == vector["info_of_seed"]
    assert hashlib.sha256(of_policy).hexdigest() == vector["info_of_verify_key"]


def test_the_challenge_follows_from_the_verify_key_and_the_name_of_the_ticket(vector):
    """It has a point, and of each row -1, 0 and 1."""
    verify_key, name = bytes.fromhex(vector["verify_key"]), name_of(vector["ticket"])
    assert name.hex() == vector["name"]
    assert point_of(verify_key, name, shape_of(vector["dim"])[0]) == int(vector["point"])
    rows = rows_of(verify_key, name, vector["dim"] + 4)
    assert [rows[0], rows[1], rows[95]] == vector["rows"]


def test_each_verifier_answers_about_its_share_and_the_answers_add_up(vector):
    """The federator's comes first, then each helper's; what is past the bound is not accepted."""
    dim, sent, t = vector["dim"], numbers_of(vector["sent"]), int(vector["point"])
    rows = rows_of(bytes.fromhex(vector["verify_key"]), bytes.fromhex(vector["name"]), dim + 4)
    seeds = [bytes.fromhex(seed) for seed in vector["seeds"]]
    shares = [sent, *([-number % p for number in islice(prg(seed), len(sent))] for seed in seeds)]
    answers = [answer_about(share, dim, t, rows) for share in shares]
    assert [words_of(answer) for answer in answers] == vector["answers"]
    total = [sum(numbers) % p for numbers in zip(*answers, strict=True)]
    assert words_of(total) == vector["total"]
    norm = sum(number * number for number in vector["encoded"])
    assert is_accepted(total, dim, vector["bound"]) == vector["accepted"] == (norm <= vector["bound"] ** 2)


# --- votes ------------------------------------------------------------------------------------------------------


def vote_point_of(verify_key: bytes, name: bytes) -> int:
    key = hmac.digest(verify_key, b"foltr vote proof point 1\n" + name, "sha256")
    return next(number for number in prg(key) if number != 0)


def vote_answer_about(votes: list[int], proofs: list[int], t: int) -> list[int]:
    answer = []
    of_each = (proofs[at : at + 3] for at in range(0, len(proofs), 3))
    for w, (r, first, second) in zip(votes, of_each, strict=True):
        answer += [(w + r * t) % p, (first * t + second * t * t) % p]
    return answer


@pytest.mark.parametrize("vector", VOTES + EVALUATIONS, ids=lambda vector: str(vector["summed"][6:]))
def test_what_is_beside_the_update_is_behind_it_and_its_proofs_behind_all(vector):
    """Each verifier answers about all proofs, and the answers add up; what is neither 0 nor its weight is refused."""
    dim, sent = vector["dim"], numbers_of(vector["sent"])
    # Votes come first, and whoever has only one of the two has the weights of that.
    v, u = vector["vote_weight"], vector.get("evaluation_weight", 0)
    weights = ([v] * 2 if v else []) + ([u] * 3 if u else [])
    n = len(weights)
    proven = numbers_of(vector["proven"])
    masks = [list(islice(prg(bytes.fromhex(seed)), len(proven))) for seed in vector["seeds"]]
    assert sent == [(number + sum(others)) % p for number, *others in zip(proven, *masks, strict=True)]
    assert proven[: dim + n] == [number % p for number in vector["summed"]]
    verify_key, name = bytes.fromhex(vector["verify_key"]), bytes.fromhex(vector["name"])
    t, s = point_of(verify_key, name, shape_of(dim)[0]), vote_point_of(verify_key, name)
    assert s == int(vector["point"])
    rows = rows_of(verify_key, name, dim + 4)
    answers = []
    for share in (sent, *([-number % p for number in mask] for mask in masks)):
        of_norm = answer_about(share[:dim] + share[dim + n : -3 * n], dim, t, rows)
        answers.append(of_norm + vote_answer_about(share[dim : dim + n], share[-3 * n :], s))
    assert [words_of(answer) for answer in answers] == vector["answers"]
    total = [sum(numbers) % p for numbers in zip(*answers, strict=True)]
    assert words_of(total) == vector["total"]
    of_beside = total[-2 * n :]
    pairs = zip(of_beside[::2], of_beside[1::2], weights, strict=True)
    kept = all(f * (f - weight) % p == expected for f, expected, weight in pairs)
    assert (is_accepted(total[: -2 * n], dim, vector["bound"]) and kept) == vector["accepted"]
    is_honest = all(number in (0, weight) for number, weight in zip(vector["summed"][dim:], weights, strict=True))
    assert vector["accepted"] == is_honest
