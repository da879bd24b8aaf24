"""What a device's thread has loaded is what the device calls: a list and a click after it load nothing any more."""

import asyncio
import sys
import threading

import numpy as np
import pytest
from support.completed_process import completed
from support.federator_by_hand import N_FEATURES, Federator, announced, device
from support.waiting import PATIENCE_S, until

from foltr.core.numerics.compiled import COMPILED
from foltr.core.protocol.trainings import PdgdTraining
from foltr.edge_client.training import loaded_kernels

pytestmark = pytest.mark.skipif(not COMPILED, reason="numba is not installed or switched off")

# In a process of its own: in this one other tests have loaded what they call.
CODE = """
import gc, random, sys, time
from functools import partial
import numpy as np
from foltr.edge_client.store.store import UNNUMBERED, Interaction
from foltr.edge_client.participation import Participation
from foltr.edge_client.recording import store_list
from foltr.edge_client.serps import make_serp, read_candidates
from foltr.edge_client.store.recent_lists import RecentList
from foltr.edge_client.store.store import DeviceStore
from foltr.edge_client.training.loaded_kernels import are_loaded
from foltr.edge_client.training.trainer import Trainer
from foltr.edge_client.votes.voter import scores_of
from foltr.core.learning.gate import Source
from foltr.core.methods.registry import initial_weights, n_auxiliary
from foltr.core.numerics.compiled import _CompiledAtFirstCall
from foltr.core.protocol.announcements import ModelAnnouncement, RoundAnnouncement
from foltr.core.protocol.explorations import SamplingExploration, ShareExploration
from foltr.core.protocol.fields import model_hash, pack_vector, unpack_vector
from foltr.core.protocol.trainings import *

N = 16
KINDS = [
    (PdgdTraining(min_interactions=1), LinearRankerSpec(n_features=N)),
    (PdgdTraining(min_interactions=1, exploration=SamplingExploration()), NeuralRankerSpec(n_features=N, hidden=4)),
    (FedPerTraining(min_interactions=1, exploration=ShareExploration()), NeuralRankerSpec(n_features=N, hidden=4)),
    (EvolutionTraining(min_interactions=2), NeuralRankerSpec(n_features=N, hidden=4, activation="relu")),
    (FedIpsTraining(min_interactions=1), LinearRankerSpec(n_features=N)),
]

class Gate:
    def __init__(self, source):
        self.source = source
    def source_of_next(self, *, may_interleave):
        return self.source

def signatures():
    kernels = [one for one in gc.get_objects() if isinstance(one, _CompiledAtFirstCall)]
    used = [one for one in kernels if one._dispatcher is not None]
    return {(one.__name__, str(types)) for one in used for types in one._dispatcher.signatures}

for training, ranker in KINDS:
    weights = initial_weights(training, ranker, np.random.default_rng(0)) + np.float32(0.01)
    values = pack_vector(weights)
    model = ModelAnnouncement(
        federation="mail", version=0, ranker=ranker, n_auxiliary=n_auxiliary(training, ranker), weights=values
    )
    round_ = RoundAnnouncement(
        federation="mail", round=1, open=True, base_version=0, base_hash=model_hash(values), withdraws_below=0,
        opened_at=0.0, closes_at=1.0, training=training,
    )
    store = DeviceStore(":memory:", client_id="device-7", federation="mail", max_interactions=100)
    participation = Participation("device-7", None, random.Random(1))
    rng = np.random.default_rng(1)
    loaded = partial(are_loaded, gated=True)
    trainer = Trainer(
        store, participation, rng, learner=None, device_seed=1, propensities=None, are_loaded=loaded
    )
    participation.receive_model(model)
    participation.receive_round(round_, 0.0)
    trainer.catch_up()
    while trainer.is_loading:
        trainer.learn_when_loaded()
        time.sleep(0.01)
    before = signatures()
    assert before
    for source in Source:
        features = rng.random((20, N))
        gate = Gate(source)
        serp = make_serp(read_candidates(features, rng.random(20)), 10, trainer.working_model, rng, gate=gate)
        clicks = np.arange(10) == 3
        interaction = store_list(store, RecentList(serp, None), clicks)
        trainer.learn_new(interaction, in_order=True)
        scores_of(ranker, unpack_vector(values)[: ranker.n_weights], serp.features)
    trainer.start_over()
    trainer.catch_up()
    assert trainer.body() is not None
    assert signatures() == before, (training.kind, signatures() - before)
"""


def test_nothing_is_loaded_after_the_thread_has_ended() -> None:
    """Lists of each source, a click on each, a comparison, learning again and an update, by five methods."""
    done = completed([sys.executable, "-c", CODE])
    assert done.returncode == 0, done.stderr


async def test_neither_a_list_nor_a_click_waits_for_kernels(mqtt_broker, monkeypatch):
    """They are made and stored while the thread that loads kernels stands still; a round is there once it has ended."""
    goes_on, asked, use = threading.Event(), threading.Event(), loaded_kernels._use  # noqa: SLF001

    def use_later(*arguments):
        asked.set()
        assert goes_on.wait(PATIENCE_S)
        yield from use(*arguments)

    monkeypatch.setattr("foltr.edge_client.components.are_loaded", loaded_kernels.are_loaded)
    monkeypatch.setattr(loaded_kernels, "_use", use_later)
    for name in ("_begun", "_loaded"):
        monkeypatch.setattr(loaded_kernels, name, set())
    training = PdgdTraining(min_interactions=1000, max_interactions=1000)
    async with Federator(mqtt_broker) as federator, device(mqtt_broker, learner=None) as client:
        await federator.announce(1, newest=announced(3, np.linspace(0.0, 1.0, N_FEATURES)), training=training)
        waits = asyncio.create_task(client.next_round(timeout_s=PATIENCE_S))
        await until(asked.is_set)
        before = client.weights.tobytes()
        for _ in range(3):
            serp = client.rank(np.random.default_rng(1).random((120, N_FEATURES)), exploration="sampling")
            assert serp.model_version == 3
            client.record_clicks(serp, [1, 4])
        assert client.n_waiting == 3
        await asyncio.sleep(0.05)
        assert (waits.done(), client.weights.tobytes()) == (False, before)
        goes_on.set()
        await waits
        assert client.weights.tobytes() != before
