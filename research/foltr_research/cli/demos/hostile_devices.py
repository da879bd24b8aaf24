"""Hostile devices of ``foltr demo-secure``: vectors that are far too long, with the best forged norm proof."""

import os
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from foltr.core.protocol.announcements import RoundAnnouncement
from foltr.core.protocol.epochs import epoch_of
from foltr.core.protocol.signed_policies import SignedPolicy
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.updates import ModelUpdate, UpdateBody
from foltr.core.secure.coins import SEED_BYTES, seeded_entropy
from foltr.core.secure.evaluation import longest_credit, longest_evaluation
from foltr.core.secure.field import from_signed
from foltr.core.secure.vote_proof import encode_vote, prove_credit, prove_votes
from foltr.edge_client.contribution import Alteration
from foltr.edge_client.sums.masked_update import encode_body, mask_body
from foltr.storage.database import Database
from foltr.storage.sums import load_sums
from foltr_research.attacks.forged_proofs import forge_norm_proof

TIMES: Final = 50
"""Length of a hostile vector, in multiples of the bound."""


def lying(policy: SignedPolicy, key: SigningKey) -> Alteration:
    """Return how a device lies: the opposite of what it has learned, `TIMES` as long as the bound, with a forged proof.

    It always votes that the newest model is better, and reports a content user whose lists credit the model.

    Args:
        policy: one that requires norm proofs.
        key: the device's.
    """
    rules, message = policy.policy, policy.policy.message_shape
    if message is None:
        raise RuntimeError("under a policy without norm proofs none are forged")
    shape = message.norm

    async def lie(update: ModelUpdate, round_: RoundAnnouncement) -> UpdateBody:
        if round_.secure is None:
            raise RuntimeError("a round without secure sums has no norm proofs")
        encoded = _turned(encode_body(update.body, rules, round_.secure.clip_norm), TIMES * rules.bound)
        entropy = seeded_entropy(os.urandom(SEED_BYTES))
        opinion = encode_vote(1, rules.vote_weight), longest_evaluation(rules.evaluation_weight)
        beside, credit = from_signed(np.concatenate(opinion)), from_signed(longest_credit(rules.credit_weight))
        proofs = [forge_norm_proof(encoded, shape, entropy), prove_votes(beside, message.weights, entropy)]
        if rules.credit_weight:
            proofs.append(prove_credit(credit, rules.credit_weight, entropy))
        words = np.concatenate([from_signed(encoded), beside, credit, *proofs])
        return mask_body(update, update.through, words, policy, key, epoch_of(rules, round_.opened_at))

    return lie


async def count_norm_proofs(database: Database, federation: str, numbers: Sequence[int]) -> dict[str, int]:
    """Return how many norm proofs were checked in these rounds, and how many failed."""
    kept = failed = 0
    for number in numbers:
        for each in await load_sums(database, federation, number):
            kept += each.n_clients
            failed += each.n_norm_proofs_failed or 0
    return {"checked": kept + failed, "failed": failed}


def _turned(learned: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """(d,) against what was learned, of this norm up to rounding; against every feature if nothing was learned."""
    direction = learned.astype(np.float64) if learned.any() else np.ones(len(learned))
    return np.rint(-length / np.linalg.norm(direction) * direction).astype(np.int64)
