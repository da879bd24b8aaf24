"""The polynomials here are those of the VDAF draft: its published vector of Prio3Count, from the seeds on.

The vector is ``Prio3Count_0`` of draft-irtf-cfrg-vdaf (version byte 12): two shares, measurement 1, keys and seeds that
count up from zero. Its circuit multiplies the measurement by itself, so there are two wires and one call of the gadget.
"""

import numpy as np
from turboshake import turboshake128

from foltr.secure.field import MODULUS, add, multiply
from foltr.secure.norm_sums import combine
from foltr.secure.polynomials import odd_values, weights_at

CONTEXT, NONCE, VERIFY_KEY = b"some application", bytes(range(16)), bytes(range(32))
HELPER_SEED, PROVE_SEED = bytes(range(32)), bytes(range(32, 64))
LEADER_SHARE = "e369056891a9fd95d44e6fadb3b75e6774b666d312bcc59b07660ca467144d293006b65d82690924a82a4da7c3496338"
VERIFIER_SHARES = (
    "c6c0473f31a065a2b19b8c1c4431ec49eca02338e5e05da8d05f3149baaf4948",
    "3b3fb8c0cd5f9a5d5abc07086ef01d5b3cb2629a3c534bd4070b1c23d1898365",
)
MEASUREMENT, PROOF, PROVE, QUERY = 1, 2, 4, 5


def words(text: str) -> np.ndarray:
    return np.frombuffer(bytes.fromhex(text), "<u8").astype(np.uint64)


def drawn(seed: bytes, usage: int, binder: bytes, n: int) -> np.ndarray:
    """(n,) numbers below p as the draft expands a seed for a usage."""
    tag = bytes([12, 0]) + (1).to_bytes(4, "big") + usage.to_bytes(2, "big") + CONTEXT
    message = len(tag).to_bytes(2, "little") + tag + bytes([len(seed)]) + seed + binder
    stream = np.frombuffer(turboshake128(message, 1, 8 * n + 64), "<u8")
    return stream[stream < MODULUS][:n].astype(np.uint64)


def helper_share() -> np.ndarray:
    """(6,): the measurement, two wire seeds, and three values of the gadget polynomial."""
    return np.concatenate([drawn(HELPER_SEED, MEASUREMENT, b"\x01", 1), drawn(HELPER_SEED, PROOF, b"\x01\x01", 5)])


def verified(share: np.ndarray) -> np.ndarray:
    """(4,): what a verifier says of a share: the circuit's output, both wires and G at the point."""
    measurement, first, gadget = share[:1], share[1:3], share[3:]
    point = int(drawn(VERIFY_KEY, QUERY, b"\x01" + NONCE, 1)[0])
    wires = np.stack([first, np.repeat(measurement, 2)])
    output = add(gadget[2:], np.array([MODULUS], np.uint64) - measurement)
    of_wires, of_gadget = (np.array(weights, np.uint64) for weights in weights_at(point, 2))
    return np.concatenate([output, combine(of_wires, wires), combine(of_gadget, gadget[:, np.newaxis])])


def test_turboshake_is_that_of_its_standard():
    """The first vector of RFC 9861: nothing, 32 bytes."""
    expected = "1e415f1c5983aff2169217277d17bb538cd945a397ddec541f1ce41af2c1b74c"
    assert turboshake128(b"", 0x1F, 32).hex() == expected


def test_the_proof_is_the_published_one():
    """Measurement, wire seeds and values of the gadget polynomial, as the shares add up to them."""
    first = drawn(PROVE_SEED, PROVE, b"\x01", 2)
    wires = np.stack([first, np.ones(2, np.uint64)])
    between = odd_values(wires)
    gadget = [multiply(rows[:, :1], rows[:, 1:])[:, 0] for rows in (wires, between)]
    expected = [1, *first.tolist(), int(gadget[0][0]), int(gadget[1][0]), int(gadget[0][1])]
    assert add(words(LEADER_SHARE), helper_share()).tolist() == expected


def test_verifiers_say_what_is_published():
    """Of the leader's share and of the helper's, and it adds up to an accepted proof."""
    shares = [verified(words(LEADER_SHARE)), verified(helper_share())]
    assert [share.tolist() for share in shares] == [words(share).tolist() for share in VERIFIER_SHARES]
    output, left, right, gadget = add(*shares).tolist()
    assert output == 0
    assert left * right % MODULUS == gadget
