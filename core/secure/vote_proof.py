"""Vote proofs: a device proves, in the one message that it sends, that each of its votes is exactly 0 or v.

A number w is one of the two exactly if w (w - v) = 0 modulo p, since p is prime. The device draws a random r, so that
f(X) = w + r X is uniform at every point but 0, and sends after w the three numbers r, h_0 = r (2w - v) and h_1 = r^2.
With them f(X) (f(X) - v) = w (w - v) + h_0 X + h_1 X^2, so at a secret point t of 1 to p - 1 the verifiers compare f(t)
(f(t) - v) with h_0 t + h_1 t^2. It is a fully linear proof (Boneh et al., CRYPTO 2019) of one multiplication.

- Honest votes always pass: the two sides are the same polynomial.
- A w that is neither leaves a polynomial of degree 2 whose constant is not zero, with any numbers sent after it: at
  most two points of p - 1 let it pass, with a probability of 2 / (p - 1), below 2^-62.
- The verifiers learn f(t), which is uniform for any w, and what follows from it: nothing of the vote.

Each number of a message is proven separately, at the same point; the three numbers of an evaluation, 0 or u, are proven
like votes. A credit is -u, 0 or u: exactly if w (w - u) (w + u) = w^3 - u^2 w = 0. Its proof has one number more, since
f(X)^3 - u^2 f(X) = w^3 - u^2 w + h_0 X + h_1 X^2 + h_2 X^3 with h_0 = r (3 w^2 - u^2), h_1 = 3 w r^2 and h_2 = r^3; any
other number passes at three points at most, with a probability below 2^-62.

docs/privacy.md has the arguments; like that of norm proofs the composition is ours and **unaudited**.
"""

import hmac
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from foltr.core.secure.coins import Entropy, Words, seeded_entropy
from foltr.core.secure.field import MODULUS
from foltr.core.secure.masks import words_below

PROOFS_A_VOTE: Final = 3
"""How many numbers the proof of one number has."""
PROOFS_A_CREDIT: Final = 4
"""Likewise of a credit, of which an answer has as many."""
ANSWERS_A_VOTE: Final = 2
"""How many numbers a verifier's answer about its share of one has."""
_POINT: Final = b"foltr vote proof point 1\n"


def encode_vote(opinion: int, weight: int) -> NDArray[np.int64]:
    """Return (N_VOTES,) what a client adds to the numbers of votes, worse and better; (0,) without votes.

    Args:
        opinion: -1 worse, 1 better, 0 neither.
        weight: v; 0 without votes.
    """
    if weight == 0:
        return np.zeros(0, np.int64)
    return weight * np.array([opinion == -1, opinion == 1], np.int64)


def prove_votes(votes: Words, weights: Sequence[int], entropy: Entropy) -> Words:
    """Return (3 n,) a device's proof that each number is 0 or its weight, before masking.

    Args:
        votes: (n,) below p; a proof of other numbers fails.
        weights: v of each.
        entropy: gives random bytes, which must be unpredictable to protect the device.
    """
    drawn = words_below(entropy, votes.size).tolist()
    found = [
        (r, r * (2 * vote - weight) % MODULUS, r * r % MODULUS)
        for vote, weight, r in zip(votes.tolist(), weights, drawn, strict=True)
    ]
    return np.array(found, np.uint64).reshape(-1)


def vote_point(verify_key: bytes, ticket: bytes) -> int:
    """Return t, 1 to p - 1: unpredictable without the key, and always the same for one ticket.

    Args:
        verify_key: of the policy, 32 bytes.
        ticket: 32 bytes that identify the votes' ticket.
    """
    drawn = seeded_entropy(hmac.digest(verify_key, _POINT + ticket, "sha256"))
    while (point := int(words_below(drawn, 1)[0])) == 0:
        pass
    return point


def answer_votes(votes: Words, proof: Words, point: int) -> Words:
    """Return (2 n,) a verifier's answer about its share: for each number f(t), and h_0 t + h_1 t^2. It is linear.

    Args:
        votes: (n,) its share of them.
        proof: (3 n,) likewise.
        point: t.
    """
    said = []
    for vote, (r, first, second) in zip(votes.tolist(), proof.reshape(-1, 3).tolist(), strict=True):
        said += [(vote + r * point) % MODULUS, (first + second * point) * point % MODULUS]
    return np.array(said, np.uint64)


def is_vote_proof_valid(total: Words, weights: Sequence[int]) -> bool:
    """Whether the verifiers' answers add up to those of numbers that are 0 or their weight each.

    Args:
        total: (2 n,), the sum of all answers.
        weights: v of each.
    """
    pairs = total.reshape(-1, 2).tolist()
    kept = (
        value * (value - weight) % MODULUS == expected for (value, expected), weight in zip(pairs, weights, strict=True)
    )
    return all(kept)


def prove_credit(credit: Words, weight: int, entropy: Entropy) -> Words:
    """Return (4,) a device's proof that a number is minus its weight, 0 or its weight, before masking.

    Args:
        credit: (1,) below p; a proof of another number fails.
        weight: u.
        entropy: gives random bytes, which must be unpredictable to protect the device.
    """
    number, r = int(credit[0]), int(words_below(entropy, 1)[0])
    terms = r, r * (3 * number**2 - weight**2), 3 * number * r**2, r**3
    return np.array([term % MODULUS for term in terms], np.uint64)


def answer_credit(share: Words, point: int) -> Words:
    """Return (2,) a verifier's answer about its share: f(t), and h_0 t + h_1 t^2 + h_2 t^3. It is linear.

    Args:
        share: (5,) of the number and its proof; (0,), and so the answer, without credits.
        point: t.
    """
    if not share.size:
        return share
    number, r, first, second, third = share.tolist()
    rest = (first + (second + third * point) * point) * point
    return np.array([(number + r * point) % MODULUS, rest % MODULUS], np.uint64)


def is_credit_proof_valid(total: Words, weight: int) -> bool:
    """Whether the verifiers' answers add up to those of minus the weight, 0 or the weight.

    Args:
        total: (2,); (0,) without credits.
        weight: u.
    """
    if not total.size:
        return True
    value, expected = total.tolist()
    return bool((value**3 - weight**2 * value) % MODULUS == expected)
