"""A policy's verify key, from which all checks of norm proofs under it are drawn. The policy has it sealed to each
verifier: the helpers and the federator. No device ever has it.
"""

from collections.abc import Sequence
from typing import Final

from foltr.core.protocol.policies import HelperKeys, L2NormProof, Policy
from foltr.core.secure.sealing import SealingKey, seal_seed, verify_key_info

FEDERATOR_NAME: Final = "@federator"
"""No helper has this name."""


def seal_verify_key(
    verify_key: bytes, federation: str, version: int, helpers: Sequence[HelperKeys], federator_key: bytes
) -> L2NormProof:
    """Seal the verify key of a new policy to each verifier.

    Args:
        verify_key: 32 bytes that nobody has seen, and no other policy has.
        version: of the policy.
        helpers: of the policy, in its order.
        federator_key: X25519, public.
    """

    def seal(name: str, public_key: bytes) -> bytes:
        return seal_seed(verify_key, public_key, verify_key_info(federation, version, name))

    return L2NormProof(
        federator_key=federator_key,
        federator_seal=seal(FEDERATOR_NAME, federator_key),
        helper_seals=[seal(each.name, each.sealing_key) for each in helpers],
    )


def open_verify_key(policy: Policy, place: int | None, sealing_key: SealingKey) -> bytes | None:
    """Return a policy's verify key; None if it has none, or it was not sealed to this key.

    Args:
        place: index among the policy's helpers; None for the federator.
        sealing_key: private, of this verifier.
    """
    proof = policy.norm_proof
    if proof is None:
        return None
    if place is None:
        name, seal = FEDERATOR_NAME, proof.federator_seal
    else:
        name, seal = policy.helpers[place].name, proof.helper_seals[place]
    return sealing_key.open(seal, verify_key_info(policy.federation, policy.version, name))
