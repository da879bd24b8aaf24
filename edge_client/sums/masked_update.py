"""What a device sends under a policy: its update as masked integers; the masks' seeds are sealed to the helpers.

If the policy asks for them, its vote and its lists' rewards and credits are behind the same masks. So is the proof that
the integers are no longer than the policy's bound, and that each extra number is one of those allowed.

Everything that protects somebody is drawn by `os.urandom`, never from the device's seed: the seeds of masks, what hides
the update in its proof, and the noise if clients add it.
"""

import hashlib
import os

import numpy as np
from numpy.typing import NDArray

from foltr.core.protocol.evaluations import Evaluation
from foltr.core.protocol.fields import unpack_vector
from foltr.core.protocol.policies import GammaNoise, Policy, cohort_of
from foltr.core.protocol.signed_policies import SignedPolicy
from foltr.core.protocol.signed_tickets import issue_ticket, ticket_name
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.tickets import Ticket, UnsealedTicket
from foltr.core.protocol.updates import DenseDelta, MaskedVector, ModelUpdate, PartDelta, UpdateBody, Vote
from foltr.core.secure.coins import SEED_BYTES, Words, seeded_entropy
from foltr.core.secure.encoding import encode_l1, encode_l2
from foltr.core.secure.evaluation import encode_credit, encode_evaluation
from foltr.core.secure.field import from_signed, write_words
from foltr.core.secure.masks import mask_words
from foltr.core.secure.message_proof import prove_message
from foltr.core.secure.polya import draw_polya_share
from foltr.core.secure.sealing import seal_info, seal_seed
from foltr.core.secure.vote_proof import encode_vote


def mask_update(
    update: ModelUpdate,
    participation: int,
    policy: SignedPolicy,
    clip_norm: float,
    key: SigningKey,
    vote: Vote | None = None,
    evaluation: Evaluation | None = None,
    *,
    epoch: int,
) -> ModelUpdate:
    """Return an update with its body masked.

    Args:
        update: of differences of weights, with ``policy.dim`` numbers.
        participation: its number in the device's ledger.
        clip_norm: C of its round.
        key: the device's, which signs the ticket.
        epoch: of the policy, in which the round was opened.
        vote: None, and no opinion, look like any other. Left out if the policy asks for no votes.
        evaluation: likewise; None looks like lists without clicks.
    """
    rules = policy.policy
    opinion = encode_vote(0 if vote is None else vote.value, rules.vote_weight)
    means = None if evaluation is None else (evaluation.clicked, evaluation.reward, evaluation.base_reward)
    earned = encode_evaluation(means, rules.evaluation_weight, os.urandom)
    credit = encode_credit(0.0 if evaluation is None else evaluation.credit_total, rules.credit_weight, os.urandom)
    summed = np.concatenate([encode_body(update.body, rules, clip_norm), opinion, earned, credit])
    words = _with_proof(summed, rules)
    return update.model_copy(update={"body": mask_body(update, participation, words, policy, key, epoch)})


def mask_body(
    update: ModelUpdate, participation: int, words: Words, policy: SignedPolicy, key: SigningKey, epoch: int
) -> MaskedVector:
    """Return (n_summed,) or (n_values,) words, integers modulo p with or without a proof, behind masks."""
    n_summed, seeds = policy.policy.n_summed, [os.urandom(SEED_BYTES) for _ in policy.policy.helpers]
    masked = write_words(mask_words(words, seeds))
    ticket = issue_ticket(key, _ticket(update, participation, policy, masked, seeds, epoch))
    return MaskedVector(dim=n_summed, values=masked[: 8 * n_summed], ticket=ticket, proof=masked[8 * n_summed :])


def encode_body(body: UpdateBody, policy: Policy, clip_norm: float) -> NDArray[np.int64]:
    """Return a body as (dim,) integers, with the client's share of the noise, if it adds one.

    A body that is not finite becomes zeros, and a longer one than C is shortened. So each has an encoding: whether a
    device takes part must not depend on what it has learned.
    """
    entropy = seeded_entropy(os.urandom(SEED_BYTES))
    if not isinstance(policy.noise, GammaNoise):
        return encode_l2(_scattered(body, policy.dim), clip_norm, policy.bound, entropy)
    encoded = encode_l1(_scattered(body, policy.dim), clip_norm, policy.bound, entropy)
    if policy.noise.n_shares is None:
        return encoded
    return encoded + draw_polya_share(policy.dim, policy.noise.scale, policy.noise.n_shares)


def _with_proof(summed: NDArray[np.int64], policy: Policy) -> Words:
    """Return (n_summed,) words for the integers, or (n_values,) followed by the proofs that the policy asks for."""
    words, shape = from_signed(summed), policy.message_shape
    if shape is None:
        return words
    return np.concatenate([words, prove_message(summed, shape, seeded_entropy(os.urandom(SEED_BYTES)))])


def _scattered(body: UpdateBody, dim: int) -> NDArray[np.float32]:
    """Return (dim,) the differences of all weights; zeros for those that are not sent."""
    if isinstance(body, DenseDelta):
        return unpack_vector(body.values)
    if not isinstance(body, PartDelta):
        raise TypeError(f"{type(body).__name__} holds no differences of weights")
    values, scattered = unpack_vector(body.values), np.zeros(dim, np.float32)
    scattered[body.start : body.start + len(values)] = values
    return scattered


def _ticket(
    update: ModelUpdate, participation: int, policy: SignedPolicy, masked: bytes, seeds: list[bytes], epoch: int
) -> Ticket:
    unsealed = UnsealedTicket(
        federation=update.federation,
        client_id=update.client_id,
        round=update.round,
        cohort=cohort_of(policy.hash, policy.policy.cohorts, update.round, update.client_id),
        policy_hash=policy.hash,
        update_id=update.update_id,
        participation=participation,
        digest=hashlib.sha256(masked).digest(),
    )
    named = ticket_name(unsealed)
    seals = [
        seal_seed(seed, helper.epoch_keys[epoch], seal_info(named, helper.name))
        for seed, helper in zip(seeds, policy.policy.helpers, strict=True)
    ]
    return Ticket(**unsealed.model_dump(), seals=seals)
