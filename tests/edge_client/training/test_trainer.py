"""The trainer: what waits is learned in order, and each interaction enters the local state once."""

import random

import numpy as np
import pytest
from structlog.testing import capture_logs
from support.federator_by_hand import model, round_on
from support.sampled_lists import even_reversals

import foltr.edge_client.training.trainer
from foltr.core.numerics.compiled import COMPILED, calls_machine_code
from foltr.core.protocol.fields import pack_vector, unpack_vector
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.trainings import EvolutionTraining, FedPerTraining, PdgdTraining, PersonalTraining
from foltr.core.protocol.updates import DenseDelta, EvolutionPair
from foltr.edge_client.participation import Participation
from foltr.edge_client.store.bounds import PendingUpdate
from foltr.edge_client.store.store import UNNUMBERED, DeviceStore, Interaction
from foltr.edge_client.training.trainer import Trainer
from foltr.edge_client.training.working_model import unmark_state

NIGHTLY = pytest.mark.nightly
N = 48
PERSONAL = PersonalTraining(min_interactions=2, max_interactions=3, learning_rate=1.0)
EVOLUTION = EvolutionTraining(min_interactions=2, max_interactions=4, truth_probability=1.0)


class CountingDevice:
    """A method whose local state is how often it has learned each interaction, told apart by the feature that is 1."""

    def __init__(self, local_state, learning_rate):
        self._counts = np.zeros(N) if local_state is None else np.frombuffer(local_state, "<f8")
        self._learned = np.zeros(N)
        self._learning_rate = learning_rate

    def learn(self, interaction, rng):  # noqa: ARG002
        self._counts = self._counts + interaction.features[0]
        self._learned = self._learned + self._learning_rate * interaction.features[0]

    def body(self, rng):  # noqa: ARG002
        return DenseDelta(dim=N, values=pack_vector(self._learned))

    def local_state(self):
        return self._counts.tobytes()


@pytest.fixture
def counting(monkeypatch):
    method = foltr.edge_client.training.trainer.device_for

    def device_for(model, training, context):
        if isinstance(training, PersonalTraining):
            return CountingDevice(context.local_state, training.learning_rate)
        return method(model, training, context)

    monkeypatch.setattr("foltr.edge_client.training.trainer.device_for", device_for)


def announced(number, training, base):
    return round_on(number, base, pack_vector([0.0] * N), training)


class Device:
    """What `EdgeClient` does with its trainer, without a session: the store is all that survives `restart`."""

    def __init__(self, path, training=PERSONAL, are_loaded=lambda _model: True):
        self.path = path
        self.training = training
        self.are_loaded = are_loaded
        self.n_seen = 0
        self.n_updates = 0
        self.start()
        self.announce(1, 0)

    def start(self):
        self.store = DeviceStore(self.path, client_id="device-7", federation="mail", max_interactions=1_000)
        if self.store.watermark() is None:
            self.store.settle(0)
        self.participation = Participation("device-7", self.store.pending_update(), random.Random(1))  # noqa: S311
        self.trainer = Trainer(
            self.store,
            self.participation,
            np.random.default_rng(1),
            learner=None,
            device_seed=self.store.device_seed(),
            propensities=None,
            are_loaded=self.are_loaded,
        )

    def restart(self):
        round_, newest = self.participation.round, self.participation.model
        self.store.close()
        self.start()
        # What is retained at the broker comes again.
        self.participation.receive_model(newest)
        self.trainer.catch_up()
        self.participation.receive_round(round_, 0.0)
        self.trainer.catch_up()
        self.contribute()

    def announce(self, number, base):
        self.participation.receive_model(model(base, N))
        self.trainer.catch_up()
        self.contribute()
        self.participation.receive_round(announced(number, self.training, base), 0.0)
        self.trainer.catch_up()
        self.contribute()

    def see(self, n=1, variant=0, base_version=None, clicked=0):
        for _ in range(n):
            features = np.zeros((3, N), np.float32)
            features[:, self.n_seen] = 1.0
            self.n_seen += 1
            shown = np.arange(3, dtype=np.int64)
            interaction = self.store.add_interaction(
                f"serp-{self.n_seen}",
                Interaction(UNNUMBERED, features, shown, shown == clicked, variant, base_version, even_reversals(3)),
            )
            self.trainer.learn_new(interaction, in_order=True)
            self.contribute()

    def contribute(self):
        body = self.trainer.body() if self.participation.may_contribute() else None
        if body is None:
            return
        self.n_updates += 1
        learned, number = self.trainer.learned(), self.participation.round.round
        after, through = self.store.watermark(), learned.interaction_ids[-1]
        pending = PendingUpdate(f"{self.n_updates:032x}", number, after, through, b"bytes", learned.local_state)
        self.store.put_update(pending, learned.interaction_ids, spent=learned.spent_when_sent)
        self.participation.contribute(pending, 0.0)
        self.body = body

    def receipt(self, code):
        pending = self.participation.pending
        watermark = pending.through if code is ReceiptCode.ACCEPTED else self.store.watermark()
        self.settle(watermark, pending.update_id)

    def settle(self, watermark, answered=None):
        settlement = self.store.settle(watermark, answered)
        if settlement.counted or settlement.given_up:
            self.participation.end_pending(may_try_again=False)
        if settlement.taken_back:
            self.trainer.start_over()
        self.trainer.catch_up()
        self.contribute()

    def n_learned(self):
        """How often each interaction is in the local state of the working copy."""
        return self._counts(self.trainer.learned().local_state)

    def n_kept(self):
        kept = self.store.rows(
            "SELECT local_state FROM counted_updates WHERE through <= (SELECT watermark FROM bounds) "
            "ORDER BY through DESC LIMIT 1"
        )
        return self._counts(kept[0][0] if kept else None)

    def _counts(self, kept):
        state = unmark_state(kept, PERSONAL)
        return [0.0] * self.n_seen if state is None else np.frombuffer(state, "<f8")[: self.n_seen].tolist()


@pytest.fixture
def new_device(path):
    devices = []

    def make(*arguments, **options):
        devices.append(Device(path, *arguments, **options))
        return devices[-1]

    yield make
    for device in devices:
        device.store.close()


@pytest.fixture
def personal(new_device, counting):  # noqa: ARG001
    return new_device()


def test_a_method_without_local_state_leaves_that_of_another(personal):
    """An operator who changes the method and changes it back finds the devices as they were."""
    personal.see(2)
    personal.receipt(ReceiptCode.ACCEPTED)
    personal.training = PdgdTraining(min_interactions=1, max_interactions=1)
    personal.announce(2, 1)
    personal.see()
    personal.receipt(ReceiptCode.ACCEPTED)
    personal.training = PERSONAL
    personal.announce(3, 2)
    assert personal.n_learned() == [1, 1, 0]


@pytest.mark.parametrize("seed", [seed if seed < 8 else pytest.param(seed, marks=NIGHTLY) for seed in range(40)])
def test_whatever_happens_each_interaction_is_learned_once(personal, seed):
    """Any sequence of clicks, models, answers, settings and restarts; what counts is in the local state once."""
    rng = random.Random(seed)  # noqa: S311
    number = base = 1
    began = None  # where the newest update began that counts
    for _ in range(60):
        happening = rng.choice(["see", "see", "see", "model", "round", "receipt", "receipt", "settings", "restart"])
        happening = "taken back" if rng.random() < 0.05 else happening
        if happening == "see" and personal.n_seen < N:
            personal.see()
        elif happening == "model":
            base += 1
            personal.participation.receive_model(model(base, N))
            personal.trainer.catch_up()
            personal.contribute()
        elif happening == "round":
            number += 1
            personal.announce(number, base)
        elif happening == "receipt" and personal.participation.pending is not None:
            after, code = personal.participation.pending.after, rng.choice([ReceiptCode.ACCEPTED, ReceiptCode.LATE])
            began = after if code is ReceiptCode.ACCEPTED and after == personal.store.watermark() else None
            personal.receipt(code if after == personal.store.watermark() else ReceiptCode.OVERLAPS)
        elif happening == "taken back" and began is not None:
            personal.settle(began)
            began = None
        elif happening == "settings":
            limits = rng.choice([(2, 3), (2, 2), (1, 9)])
            personal.training = PERSONAL.model_copy(update=dict(zip(("min_interactions", "max_interactions"), limits)))  # noqa: B905
        elif happening == "restart":
            personal.restart()
        counts = [int(i < personal.store.watermark()) for i in range(personal.n_seen)]
        assert personal.n_kept() == counts
        assert all(n in (0, 1) for n in personal.n_learned())
        if personal.participation.pending is None:
            waiting = personal.store.waiting_interactions(personal.trainer.working_model.training.max_interactions)
            assert personal.trainer.working_model.interaction_ids == [item.id for item in waiting]
            assert sum(personal.n_learned()) == sum(counts) + len(waiting)


def test_new_settings_make_a_new_device(personal):
    """What waits is learned again by them, and only once."""
    personal.see()
    personal.training = PERSONAL.model_copy(update={"learning_rate": 0.5})
    personal.announce(1, 0)
    assert personal.n_learned() == [1]
    assert unpack_vector(personal.trainer.working_model.device.body(None).values)[0] == 0.5


def test_nothing_is_learned_before_a_round_is_known(new_device):
    """What waits then is learned once it is."""
    device = new_device()
    device.store.close()
    device.start()
    device.participation.receive_model(model(0, N))
    device.trainer.catch_up()
    device.see(2)
    assert device.trainer.working_model.interaction_ids == []
    assert device.trainer.body() is None
    device.participation.receive_round(announced(1, PERSONAL, 0), 0.0)
    device.trainer.catch_up()
    assert len(device.trainer.working_model.interaction_ids) == 2


def test_a_method_that_cannot_be_used_is_told_once(new_device):
    """The device goes on ranking, keeps its clicks, and learns from them when it is told something sensible."""
    with capture_logs() as logs:
        device = new_device(FedPerTraining(min_interactions=1, max_interactions=5))
        device.see(3)
        device.announce(2, 1)
        device.announce(3, 2)
    assert [line["event"] for line in logs if line["log_level"] == "error"] == ["method_unsupported"]
    scores, _ = device.trainer.working_model.ranker.scores(np.eye(3, N, dtype=np.float32), exploring=True)
    assert scores.tolist() == [0.0, 0.0, 0.0]
    assert (device.n_updates, device.store.n_waiting()) == (0, 3)
    device.training = PERSONAL
    device.announce(4, 3)
    assert device.n_updates == 1


def test_what_cannot_be_learned_makes_room_for_the_rest(new_device):
    """A backlog of lists with another number of features does not cost the device its round."""
    device = new_device()
    device.store.close()
    device.start()
    for i in range(7):
        device.store.add_interaction(
            f"old-{i}", Interaction(UNNUMBERED, np.ones((2, 3), np.float32), np.arange(2), np.ones(2, np.bool_))
        )
    device.see(2)
    with capture_logs() as logs:
        device.announce(1, 0)
    assert device.n_updates == 1
    assert device.store.n_waiting() == 0
    assert sum(line["n"] for line in logs if line["event"] == "interactions_discarded") == 7


def test_clicks_wait_as_long_as_the_application_has_other_features(new_device):
    """Those before them are learned; once the application's newest list fits, what does not is discarded."""
    device = new_device(PdgdTraining(min_interactions=10, max_interactions=10))
    device.see(2)

    def see_others(n):
        for i in range(n):
            added = device.store.add_interaction(
                f"other-{device.store.n_waiting()}-{i}",
                Interaction(UNNUMBERED, np.ones((2, 3), np.float32), np.arange(2), np.ones(2, np.bool_)),
            )
            device.trainer.learn_new(added, in_order=True)

    with capture_logs() as logs:
        see_others(3)
        device.announce(2, 1)
        see_others(9)
    assert len(device.trainer.working_model.interaction_ids) == 2
    assert device.store.n_waiting() == 14
    assert [line["event"] for line in logs] == ["feature_count_mismatch"]
    device.see(1)
    assert len(device.trainer.working_model.interaction_ids) == device.store.n_waiting() == 3


def test_lists_of_an_older_perturbation_go_without_a_warning(new_device):
    """They are out of date with every model; one line for all of them, for whoever looks for it."""
    device = new_device(EVOLUTION)
    device.see(variant=1, base_version=0)
    device.see(variant=1, base_version=0)
    assert device.n_updates == 0
    with capture_logs() as logs:
        device.announce(2, 1)
    (line,) = [line for line in logs if line["event"] == "interactions_discarded"]
    assert (line["log_level"], line["n"]) == ("debug", 2)
    assert device.store.n_waiting() == 0


def test_both_sides_of_a_perturbation_are_waited_for(new_device):
    """Enough interactions under one side are no update; one under the other side completes it."""
    device = new_device(EVOLUTION)
    device.see(3, variant=1, base_version=0)
    assert device.n_updates == 0
    device.see(variant=-1, base_version=0, clicked=1)
    assert device.n_updates == 1
    assert isinstance(device.body, EvolutionPair)
    assert (device.body.plus, device.body.minus) == (1.0, 0.5)


def test_a_restart_in_a_round_goes_on_with_the_same_perturbation(new_device):
    """What was seen under it before still counts, since its seed is the store's and the model's."""
    device = new_device(EVOLUTION)
    features = np.random.default_rng(1).random((30, N), np.float32)
    before, variant = device.trainer.working_model.ranker.scores(features, exploring=True)
    device.see(variant=variant, base_version=0)
    device.restart()
    assert len(device.trainer.working_model.interaction_ids) == 1
    device.see(variant=-variant, base_version=0)
    assert device.n_updates == 1
    device.restart()
    again, _ = device.trainer.working_model.ranker.scores(features, exploring=True)
    np.testing.assert_array_equal(again, before)


@pytest.mark.parametrize("restarted", [False, True])
def test_what_is_recorded_waits_for_kernels(new_device, counting, restarted):  # noqa: ARG001
    """Nothing is learned before they are there, also what was recorded before a restart, and then each list once."""
    loaded = []
    device = new_device(are_loaded=lambda _model: bool(loaded))
    device.see(2)
    if restarted:
        device.restart()
    assert device.trainer.is_loading
    assert not device.trainer.learn_when_loaded()
    assert device.trainer.working_model.interaction_ids == []
    assert (device.trainer.body(), device.n_updates) == (None, 0)
    loaded.append(True)
    assert device.trainer.learn_when_loaded()
    device.contribute()
    assert (device.n_learned(), device.n_updates) == ([1, 1], 1)
    assert not device.trainer.learn_when_loaded(), "once"
    device.see()
    assert device.n_learned() == [1, 1, 1]


def test_lists_are_made_by_plain_functions_until_kernels_are_there(new_device, counting):  # noqa: ARG001
    """Before there is a model, and as long as what it calls is being loaded."""
    loaded = []
    device = new_device(are_loaded=lambda _model: bool(loaded))

    def is_by_machine_code():
        with device.trainer.form():
            return calls_machine_code()

    assert not is_by_machine_code()
    loaded.append(True)
    assert device.trainer.learn_when_loaded()
    assert is_by_machine_code() is COMPILED
    device.trainer.forget()
    assert not is_by_machine_code()
