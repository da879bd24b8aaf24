"""Votes of 0 or v always pass; whatever else is refused at all points but two; and no verifier learns which it was."""

import math
import os

import numpy as np

from foltr.core.secure import vote_proof
from foltr.core.secure.accounting import N_VOTES
from foltr.core.secure.field import MODULUS

VERIFY_KEY = bytes(range(32))
WEIGHT = 64
WEIGHTS = (WEIGHT, WEIGHT)
POINTS = [vote_proof.vote_point(VERIFY_KEY, i.to_bytes(32, "big")) for i in range(300)]
HALF = (MODULUS + 1) // 2
LIES = {
    "one": 1,
    "one less": WEIGHT - 1,
    "one more": WEIGHT + 1,
    "two votes": 2 * WEIGHT,
    "a thousand": 1000 * WEIGHT,
    "against": -WEIGHT,
    "one below": -1,
    "half": WEIGHT * HALF,
    "a third": WEIGHT * pow(3, -1, MODULUS),
    "minus a half": -WEIGHT * HALF,
    "the middle": MODULUS // 2,
    "a root of one": pow(7, (MODULUS - 1) // 4, MODULUS),
}


def words(*numbers):
    return np.array([number % MODULUS for number in numbers], np.uint64)


def passes(votes, proof, point):
    return vote_proof.is_vote_proof_valid(vote_proof.answer_votes(votes, proof, point), WEIGHTS)


def entropy_of(*numbers):
    return lambda _: np.array(numbers, "<u8").tobytes()


def test_votes_of_nothing_or_the_weight_always_pass():
    """Whatever was drawn and asked; more votes, fewer, negative ones and fractions are refused at every point."""
    for votes in [(0, 0), (WEIGHT, 0), (0, WEIGHT), (WEIGHT, WEIGHT)]:
        for point in (1, 2, MODULUS - 1, *POINTS):
            proof = vote_proof.prove_votes(words(*votes), WEIGHTS, os.urandom)
            assert proof.size == vote_proof.PROOFS_A_VOTE * N_VOTES, votes
            assert vote_proof.answer_votes(words(*votes), proof, point).size == vote_proof.ANSWERS_A_VOTE * N_VOTES, (
                votes
            )
            assert passes(words(*votes), proof, point), votes
    for lie in LIES.values():
        for place in range(N_VOTES):
            votes = words(0, 0)
            votes[place] = lie % MODULUS
            proof = vote_proof.prove_votes(votes, WEIGHTS, os.urandom)
            assert not any(passes(votes, proof, point) for point in (1, 2, MODULUS - 1, *POINTS)), (lie, place)


def test_a_forger_passes_at_two_points_that_it_has_guessed_and_at_no_other():
    """w (w - v) is not zero, so what decides is of degree 2 at most and not zero: 2 of p - 1 points, below 2^-62."""
    for lie in LIES.values():
        assert 2 / (MODULUS - 1) < 2**-62, lie
        guessed, drawn = (POINTS[0], POINTS[1]), int.from_bytes(os.urandom(7), "little")
        constant = lie * (lie - WEIGHT) % MODULUS
        # What is left is constant (1 - X / t_1) (1 - X / t_2): h_0 and h_1 follow.
        first, second = (pow(point, -1, MODULUS) for point in guessed)
        forged = words(
            drawn, drawn * (2 * lie - WEIGHT) + constant * (first + second), drawn * drawn - constant * first * second
        )
        proof = np.concatenate([forged, vote_proof.prove_votes(words(0), (WEIGHT,), os.urandom)])
        accepted = [point for point in POINTS if passes(words(lie, 0), proof, point)]
        assert accepted == list(guessed), lie


def test_a_vote_and_its_proof_belong_together(monkeypatch):
    """One number changed, and it fails at all points; zero, where a vote would show, is drawn again."""
    votes = words(WEIGHT, 0)
    proof = vote_proof.prove_votes(votes, WEIGHTS, os.urandom)
    message = np.concatenate([votes, proof])
    for place in range(message.size):
        changed = message.copy()
        changed[place] = (int(changed[place]) + 1) % MODULUS
        assert not any(passes(changed[:N_VOTES], changed[N_VOTES:], point) for point in POINTS)
    assert POINTS[3] == vote_proof.vote_point(VERIFY_KEY, (3).to_bytes(32, "big"))
    assert len(set(POINTS)) == len(POINTS)
    assert vote_proof.vote_point(bytes(32), bytes(32)) != vote_proof.vote_point(VERIFY_KEY, bytes(32))
    drawn = iter([0, 0, 5])
    monkeypatch.setattr("foltr.core.secure.vote_proof.words_below", lambda *_: words(next(drawn)))
    assert vote_proof.vote_point(VERIFY_KEY, bytes(32)) == 5


def test_what_verifiers_learn_is_as_likely_of_either_vote():
    """Of each answer there is just one random number that gives it, of either vote: so it tells nothing, exactly."""
    for seen in [0, 1, WEIGHT, MODULUS - 1, 2**63]:
        for point in POINTS[:20]:
            answers = []
            for vote in (0, WEIGHT):
                drawn = (seen - vote) * pow(point, -1, MODULUS) % MODULUS
                votes = words(vote, 0)
                proof = vote_proof.prove_votes(votes, WEIGHTS, entropy_of(drawn, 17))
                answers.append(vote_proof.answer_votes(votes, proof, point).tolist())
                assert answers[-1][:2] == [seen, seen * (seen - WEIGHT) % MODULUS], seen
            assert answers[0] == answers[1], seen


def test_answers_of_drawn_proofs_are_uniform():
    """Each f(t) by itself, both together, and beside what follows from them there is nothing."""
    for votes in [(0, 0), (WEIGHT, 0), (0, WEIGHT)]:
        rng, n = np.random.default_rng(19), 3000
        proofs = (vote_proof.prove_votes(words(*votes), WEIGHTS, rng.bytes) for _ in range(n))
        answers = np.array([vote_proof.answer_votes(words(*votes), proof, POINTS[0]) for proof in proofs])
        for i in range(N_VOTES):
            pairs = zip(answers[:, 2 * i].tolist(), answers[:, 2 * i + 1].tolist(), strict=True)
            assert all(value * (value - WEIGHT) % MODULUS == follows for value, follows in pairs), votes
        bins = (answers[:, ::2] >> np.uint64(60)).astype(np.int64)
        together = 8 * (bins[:, 0] // 2) + bins[:, 1] // 2
        counted = [
            *(np.bincount(bins[:, i], minlength=16) for i in range(N_VOTES)),
            np.bincount(together, minlength=64),
        ]
        for counts in counted:
            expected = n / counts.size
            chi_square = float(((counts - expected) ** 2 / expected).sum())
            assert chi_square < counts.size - 1 + 5 * math.sqrt(2 * (counts.size - 1)), votes
