"""A device's part in unlearning: from what it kept, by the announced method, and nothing else is touched."""

import random

import numpy as np
import pytest
from structlog.testing import capture_logs
from support.federator_by_hand import round_on
from support.sampled_lists import even_reversals

from foltr.core.errors import DataError, SettingsError
from foltr.core.methods.base import DeviceContext
from foltr.core.methods.registry import make_device, n_auxiliary
from foltr.core.protocol.announcements import ModelAnnouncement, NamedErasure, UnlearningRound
from foltr.core.protocol.fields import pack_vector, unpack_vector
from foltr.core.protocol.trainings import (
    EvolutionTraining,
    FedAvgTraining,
    FedIpsTraining,
    FedPerTraining,
    FedProxTraining,
    FpdgdPaperTraining,
    LinearRankerSpec,
    NeuralRankerSpec,
    PdgdTraining,
    PersonalTraining,
)
from foltr.edge_client.participation import Participation
from foltr.edge_client.session import Session
from foltr.edge_client.store.bounds import PendingUpdate
from foltr.edge_client.store.store import UNNUMBERED, DeviceStore, Interaction
from foltr.edge_client.training.relearning import Relearning
from foltr.edge_client.training.trainer import Trainer
from foltr.edge_client.training.unlearning_limits import UnlearningLimits
from foltr.edge_client.trust import Trust

N = 64
N_FEATURES = 3
DRAWN = even_reversals(2) / 4
BOUNDS = {"min_interactions": 1, "max_interactions": 5}
LINEAR, NEURAL = LinearRankerSpec(n_features=N_FEATURES), NeuralRankerSpec(n_features=N_FEATURES, hidden=2)


def counting_learner(weights, interaction, training):  # noqa: ARG001 (the signature is the learner's)
    return weights + interaction.features[0]


class Machine:
    """A store with kept interactions, each by its features or by the one that is 1, and all that relearning needs."""

    def __init__(self, kept, learner=counting_learner, device_seed=5, limits=None, path=":memory:"):
        self.store = DeviceStore(path, client_id="device-7", federation="mail", max_interactions=10_000)
        for i, features in enumerate(kept):
            self.keep(f"serp {i}", features)
        session = Session("mail", "device-7", Trust(None, self.store), self.store)
        self.participation = Participation("device-7", None, random.Random(1))  # noqa: S311
        self.trainer = Trainer(
            self.store,
            self.participation,
            np.random.default_rng(1),
            learner=learner,
            device_seed=device_seed,
            propensities=None,
        )
        self.day = 20_000
        limits = limits or UnlearningLimits(10_000, 10_000, 1)
        self.relearning = Relearning(
            session, self.store, self.trainer, device_seed, limits, lambda: 86_400.0 * self.day + 5.0
        )

    def record(self, serp_id, features):
        if isinstance(features, int):
            features = np.tile(np.eye(1, N, features, dtype=np.float32), (3, 1))
        clicks = np.array([False, True])
        return self.store.add_interaction(
            serp_id, Interaction(UNNUMBERED, features, np.array([0, 1], np.int64), clicks, reversals=DRAWN)
        )

    def keep(self, serp_id, features):
        interaction = self.record(serp_id, features)
        watermark = self.store.watermark() or 0
        self.store.settle(watermark)
        self.store.put_update(PendingUpdate(serp_id, 1, watermark, interaction.id, b"bytes"), [interaction.id])
        self.store.settle(interaction.id, serp_id)

    def answer(self, **about):
        self.relearning.receive_step(announced(**about))
        return self.relearning.due


def announced(
    job=1,
    step=0,
    local_interactions=3,
    *,
    training=None,
    ranker=None,
    weights=None,
    is_open=True,
    closes_at=9.0,
    named=(1,),
):
    ranker = ranker or LinearRankerSpec(n_features=N)
    training = training or PdgdTraining(**BOUNDS)
    extra = n_auxiliary(training, ranker)
    return UnlearningRound(
        federation="mail",
        job=job,
        step=step,
        open=is_open,
        ranker=ranker,
        n_auxiliary=extra,
        weights=pack_vector(np.zeros(ranker.n_weights + extra) if weights is None else weights),
        local_interactions=local_interactions,
        erasures=[NamedErasure(audit_seq=seq, audit_hash=bytes(32)) for seq in named],
        closes_at=closes_at,
        training=training,
    )


def content(answer):
    """Which kept interactions an answer holds, told apart by their feature."""
    counts = unpack_vector(answer.body.values)
    assert answer.n_interactions == counts.sum()
    return np.flatnonzero(counts).tolist()


def test_a_step_draws_from_what_was_kept_without_replacement():
    """``local_interactions`` different ones, or all if they are fewer; with none nothing is sent."""
    assert Machine([]).answer(local_interactions=3) is None
    for n_kept, local_interactions in ((1, 1), (1, 15), (2, 1), (5, 3), (12, 5), (12, 11), (12, 12), (12, 15)):
        answer = Machine(range(n_kept)).answer(local_interactions=local_interactions)
        assert len(set(content(answer))) == answer.n_interactions == min(n_kept, local_interactions)
        assert set(content(answer)) <= set(range(n_kept))


def test_the_draw_follows_from_device_job_and_step():
    """The same after a restart; another for every step, every job and every device, and over steps all have a turn."""
    kept = range(40)
    first = [content(Machine(kept).answer(step=step, local_interactions=5)) for step in range(16)]
    assert first == [content(Machine(kept).answer(step=step, local_interactions=5)) for step in range(16)]
    assert len({tuple(drawn) for drawn in first}) == 16
    assert first[0] != content(Machine(kept).answer(job=2, local_interactions=5))
    assert first[0] != content(Machine(kept, device_seed=6).answer(local_interactions=5))
    assert len({i for drawn in first for i in drawn}) > 30


@pytest.mark.parametrize(
    ("training", "ranker"),
    [
        (PdgdTraining(**BOUNDS), LINEAR),
        (PdgdTraining(**BOUNDS), NEURAL),
        (FedProxTraining(**BOUNDS, mu=0.5), LINEAR),
        (FedPerTraining(**BOUNDS), NEURAL),
        (PersonalTraining(**BOUNDS), LINEAR),
        (FedIpsTraining(**BOUNDS), LINEAR),
        (FedIpsTraining(**BOUNDS, propensities="estimated"), LINEAR),
        (FedAvgTraining(**BOUNDS), LINEAR),
    ],
    ids=lambda part: part.kind,
)
def test_the_announced_method_learns_from_the_announced_weights(rng, training, ranker):
    """The body is the method's own, of the drawn interactions, as lists that other weights drew."""
    # Small: where a list is already ranked as clicked, by a margin of 1, a hinge loss asks for nothing.
    weights = (0.1 * rng.standard_normal(ranker.n_weights + n_auxiliary(training, ranker))).astype(np.float32)
    features = rng.random((1, 4, N_FEATURES)).astype(np.float32)
    machine = Machine(features, learner=None)
    answer = machine.answer(training=training, ranker=ranker, weights=weights)
    device = make_device(training, ranker, weights, 0, DeviceContext(5))
    kept = machine.store.kept_interaction(machine.store.kept_ids()[0])
    device.learn(Interaction(1, features[0], kept.ranking, kept.clicks, reversals=DRAWN), rng)
    assert answer.body == device.body(rng)
    assert answer.n_interactions == 1
    assert any(answer.body.values)


@pytest.mark.parametrize(
    "training", [EvolutionTraining(**BOUNDS), FpdgdPaperTraining(**BOUNDS, n_clients=10)], ids=lambda one: one.kind
)
def test_what_was_answered_at_random_once_is_not_learned_again(training):
    """Another answer with fresh noise would say more of the same clicks than the noise allows."""
    with capture_logs() as logs:
        assert Machine(range(5)).answer(training=training) is None
    assert logs == []


def test_nothing_else_is_touched():
    """Neither the working copy with what waits, nor the local state, nor what was kept."""
    training = PersonalTraining(**BOUNDS, learning_rate=1.0)
    machine = Machine(np.random.default_rng(1).random((4, 4, N_FEATURES)).astype(np.float32), learner=None)
    ranker = LinearRankerSpec(n_features=N_FEATURES)
    machine.participation.receive_model(
        ModelAnnouncement(federation="mail", version=4, ranker=ranker, weights=pack_vector([1.0, 2.0, 3.0]))
    )
    machine.participation.receive_round(round_on(5, 4, pack_vector([1.0, 2.0, 3.0]), training), 0.0)
    machine.record("waits", np.random.default_rng(2).random((4, N_FEATURES)).astype(np.float32))
    machine.trainer.catch_up()
    state = machine.trainer.learned().local_state
    assert state is not None

    def everything():
        working_model, store = machine.trainer.working_model, machine.store
        learned = (working_model, working_model.weights.tolist(), list(working_model.interaction_ids))
        counting = [store.rows(f"SELECT * FROM {table}") for table in ("bounds", "counted_updates")]  # noqa: S608
        interactions = store.rows("SELECT id, serp_id, features, ranking, clicks, reversals FROM interactions")
        return learned, machine.trainer.learned().local_state, counting, interactions

    before = everything()
    assert machine.answer(training=training, ranker=ranker, weights=[0.5] * 3) is not None
    assert everything() == before


def test_a_step_announced_again_is_answered_as_before():
    """It may have been lost. One with other weights, of a job that starts again, or after a closed one, is learned."""
    machine = Machine(range(20))
    first = machine.answer()
    machine.relearning.mark_sent(first)
    assert machine.relearning.due is None
    machine.keep("new", 50)
    assert machine.answer(closes_at=99.0) is first, "with a later deadline"
    again = machine.answer(weights=np.ones(N))
    assert again is not first
    machine.relearning.mark_sent(first)
    assert machine.relearning.due is again
    assert machine.answer(weights=np.ones(N), is_open=False) is None
    assert machine.answer(weights=np.ones(N)) is not again  # one that was remembered would be


def steps(machine, numbers, **about):
    return [step for step in numbers if machine.answer(step=step, **about) is not None]


def test_so_many_steps_a_day_are_answered():
    """The next day as many; by a clock that was set back none of a day that is over, and none twice."""
    machine = Machine(range(5), limits=UnlearningLimits(steps_a_day=3))
    assert steps(machine, range(5)) == [0, 1, 2]
    machine.day += 1
    assert steps(machine, range(4, 9)) == [4, 5, 6]
    machine.day -= 1
    assert steps(machine, range(10, 13)) == []
    machine.day += 2
    assert steps(machine, [11, 12]) == [11, 12]
    assert steps(Machine(range(5), limits=UnlearningLimits(steps_a_day=0)), range(3)) == []


def test_what_cannot_be_counted_is_not_answered():
    """A full disk gives no more answers; once there is room the step is answered, as it still is open."""
    machine = Machine(range(5))
    machine.store.rows("PRAGMA query_only = ON")
    with capture_logs() as logs:
        assert machine.answer() is None
    assert [line["event"] for line in logs] == ["unlearning_step_failed"]
    machine.store.rows("PRAGMA query_only = OFF")
    assert machine.answer() is not None


def test_a_step_announced_again_counts_once_and_one_with_other_weights_again():
    """Another question about the same clicks is another question, whatever its number."""
    machine = Machine(range(5), limits=UnlearningLimits(steps_a_day=2))
    assert steps(machine, [1, 1, 1, 1]) == [1, 1, 1, 1]
    assert steps(machine, [1], weights=np.ones(N)) == [1]
    assert steps(machine, [1], weights=2 * np.ones(N)) == []


def test_a_click_is_learned_in_so_many_steps_of_its_life():
    """Those that are used up are passed over, until too few are left; new ones are learned."""
    machine = Machine(range(4), limits=UnlearningLimits(steps_a_click=3))
    with capture_logs() as logs:
        contents = [content(answer) for i in range(9) if (answer := machine.answer(step=i)) is not None]
    assert max(sum(i in drawn for drawn in contents) for i in range(4)) == 3
    assert all(len(drawn) == 3 for drawn in contents)
    assert [(line["event"], line["cause"]) for line in logs] == [
        ("unlearning_step_skipped", "fewer than 3 interactions are left to learn from")
    ]
    for i in range(10, 13):
        machine.keep(f"new {i}", i)
    assert set(content(machine.answer(step=20))) <= set(range(13))


def test_too_few_interactions_are_not_asked_for_nor_answered():
    """Of one or two clicks an answer would show nearly everything. Why is said once a job."""
    machine = Machine(range(2), limits=UnlearningLimits())
    with capture_logs() as logs:
        assert steps(machine, range(3), local_interactions=2) == []
        assert steps(machine, range(3), local_interactions=3) == []
        assert steps(machine, range(3), local_interactions=2, job=2) == []
    causes = [(line["job"], line["cause"]) for line in logs if line["event"] == "unlearning_step_skipped"]
    assert causes == [
        (1, "it asks for 2 interactions, fewer than 3"),
        (1, "fewer than 3 interactions are left to learn from"),
        (2, "it asks for 2 interactions, fewer than 3"),
    ]


def test_an_erasure_stands_for_two_jobs():
    """The second one takes the place of a first one that covered too little; a third would be for nobody's sake."""
    machine = Machine(range(9), limits=UnlearningLimits())
    with capture_logs() as logs:
        answered = [job for job in (1, 2, 3, 2, 1) if machine.answer(job=job, named=(7, 8)) is not None]
    assert answered == [1, 2, 2, 1]
    assert [(line["job"], line["cause"]) for line in logs] == [
        (3, "the erasures that it names were used for 2 other jobs")
    ]
    assert machine.answer(job=3, named=(7, 8, 9)) is not None  # and for somebody else's


def test_what_was_answered_and_for_whom_outlives_a_restart(path):
    """It is on disk before it may be sent; another job begins with what is left."""
    limits = UnlearningLimits(steps_a_day=3)
    machine = Machine(range(5), limits=limits, path=path)
    assert steps(machine, range(2)) == [0, 1]
    machine.store.close()
    machine = Machine([], limits=limits, path=path)
    assert steps(machine, range(7, 10), job=2) == [7]
    machine.day += 1
    assert machine.answer(job=3) is None
    machine.store.close()


@pytest.mark.parametrize("wrong", [{"steps_a_day": -1}, {"steps_a_click": 0}, {"fewest_interactions": 0}])
def test_limits_that_are_none_are_refused(wrong):
    """By name."""
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        UnlearningLimits(**wrong)


def test_what_cannot_be_learned_is_passed_over_for_others():
    """A list of other features, kept from before the federation changed, costs no place; it is said once a cause."""
    machine = Machine([*range(4), np.ones((3, 2), np.float32), np.ones((3, 2), np.float32)])
    with capture_logs() as logs:
        assert content(machine.answer(local_interactions=6)) == [0, 1, 2, 3]
    assert [(line["event"], line["log_level"]) for line in logs] == [("kept_interactions_not_learned", "warning")]
    assert "2 features" in logs[0]["cause"]
    with capture_logs():
        assert Machine([np.ones((3, 2), np.float32)]).answer() is None


def test_what_cannot_be_made_or_sent_is_logged(monkeypatch):
    """No body, a model that does not fit the method, an answer too large for one message; the next step goes on."""

    def fail(*_):
        raise DataError("no body")

    def events_of(machine, **about):
        with capture_logs() as logs:
            assert machine.answer(**about) is None
        return [(line["event"], line.get("cause")) for line in logs]

    machine = Machine(range(5))
    with monkeypatch.context() as broken:
        broken.setattr("foltr.edge_client.training.working_model.LearnerDevice.body", fail)
        assert events_of(machine) == [("unlearning_step_failed", "no body")]
    assert machine.answer(step=1) is not None
    misfit = events_of(Machine(range(5), learner=None), training=FedPerTraining(**BOUNDS))
    assert [event for event, _ in misfit] == ["method_unsupported"]
    monkeypatch.setattr("foltr.edge_client.training.relearning.needs_chunks", lambda payload: len(payload) > 4 * N)
    assert events_of(Machine(range(5))) == [("unlearning_answer_too_large", None)]
