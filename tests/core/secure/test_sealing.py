"""Seals: one helper opens them, for one purpose."""

from dataclasses import dataclass

from foltr.core.protocol.fields import SEAL_BYTES
from foltr.core.secure.sealing import SealingKey, seal_info, seal_seed, verify_key_info

SEED = bytes(range(32))


@dataclass(frozen=True)
class Purpose:
    ticket: bytes = bytes(32)
    helper: str = "north"

    @property
    def info(self) -> bytes:
        return seal_info(**vars(self))


def test_the_helper_it_is_sealed_to_opens_it_and_for_nothing_else():
    """A seal moved to another ticket or helper stays closed; that of a verify key is for one policy's verifier."""
    key = SealingKey.generate()
    sealed = seal_seed(SEED, key.public, Purpose().info)
    assert len(sealed) == SEAL_BYTES
    assert key.open(sealed, Purpose().info) == SEED
    assert SealingKey(key.private).open(sealed, Purpose().info) == SEED
    for other in (Purpose(ticket=bytes(31) + b"\x01"), Purpose(helper="south")):
        assert key.open(sealed, other.info) is None, other
    purposes = [("mail", 1, "north"), ("mail", 2, "north"), ("mail", 1, "@federator"), ("search", 1, "north")]
    assert len({verify_key_info(*each) for each in purposes} | {Purpose().info}) == 5


def test_what_is_sealed_is_a_seed_for_one_helper():
    """Another key opens nothing, nor does the right one where a bit was changed or the seed has another length."""
    key, info = SealingKey.generate(), Purpose().info
    sealed = seal_seed(SEED, key.public, info)
    assert SealingKey.generate().open(sealed, info) is None
    for i in (0, 40, SEAL_BYTES - 1):
        changed = bytearray(sealed)
        changed[i] ^= 1
        assert key.open(bytes(changed), info) is None
    assert key.open(sealed[:-1], info) is None
    assert key.open(b"", info) is None
    assert key.open(seal_seed(SEED[:-1], key.public, info), info) is None
    key = SealingKey.generate()
    assert key.private.hex() not in repr(key)
    assert key.public.hex() in repr(key)
