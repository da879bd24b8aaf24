"""The polynomials here are those of the VDAF draft: its vectors of Prio3Count and Prio3Sum, from the seeds on."""

import numpy as np
from support.turboshake import turboshake128

from foltr.core.secure.field import MODULUS, add, multiply, subtract
from foltr.core.secure.norm_sums import combine
from foltr.core.secure.polynomials import coefficients_of, odd_values, values_of, weights_at

CONTEXT, NONCE, VERIFY_KEY = b"some application", bytes(range(16)), bytes(range(32))
HELPER_SEED, PROVE_SEED = bytes(range(32)), bytes(range(32, 64))
LEADER_SHARE = "e369056891a9fd95d44e6fadb3b75e6774b666d312bcc59b07660ca467144d293006b65d82690924a82a4da7c3496338"
VERIFIER_SHARES = (
    "c6c0473f31a065a2b19b8c1c4431ec49eca02338e5e05da8d05f3149baaf4948",
    "3b3fb8c0cd5f9a5d5abc07086ef01d5b3cb2629a3c534bd4070b1c23d1898365",
)
SUM_LEADER_SHARE = (
    "43126178225dca30c56c892f4cef3ca6f627cae360f77d4b2994ee7fbe779a5892f97897b3c5ff28eb1156127a87cb71feca3aa6"
    "7f3f66472914077ef4bb37488245444045a2293f2c51f6d5d497646aa2ab3bdc62c1db973fabd7f72169d6d5dbe73437837c1c06"
    "62bb24addf7e07e6ae56db956b47ccc755b7c35912f67fb1b50659e637f1034ee3214ff4916ea9d1298a119d0e44c922bd17cc33"
    "3224c31e67dc3282b61b9aab42ca71062aea44000cf3d13d667e8223477604725e654230e2a7fe703f610869e9f65d5a00203af4"
    "1da5120d8850de22994a3f5de88910257bf11730c7721c63d712f309ff1a16961a6870876f89b7aece0a7aae9726c957a3bbde29"
    "775ad0e4159e2cdfaa741f3f8562468e879f0f4e50829d16ade458e32e321f2b7ab80348c4fcd23a2aeb3921b4b6c297d0e0e10b"
    "a6ac3839d9be19018012dfcce38bfb12d0caefc81b0bf2901638317c0a708b0d73f45b43aaf7cc1f7eb7ea6bd7f8e1248ef49224"
    "f1735c8112e1f740fc7020d3185ed3c588611aa6aed0f49ac90d908e28213b754fc64e330998b132579ea55c4d5be49e026fcb6e"
    "962377d3d540fa2d45116efa46182b7175e29f95499362aa5b631a4b504c7289a7cbf673f2f9d0f0e224f37a862ae822b5359c93"
    "de1a40e52e142897dcf25ee5bfaf4132019c1ad28f128186fd48b49eeca0ba9c31e25a025e2d5999e2654a02b6d1bd07d2a20950"
    "45cbd367a00a2d34976dc10effb80228afb1c3a7f05943053d65bd900b7a4bfd3833a93f1e0c3c0ecc469d10fbc05ac7881c68f0"
    "e3229efdc0e7d15d08a63d9c6de25377f4e01bdc64748dcfc1381977f323cce3c0d453c6a97df87718f54f386228fa70b978c331"
    "be3c4af998645e68b00d1f95bb7fedd7"
)
SUM_VERIFIER_SHARES = (
    "3930d34b74e6676f0158033969b58f5f113b356a799287a5",
    "c8cf2cb48a199890ca5a3a856a34c034919f038dd5483648",
)
MEASUREMENT, PROOF, PROVE, QUERY = 1, 2, 4, 5


def words(text: str) -> np.ndarray:
    return np.frombuffer(bytes.fromhex(text), "<u8").astype(np.uint64)


def drawn(seed: bytes, usage: int, binder: bytes, n: int, scheme: int = 1) -> np.ndarray:
    """(n,) numbers below p as the draft expands a seed for a usage, of Prio3Count or, by scheme 2, Prio3Sum."""
    tag = bytes([12, 0]) + scheme.to_bytes(4, "big") + usage.to_bytes(2, "big") + CONTEXT
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


def test_the_proof_is_the_published_one_and_what_verifiers_say_of_it():
    """Measurement, wire seeds and gadget polynomial; the shares of leader and helper add up to an accepted proof."""
    first = drawn(PROVE_SEED, PROVE, b"\x01", 2)
    wires = np.stack([first, np.ones(2, np.uint64)])
    between = odd_values(wires)
    gadget = [multiply(rows[:, :1], rows[:, 1:])[:, 0] for rows in (wires, between)]
    expected = [1, *first.tolist(), int(gadget[0][0]), int(gadget[1][0]), int(gadget[0][1])]
    assert add(words(LEADER_SHARE), helper_share()).tolist() == expected
    shares = [verified(words(LEADER_SHARE)), verified(helper_share())]
    assert [share.tolist() for share in shares] == [words(share).tolist() for share in VERIFIER_SHARES]
    output, left, right, gadget = add(*shares).tolist()
    assert output == 0
    assert left * right % MODULUS == gadget


def sum_shares() -> list[np.ndarray]:
    """(80,) of leader and helper: 16 bits, a wire seed, 63 coefficients of the gadget polynomial."""
    helper = [drawn(HELPER_SEED, MEASUREMENT, b"\x01", 16, 2), drawn(HELPER_SEED, PROOF, b"\x01\x01", 64, 2)]
    return [words(SUM_LEADER_SHARE), np.concatenate(helper)]


def bits_wire(share: np.ndarray) -> np.ndarray:
    """(32, 1): the values of the wire polynomial of a share of Prio3Sum."""
    return np.concatenate([share[16:17], share[:16], np.zeros(15, np.uint64)])[:, np.newaxis]


def test_verifiers_of_a_sum_say_what_is_published():
    """The circuit's 17 outputs with random weights, the wire at the point, and G there."""
    *reduction, point = drawn(VERIFY_KEY, QUERY, b"\x01" + NONCE, 18, 2).tolist()
    of_wire, of_gadget = (np.array(weights, np.uint64) for weights in weights_at(point, 32))
    for share, expected in zip(sum_shares(), SUM_VERIFIER_SHARES, strict=True):
        gadget = values_of(np.concatenate([share[17:], np.zeros(1, np.uint64)])[:, np.newaxis])
        first, second = (
            sum(bit << i for i, bit in enumerate(half)) for half in (share[:8].tolist(), share[8:16].tolist())
        )
        outputs = [*gadget[2:34:2, 0].tolist(), first - second]
        reduced = sum(weight * output for weight, output in zip(reduction, outputs, strict=True)) % MODULUS
        at_point = [*combine(of_wire, bits_wire(share)).tolist(), *combine(of_gadget, gadget[:63]).tolist()]
        assert [reduced, *at_point] == words(expected).tolist()
    together = add(*sum_shares())
    assert together[:16].tolist() == [0, 0, 1, 0, 0, 1, 1, 0] * 2
    assert together[16] == drawn(PROVE_SEED, PROVE, b"\x01", 1, 2)[0]
    wire = bits_wire(together)
    values = np.stack([wire, odd_values(wire)], axis=1).reshape(64, 1)
    gadget = coefficients_of(subtract(multiply(values, values), values))[:, 0]
    assert gadget.tolist() == [*together[17:].tolist(), 0]
