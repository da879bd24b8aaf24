"""The parts of a message of a secure sum, and its proofs: of its integers' norm, and of each extra number.

A message is [q (dim) | worse, better | clicked, reward, base reward | credit | norm proof of q | vote proofs |
evaluation's proofs | credit's proof], without the parts that the policy does not ask for, and their proofs. First come
the numbers for the sum, then their proofs. A verifier's answer is [that on the norm | on the votes | on the evaluation
| on the credit]. Votes and evaluation are proven alike, as numbers that are each 0 or their weight, and the credit as
one that is its weight, 0 or minus that (`foltr.core.secure.vote_proof`).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foltr.core.secure.accounting import N_CREDITS, N_EVALUATION, N_VOTES
from foltr.core.secure.coins import Entropy, Words
from foltr.core.secure.field import from_signed
from foltr.core.secure.norm_proof import ProofShape, answer_share, challenge_for, is_norm_proof_valid, prove_norm
from foltr.core.secure.vote_proof import (
    ANSWERS_A_VOTE,
    PROOFS_A_CREDIT,
    PROOFS_A_VOTE,
    answer_credit,
    answer_votes,
    is_credit_proof_valid,
    is_vote_proof_valid,
    prove_credit,
    prove_votes,
    vote_point,
)


@dataclass(frozen=True)
class MessageShape:
    """How long a message is, and its parts.

    Attributes:
        norm: of the norm proof.
        vote_weight: v; 0 of messages without votes.
        evaluation_weight: u; 0 of messages without evaluations.
        credit_weight: w; 0 of messages without credits.
    """

    norm: ProofShape
    vote_weight: int = 0
    evaluation_weight: int = 0
    credit_weight: int = 0

    @property
    def weights(self) -> tuple[int, ...]:
        """The weight of each number of votes and the evaluation, if the number is not 0."""
        votes, evaluation = N_VOTES * (self.vote_weight,), N_EVALUATION * (self.evaluation_weight,)
        return tuple(weight for weight in votes + evaluation if weight)

    @property
    def n_summed(self) -> int:
        """How many numbers go into the sum: the encoding, the votes, the evaluation, and the credit."""
        return self.norm.dim + len(self.weights) + self.n_credits

    @property
    def n_credits(self) -> int:
        return N_CREDITS if self.credit_weight else 0

    @property
    def n_proof(self) -> int:
        """How many numbers of proofs follow them."""
        return self.norm.n_proof + PROOFS_A_VOTE * len(self.weights) + PROOFS_A_CREDIT * self.n_credits

    @property
    def n_values(self) -> int:
        """How many numbers a device sends."""
        return self.n_summed + self.n_proof

    @property
    def n_answer(self) -> int:
        """How many numbers a verifier's answer about a share has."""
        return self.norm.n_answer + ANSWERS_A_VOTE * (len(self.weights) + self.n_credits)

    def split(self, words: Words) -> tuple[Words, Words, Words, Words]:
        """Return the input and proof of the norm proof, (norm.n_values,); then votes and evaluation, their proofs, and
        the credit with its proof.

        Args:
            words: (n_values,), a message or a share of one.
        """
        n = len(self.weights)
        sizes = self.norm.dim, n, self.n_credits, self.norm.n_proof, PROOFS_A_VOTE * n
        encoded, beside, credit, norm_proof, proofs, of_credit = np.split(words, np.cumsum(sizes))
        return np.concatenate([encoded, norm_proof]), beside, proofs, np.concatenate([credit, of_credit])


def prove_message(summed: NDArray[np.int64], shape: MessageShape, entropy: Entropy) -> Words:
    """Return (n_proof,) the proofs that a device sends after the summed numbers, before masking.

    Args:
        summed: (n_summed,) integers with a norm within the bound, followed by numbers that are 0 or their weight each,
            and a credit.
        entropy: gives random bytes, which must be unpredictable to protect the device.
    """
    encoded, beside, credit = np.split(summed, np.cumsum([shape.norm.dim, len(shape.weights)]))
    parts = [prove_norm(encoded, shape.norm, entropy)]
    if shape.weights:
        parts.append(prove_votes(from_signed(beside), shape.weights, entropy))
    if shape.credit_weight:
        parts.append(prove_credit(from_signed(credit), shape.credit_weight, entropy))
    return np.concatenate(parts)


def answer_message(share: Words, verify_key: bytes, ticket: bytes, shape: MessageShape) -> Words:
    """Return (n_answer,) a verifier's answer about its share of a message. It is linear in the share.

    Args:
        share: (n_values,).
        verify_key: of the policy, 32 bytes.
        ticket: 32 bytes that identify the message's ticket.
    """
    proven, beside, proofs, credit = shape.split(share)
    of_norm = answer_share(proven, challenge_for(verify_key, ticket, shape.norm), shape.norm)
    if shape.n_summed == shape.norm.dim:
        return of_norm
    point = vote_point(verify_key, ticket)
    return np.concatenate([of_norm, answer_votes(beside, proofs, point), answer_credit(credit, point)])


def is_message_proof_valid(total: Words, shape: MessageShape) -> bool:
    """Whether the verifiers' answers add up to a norm within the bound, and votes, evaluation and credit are valid.

    Args:
        total: (n_answer,), the sum of all answers.
    """
    n_norm, n_beside = shape.norm.n_answer, ANSWERS_A_VOTE * len(shape.weights)
    of_norm, of_beside, of_credit = np.split(total, np.cumsum([n_norm, n_beside]))
    if not (is_norm_proof_valid(of_norm, shape.norm) and is_vote_proof_valid(of_beside, shape.weights)):
        return False
    return is_credit_proof_valid(of_credit, shape.credit_weight)
