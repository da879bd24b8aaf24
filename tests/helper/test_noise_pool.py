"""Noise is drawn by the clock and not when somebody asks; none is ever in two sums, and no sum has two."""

import os

import numpy as np
import pytest
from support.helper_desks import TOPICS, Running, contributions
from support.secure_cohorts import FEDERATION, SecureFederation

from foltr.core.failpoints import Failpoint
from foltr.core.protocol.helper_messages import CheckAnswer, OpenAnswer
from foltr.core.protocol.policies import GammaNoise, GaussianNoise
from foltr.core.secure.coins import seeded_entropy
from foltr.core.secure.noise import draw_laplace
from foltr.helper import store as store_module
from foltr.helper.noise_pool import MOST_BYTES, NoisePool, draw_noise, pool_size
from foltr.helper.request_handler import RequestHandler
from foltr.helper.store import HelperStore

ENTROPY = b"\x01" * 32


class NotedNoise(NoisePool):
    """Notes what is taken of it."""

    def __init__(self, entropy):
        super().__init__(entropy)
        self.taken = []

    def take(self, policy):
        noise = super().take(policy)
        if noise is not None:
            self.taken.append(noise)
        return noise


class Helper(Running):
    """A helper of whom the clock ticks only when a test says so, and what it draws is counted."""

    def start(self, federation):
        self.federation, self.n_drawn = federation, 0
        self.credentials = federation.credentials(self.pair)
        self.noise = NotedNoise(self.draw)
        self.desk = RequestHandler(self.credentials, self.store, self.noise)
        self.hear(TOPICS.policy, federation.policy.signed)

    def draw(self, size):
        self.n_drawn += 1
        return os.urandom(size)

    def is_killed(self):
        """Only what is in the file is left; another one begins on it."""
        self.store.close()
        self.store = HelperStore(self.path, f"{FEDERATION}/{self.pair.name}", exclusive=True)
        self.start(self.federation)

    def tick(self):
        """Not before each question."""

    def ticks(self, n=2):
        for _ in range(n):
            self.noise.tick()

    def check(self, sent, **changed):
        (answer,) = self.ask(self.federation, self.federation.check(sent, **changed))
        assert isinstance(answer, CheckAnswer)

    def open(self, sent, **changed):
        return self.ask(self.federation, self.federation.open(sent, **changed))


@pytest.fixture
def north(tmp_path):
    """Knows the first policy, under which noise was drawn by nobody yet."""
    helper = Helper(tmp_path, "north")
    federation = SecureFederation(noise=GaussianNoise(variance=10**12))
    federation.helpers[0] = helper.pair
    federation.policy = federation.issue(noise=GaussianNoise(variance=10**12))
    helper.start(federation)
    yield helper
    helper.store.close()


def test_a_sum_is_opened_without_a_draw(north):
    """Nor is anything drawn for what is refused, or asked again."""
    sent = contributions(north.federation)
    north.ticks()
    n_drawn = north.n_drawn
    north.open(sent)  # it was not checked, and so takes no noise of others
    north.check(sent)
    (answer,) = north.open(sent)
    assert isinstance(answer, OpenAnswer)
    assert north.open(sent) == [answer]
    assert north.n_drawn == n_drawn > 0
    assert len(north.noise.taken) == 1


def test_where_there_is_no_noise_there_is_no_answer(north):
    """Until the second tick: what was drawn by the first is not to be had as soon as it was drawn."""
    sent = contributions(north.federation)
    north.check(sent)
    assert north.open(sent) == []
    north.ticks(1)
    assert north.open(sent) == []
    north.ticks(1)
    (answer,) = north.open(sent)
    assert isinstance(answer, OpenAnswer)


def test_no_two_sums_have_one_noise(north):
    """Over rounds and restarts; after one nothing is left of what was drawn before."""
    taken, policy = [], north.federation.policy
    for _ in range(3):
        north.ticks()
        taken += [north.noise.take(policy) for _ in range(pool_size(policy.policy))]
        north.is_killed()
        assert north.noise.take(policy) is None
    assert len({noise.tobytes() for noise in taken}) == len(taken) == 24


@pytest.mark.parametrize("place", [Failpoint.IN_OPENING_TRANSACTION, Failpoint.SUM_OPENED])
def test_a_helper_that_is_killed_while_it_opens_says_one_thing(north, monkeypatch, place):
    """Before the sum is stored nobody has heard of its noise, and nobody will; after it, the sum is what is said."""

    def dies(at):
        if at is place:
            raise ProcessLookupError

    sent = contributions(north.federation)
    north.ticks()
    north.check(sent)
    monkeypatch.setattr(store_module, "failpoint", dies)
    with pytest.raises(ProcessLookupError):
        north.open(sent)
    monkeypatch.undo()
    (lost,) = north.noise.taken
    north.is_killed()
    stored = north.store.committed_set(4, 0).values
    assert (stored is None) == (place is Failpoint.IN_OPENING_TRANSACTION)
    north.ticks()
    (answer,) = north.open(sent)
    assert north.open(sent) == [answer]
    if stored is not None:
        assert (answer.values, north.noise.taken) == (stored, [])
    else:
        assert [(noise == lost).all() for noise in north.noise.taken] == [False]


def test_each_policy_has_its_own(north):
    """A round under the former one may still be opened; once its key is destroyed nothing is drawn for it any more."""
    federation, former = north.federation, north.federation.policy
    north.make_key()
    federation.helpers[0] = north.pair
    newer = federation.issue(version=2, noise=GaussianNoise(variance=10**6))
    north.hear(TOPICS.policy, newer.signed)
    north.ticks()
    assert np.abs(north.noise.take(former)).max() > 50_000 > np.abs(north.noise.take(newer)).max()
    federation.policy = newer
    north.check(contributions(federation))  # which destroys the older key
    assert north.noise.take(former) is None
    assert north.noise.take(newer) is not None


@pytest.mark.parametrize(
    ("noise", "expected"),
    [
        (GammaNoise(scale=1000), draw_laplace(3, 1000, seeded_entropy(ENTROPY))),
        (GammaNoise(scale=1000, n_shares=3), np.zeros(3, np.int64)),
    ],
)
def test_the_noise_is_the_policys(noise, expected):
    """Discrete Laplace noise by helpers, and none where the clients add it, for which nothing has to be drawn."""
    policy = SecureFederation(noise=noise).policy
    ahead = NoisePool(seeded_entropy(ENTROPY))
    ahead.serve([policy])
    if not policy.policy.noise_by_clients:
        ahead.tick()
        ahead.release()
    assert (ahead.take(policy) == expected).all()


def test_there_is_enough_for_some_rounds_and_no_more_than_fits():
    """Of 20 sums each; of long vectors for one round at least."""
    policy = SecureFederation(cohorts=20).policy.policy
    assert (draw_noise(policy) != draw_noise(policy)).any()  # from the system's randomness
    assert pool_size(policy) == 160
    assert pool_size(policy.model_copy(update={"dim": MOST_BYTES // 8})) == 20
