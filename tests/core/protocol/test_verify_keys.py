"""A policy's verify key is for its verifiers, each with a seal of its own, and for that policy."""

from support.secure_policies import FEDERATOR_SEALING, HELPERS, SEALING, VERIFY_KEY, policy

from foltr.core.protocol.verify_keys import open_verify_key, seal_verify_key
from foltr.core.secure.sealing import SealingKey

VERIFIERS = [(0, SEALING["north"]), (1, SEALING["south"]), (None, FEDERATOR_SEALING)]


def test_each_verifier_opens_its_own_seal():
    """Nobody opens another's copy, nor a seal of another federation, version or helper; without proofs is none."""
    for place, key in VERIFIERS:
        rules = policy(proofs=True).policy
        assert open_verify_key(rules, place, key) == VERIFY_KEY, (place, key)
        assert open_verify_key(rules, place, SealingKey.generate()) is None, (place, key)
        for other, _ in VERIFIERS:
            assert (open_verify_key(rules, other, key) == VERIFY_KEY) is (other == place), (place, key)
    for federation, version, helpers in [("search", 1, HELPERS), ("mail", 2, HELPERS), ("mail", 1, HELPERS[::-1])]:
        moved = seal_verify_key(VERIFY_KEY, federation, version, helpers, FEDERATOR_SEALING.public)
        rules = policy(proofs=True, norm_proof=moved).policy
        found = [open_verify_key(rules, place, key) for place, key in VERIFIERS]
        assert found == ([None] * 3 if helpers is HELPERS else [None, None, VERIFY_KEY]), (federation, version, helpers)
    assert open_verify_key(policy().policy, 0, SEALING["north"]) is None
