"""A helper opens one set of each cohort, large enough, in rounds that only rise; and says the same when asked again."""

from itertools import combinations

import numpy as np
import pytest
from support.secure_cohorts import SecureFederation

from foltr.core.protocol.codec import encode
from foltr.core.protocol.fields import MAX_MESSAGE_BYTES
from foltr.core.protocol.helper_messages import PART_WORDS, HelperRefusalCode
from foltr.core.secure.coins import seeded_entropy
from foltr.core.secure.field import read_words, to_signed, write_words
from foltr.core.secure.masks import open_masks, release_sum
from foltr.core.secure.noise import draw_gaussian
from foltr.helper.checking import check_page, read_page
from foltr.helper.noise_pool import draw_noise
from foltr.helper.opening import Commit, CommittedSet, OpenSet, answer_parts, decide_open
from foltr.helper.terms import Refusal, Terms, VoidEnrolments

ENTROPY = b"\x01" * 32


class Helper:
    """A helper in memory, whose noise follows from a seed: it checks once, and opens."""

    def __init__(self, federation, place, sent):
        pair = federation.helpers[place]
        self.federation = federation
        self.terms = Terms(federation.policy, pair.name, place, pair.sealing_key)
        request = federation.check(sent, helper=pair.name)
        key, void = federation.operator.public, VoidEnrolments(None)
        page = check_page(request, read_page(request), self.terms, key, void, {})
        self.good = {ticket.position: ticket for ticket in page.good}
        self.hashes = {position: ticket.hash for position, ticket in self.good.items()}

    def decide(self, request, committed=None, newest=None, terms=None):
        """Commit to a set that can be, and with the commitments of all others decide again."""
        decided = decide_open(request, committed, newest, terms or self.terms, self.hashes)
        if isinstance(decided, Commit):
            committed, request = CommittedSet(request.policy_hash, request.digest), self.federation.agreed(request)
            return decide_open(request, committed, newest, terms or self.terms, self.hashes)
        return decided

    def sum(self, positions):
        seeds = [self.terms.sealing_key.open(self.good[i].seal, self.good[i].info) for i in positions]
        values = write_words(open_masks(seeds, draw_noise(self.federation.policy.policy, seeded_entropy(ENTROPY))))
        return read_words(values, self.federation.dim)


@pytest.fixture(scope="module")
def federation():
    return SecureFederation()


@pytest.fixture(scope="module")
def sent(federation):
    return [federation.contribute(client) for client in federation.clients(6)]


@pytest.fixture(scope="module")
def north(federation, sent):
    return Helper(federation, 0, sent)


def refused(decision):
    assert isinstance(decision, Refusal), decision
    return decision.code


def test_a_set_that_was_checked_is_opened(federation, sent, north):
    """All of it, or any of its parts that is large enough; but for an unknown policy or a destroyed key."""
    assert north.decide(federation.open(sent)) == OpenSet(north.terms)
    assert north.decide(federation.open(sent, [1, 3, 5])) == OpenSet(north.terms)
    gone = Refusal(HelperRefusalCode.KEY_DESTROYED, "")
    assert north.decide(federation.open(sent), terms=gone) is gone


def test_a_set_is_committed_to_before_it_is_opened(federation, sent, north):
    """Whatever commitments of others come with the first question; and it is opened with those of all others only."""
    request = federation.open(sent)
    agreed = federation.agreed(request)
    for first in (request, agreed):
        assert isinstance(decide_open(first, None, None, north.terms, north.hashes), Commit)
    committed = CommittedSet(request.policy_hash, request.digest)
    assert decide_open(request, committed, 4, north.terms, north.hashes) is committed
    other = federation.agreed(federation.open(sent, [0, 1, 2]))
    wrong = request.model_copy(update={"commitments": other.commitments})
    refusal = decide_open(wrong, committed, 4, north.terms, north.hashes)
    assert refused(refusal) is HelperRefusalCode.NOT_COMMITTED
    assert "south" in refusal.detail


def test_a_second_set_of_a_cohort_is_refused_for_ever(federation, sent, north):
    """Larger, smaller or another one: with two sums somebody would have the difference."""
    request = federation.open(sent, [0, 1, 2])
    opened = CommittedSet(request.policy_hash, request.digest, bytes(24))
    for positions in ([0, 1, 2, 3], [1, 2, 3], [3, 4, 5], [0, 1]):
        code = refused(north.decide(federation.open(sent, positions), opened, newest=4))
        assert code is HelperRefusalCode.ANSWERED_OTHERWISE
    # The same question has the same bytes, which were stored: nothing is drawn again, whatever the policy is now.
    assert north.decide(request, opened, newest=4) is opened
    assert decide_open(request, opened, 4, Refusal(HelperRefusalCode.KEY_DESTROYED, ""), {}) is opened
    other = federation.open(sent, [0, 1, 2], policy_hash=bytes(32))
    assert refused(north.decide(other, opened, newest=4)) is HelperRefusalCode.ANSWERED_OTHERWISE


def test_rounds_only_go_upwards(federation, sent, north):
    """Once a later round was opened, no cohort of an earlier one is; other cohorts of the same round are."""
    for newest in (None, 3, 4):
        assert isinstance(north.decide(federation.open(sent), newest=newest), OpenSet)
    assert refused(north.decide(federation.open(sent), newest=5)) is HelperRefusalCode.ROUND_OVER


def test_fewer_than_n_min_and_more_than_n_max_are_refused():
    """The sum of more might wrap around."""
    federation = SecureFederation(n_max=4)
    sent = [federation.contribute(client) for client in federation.clients(5)]
    north = Helper(federation, 0, sent)
    found = [north.decide(federation.open(sent, range(n_tickets))) for n_tickets in (2, 3, 4, 5)]
    assert [isinstance(each, OpenSet) for each in found] == [False, True, True, False]
    assert (refused(found[0]), refused(found[3])) == (HelperRefusalCode.TOO_FEW, HelperRefusalCode.TOO_MANY)


def test_a_set_that_was_not_checked_is_unknown(federation, sent, north):
    """A position nobody showed, a ticket that was taken out, or another ticket at a position."""
    more = [*sent, federation.contribute(federation.client("late"))]
    assert refused(north.decide(federation.open(more))) is HelperRefusalCode.UNKNOWN_SET
    bad = federation.contribute(federation.client("bad"), seals=[bytes(80)] * 2)
    with_bad = Helper(federation, 0, [*sent[:4], bad])
    assert refused(with_bad.decide(federation.open(sent[:5]))) is HelperRefusalCode.UNKNOWN_SET
    assert isinstance(with_bad.decide(federation.open(sent[:5], [0, 1, 2, 3])), OpenSet)
    swapped = [sent[1], sent[0], *sent[2:]]
    assert refused(north.decide(federation.open(swapped))) is HelperRefusalCode.UNKNOWN_SET
    assert refused(north.decide(federation.open(sent, digest=bytes(32)))) is HelperRefusalCode.UNKNOWN_SET


@pytest.mark.parametrize("n_helpers", [2, 3])
def test_the_released_sum_is_exact(n_helpers):
    """What the helpers answer takes the masks from the sum of any set, and leaves their noise in it."""
    federation = SecureFederation(n_helpers)
    sent = [federation.contribute(client) for client in federation.clients(6)]
    helpers = [Helper(federation, place, sent) for place in range(n_helpers)]
    noise = draw_gaussian(3, 1_000_000, seeded_entropy(ENTROPY))
    for size in range(3, 7):
        for kept in combinations(range(6), size):
            released = release_sum([sent[i].masked for i in kept], [helper.sum(kept) for helper in helpers], 3)
            exact = sum(sent[i].vector for i in kept)
            assert (to_signed(released) - exact - n_helpers * noise == 0).all()


def test_different_sets_to_two_helpers_give_nothing():
    """No sum of any of the masked vectors with these two answers is short: neither an input nor a smaller sum."""
    federation = SecureFederation(dim=2)
    sent = [federation.contribute(client) for client in federation.clients(5)]
    first, second = (Helper(federation, place, sent) for place in range(2))
    sets = [kept for size in range(3, 6) for kept in combinations(range(5), size)]
    subsets = [kept for size in range(6) for kept in combinations(range(5), size)]
    for one in sets:
        for other in sets:
            answers = [first.sum(one), second.sum(other)]
            for kept in subsets:
                left = np.abs(to_signed(release_sum([sent[i].masked for i in kept], answers, 2)))
                is_short = bool((left < 2**40).all())
                assert is_short == (one == other == kept)


@pytest.mark.parametrize(("dim", "n_parts"), [(1, 1), (PART_WORDS, 1), (PART_WORDS + 1, 2), (3 * PART_WORDS, 3)])
def test_a_long_answer_comes_in_parts(federation, sent, dim, n_parts):
    """Each fits a message, and one after the other they are the answer."""
    request = federation.open(sent)
    values = np.arange(dim, dtype="<u8").tobytes()
    parts = answer_parts(request, values)
    assert len(parts) == n_parts
    assert b"".join(part.values for part in parts) == values
    assert [part.start for part in parts] == [i * PART_WORDS for i in range(n_parts)]
    assert {(part.dim, part.digest) for part in parts} == {(dim, request.digest)}
    assert all(len(encode(part)) < MAX_MESSAGE_BYTES for part in parts)
