"""A message passes where its norm and its votes do; without votes it is the norm proof's, to the byte."""

import itertools
import os

import numpy as np

from foltr.core.secure.accounting import N_VOTES
from foltr.core.secure.field import add, from_signed, subtract
from foltr.core.secure.masks import expand_seed, mask_words
from foltr.core.secure.message_proof import MessageShape, answer_message, is_message_proof_valid, prove_message
from foltr.core.secure.norm_proof import answer_share, challenge_for, proof_shape, prove_norm

VERIFY_KEY, TICKET = bytes(range(32)), bytes(32)
NORM = proof_shape(6, 16)
SHAPE = MessageShape(NORM, 4)
ENCODED = np.array([1, -2, 7, 3, 1, 5])


def message(encoded=ENCODED, votes=(4, 0), shape=SHAPE):
    summed = np.array([*encoded, *votes], np.int64)
    return np.concatenate([from_signed(summed), prove_message(summed, shape, os.urandom)])


def is_kept(words, shape=SHAPE):
    return is_message_proof_valid(answer_message(words, VERIFY_KEY, TICKET, shape), shape)


def test_without_votes_it_is_the_norm_proof():
    """The same bytes, asked and answered the same; two votes are eight numbers more, four more of each verifier."""
    plain = MessageShape(NORM)
    first, second = (np.random.default_rng(5).bytes for _ in range(2))
    proof = prove_message(ENCODED, plain, first)
    np.testing.assert_array_equal(proof, prove_norm(ENCODED, NORM, second))
    words = np.concatenate([from_signed(ENCODED), proof])
    expected = answer_share(words, challenge_for(VERIFY_KEY, TICKET, NORM), NORM)
    np.testing.assert_array_equal(answer_message(words, VERIFY_KEY, TICKET, plain), expected)
    assert is_kept(words, plain)
    assert (plain.n_summed, plain.n_proof) == (6, NORM.n_proof)
    assert (plain.n_values, plain.n_answer) == (NORM.n_values, NORM.n_answer)
    assert (SHAPE.n_summed, SHAPE.n_proof) == (6 + N_VOTES, NORM.n_proof + 6)
    assert (SHAPE.n_values, SHAPE.n_answer) == (NORM.n_values + 8, NORM.n_answer + 4)
    assert message().size == SHAPE.n_values


def test_each_number_of_an_evaluation_is_its_weight_or_nothing():
    """Behind votes and without them; whoever makes more of one, or a part of one, does not pass."""
    for weights, votes in [((4, 2), (4, 0)), ((0, 2), ())]:
        shape = MessageShape(NORM, *weights)
        n_numbers = len(shape.weights)
        assert (shape.n_summed, shape.n_proof) == (6 + n_numbers, NORM.n_proof + 3 * n_numbers)
        assert is_kept(message(votes=(*votes, 2, 0, 2), shape=shape), shape)
        for lie, place in itertools.product([1, 4, -2], range(3)):
            earned = [2, 0, 2]
            earned[place] = lie
            assert not is_kept(message(votes=(*votes, *earned), shape=shape), shape)


def test_an_honest_message_passes_behind_masks():
    """Each verifier answers about its share alone, and the answers add up."""
    for votes in [(0, 0), (4, 0), (0, 4), (4, 4)]:
        seeds = [os.urandom(32) for _ in range(2)]
        sent = mask_words(message(votes=votes), seeds)
        shares = [sent, *(subtract(np.zeros_like(sent), expand_seed(seed, sent.size)) for seed in seeds)]
        total = np.zeros(SHAPE.n_answer, np.uint64)
        for share in shares:
            total = add(total, answer_message(share, VERIFY_KEY, TICKET, SHAPE))
        assert is_message_proof_valid(total, SHAPE), votes


def test_a_message_whose_votes_are_none_or_that_is_too_long_fails():
    """However good the other half is; one number changed by more than any projection is long, and it fails."""
    for votes in [(5, 0), (0, -4), (8, 0), (1, 1), (0, 2)]:
        assert not is_kept(message(votes=votes)), votes
    words = message()
    words[0] = 17
    assert not is_kept(words)
    honest = message()
    for place in range(honest.size):
        changed = honest.copy()
        changed[place] = (int(changed[place]) + 2**40) % (2**64 - 2**32 + 1)
        assert not is_kept(changed), place
