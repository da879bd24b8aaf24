"""A voter over threads and deaths: what is known is what the lists on the disk say, each once."""

import contextlib
import math
import shutil

import numpy as np
import pytest
from support.broker_links import NotedLink
from support.deaths import dying_at
from support.device_stores import disk_is_full
from support.federator_by_hand import N_FEATURES, TOPICS, adding_learner, announced, round_on

from foltr.broker.link import InboundMessage
from foltr.core.errors import DataError
from foltr.core.failpoints import Failpoint
from foltr.core.learning.agreement import preferences
from foltr.core.learning.comparison import COMPARISON_DECAY, Comparison
from foltr.core.protocol.codec import encode
from foltr.core.protocol.explorations import SamplingExploration
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.trainings import PdgdTraining
from foltr.edge_client.agent import Agent
from foltr.edge_client.options import DeviceOptions, Experiment, Privacy
from foltr.edge_client.store.store import DeviceStore
from foltr.edge_client.votes import voter

OPERATOR, FEDERATOR = SigningKey(bytes([3]) * 32), SigningKey(bytes([4]) * 32)
WEIGHTS = np.linspace(-1.0, 1.0, N_FEATURES, dtype=np.float32)
TRAINING = PdgdTraining(min_interactions=10_000, max_interactions=10_000, exploration=SamplingExploration())


def opened(path):
    return DeviceStore(path, client_id="device-7", federation="mail", max_interactions=1000)


def n_in_effect(n_lists):
    """What a comparison says of so many lists."""
    return (1 - COMPARISON_DECAY**n_lists) / (1 - COMPARISON_DECAY)


def click(ranker, n, seed=1):
    """Click n times; return how many of the lists prefer a document to another, as not every way of drawing one has."""
    rng, n_preferring, clicked = np.random.default_rng(seed), 0, np.array([False, True, False])
    for _ in range(n):
        serp = ranker.rank(rng.random((3, N_FEATURES), np.float32), 3)
        ranker.record_clicks(serp, [1])
        n_preferring += preferences(serp.reversals, clicked).total > 0.0
    return n_preferring


class PlayedDevice:
    """An agent on a store, to which a federator says what it is told to say."""

    def __init__(self, store, **privacy):
        experiment = Experiment(seed=1, learner=adding_learner)
        options = DeviceOptions("mail", "device-7", privacy=Privacy(**privacy), experiment=experiment)
        self.agent = Agent(NotedLink(), store, options)
        self.record_clicks = self.agent.record_clicks
        self.rank = self.agent.rank

    def hear(self, topic, message):
        self.agent.receive(InboundMessage(topic, encode(message, topic), retained=True))

    def hear_anchor(self, version, weights=-WEIGHTS):
        self.hear(TOPICS.anchor, announced(version, weights))

    def hear_round(self, newest):
        self.hear(TOPICS.model, newest)
        self.hear(TOPICS.round, round_on(1, newest.version, newest.weights, TRAINING))


@pytest.fixture
def store(path):
    with contextlib.closing(opened(path)) as one:
        yield one


@pytest.fixture
def device(store):
    one = PlayedDevice(store)
    one.hear_anchor(3)
    one.hear_round(announced(5, WEIGHTS))
    return one


def test_a_device_without_votes_takes_no_anchor(store):
    """If it hears one all the same."""
    silent = PlayedDevice(store, votes=False)
    silent.hear_anchor(4)
    silent.hear_round(announced(6, WEIGHTS))
    click(silent, 3)
    assert (store.anchor(), silent.agent.voter.comparison) == (None, Comparison())


def test_what_cannot_be_stored_is_not_known(device, store, monkeypatch):
    """The list is recorded again, and compared once."""
    assert click(device, 3) == 3
    known = device.agent.voter.comparison
    serp = device.rank(np.random.default_rng(9).random((3, N_FEATURES), np.float32), 3)
    with monkeypatch.context() as full_disk:
        full_disk.setattr(voter, "write_comparison", disk_is_full)
        with pytest.raises(DataError, match="disk is full"):
            device.record_clicks(serp, [1])
    assert device.agent.voter.comparison == known
    assert store.n_waiting() == 3
    for _ in range(2):
        device.record_clicks(serp, [1])
    assert device.agent.voter.comparison.n_lists == pytest.approx(n_in_effect(4))
    assert store.comparison(device.agent.voter.anchor.key) == device.agent.voter.comparison


def test_a_list_that_is_compared_while_another_anchor_comes_says_nothing_of_that(device, store):
    """Whichever is written last: what is on the disk of the old one is not taken for the new one's."""
    serp = device.rank(np.random.default_rng(9).random((3, N_FEATURES), np.float32), 3)
    compared, write = device.agent.voter.prepare_update(serp, np.array([False, True, False]))
    device.hear_anchor(4)
    with store.transaction() as cursor:
        write(cursor)
    device.agent.voter.apply_update(compared)
    assert device.agent.voter.comparison == Comparison()
    assert store.comparison(device.agent.voter.anchor.key) == Comparison()


def test_a_list_is_compared_once_by_the_first_clicks_that_say_something(device):
    """None, or all documents, prefer nothing; more clicks are learned, and say nothing more of the two models."""
    serp = device.rank(np.random.default_rng(9).random((3, N_FEATURES), np.float32), 3)
    device.record_clicks(device.rank(np.random.default_rng(9).random((3, N_FEATURES), np.float32), 3), [0, 1, 2])
    device.record_clicks(serp, [])
    assert device.agent.voter.comparison == Comparison()
    device.record_clicks(serp, [1])
    known = device.agent.voter.comparison
    assert known.n_lists == 1.0
    device.record_clicks(serp.serp_id, [0])
    assert device.agent.voter.comparison == known


def test_a_model_of_no_numbers_is_compared_like_any(device):
    """It leads nobody, whatever was clicked; nothing breaks by it."""
    device.hear_round(announced(6, np.full(N_FEATURES, np.nan)))
    n_preferring = click(device, 30)
    known = device.agent.voter.comparison
    assert known.n_lists == pytest.approx(n_in_effect(n_preferring))
    assert math.isfinite(known.mean)


@pytest.mark.parametrize("place", [Failpoint.IN_INTERACTION_TRANSACTION, Failpoint.INTERACTION_STORED])
def test_a_crash_loses_no_list_and_compares_none_twice(device, path, tmp_path, place):
    """What is known is what the lists on the disk say, whichever side of the commit the device died on."""
    assert click(device, 4) == 4
    with dying_at(place, "edge_client.store.store"):
        click(device, 1, seed=2)
    for name in ("", "-wal"):
        shutil.copy(f"{path}{name}", f"{tmp_path / 'after'}{name}")
    with contextlib.closing(opened(tmp_path / "after")) as after:
        n_lists = after.n_waiting()
        assert n_lists == (5 if place is Failpoint.INTERACTION_STORED else 4)
        assert after.comparison(device.agent.voter.anchor.key).n_lists == pytest.approx(n_in_effect(n_lists))
