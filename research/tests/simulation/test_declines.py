"""A simulated federation whose rounds say what they earned: what is taken back for it, and what is not."""

import numpy as np
import pytest
from simulated import config, population, simulated

from foltr.core.aggregation.effectiveness import reward_of_updates
from foltr.core.errors import SettingsError
from foltr.core.methods.base import Memory
from foltr_research.simulation.checkpoint import CheckpointPlan
from foltr_research.simulation.clients.crowd import Crowd
from foltr_research.simulation.config import check_config, resolve, rule_of
from foltr_research.simulation.declines import Declines
from foltr_research.simulation.learners import Defence, Federation
from foltr_research.simulation.results import rows_of
from foltr_research.simulation.runners import Experience, ReferenceRunner

# Honest while the model learns, and then far stronger than the others together.
TURNED = {
    "attack": "turncoat",
    "attackers": 8,
    "attack_parameters": {"start": 26, "z": 100},
    "interactions": 50,
    "rounds": 34,
    "liars_vote": "honest",
}


def ruled(**values):
    fields = {"interactions": 5, "rounds": 40, "eval_every": 1, "clients": 20, "evaluation_take_back": True}
    return config(**{**fields, **values})


@pytest.mark.parametrize("seed", range(5))
def test_a_ruined_model_is_taken_back_in_three_rounds(seed):
    """Its weights are turned round after round 25; devices have no gate, and nobody votes."""
    of = config(clients=20, seed=seed)
    people, (training, ranker) = population(of), resolve(of, 8)
    crowd, first = Crowd(people, of.seed, training.serp_length), np.zeros(8, np.float32)
    runner = ReferenceRunner(people, crowd, training, ranker)
    learner = Federation(
        people, runner, training, ranker, first, of.seed, None, Defence(rule_of(of), declines=Declines())
    )
    models, declined = [], {}
    for number in range(1, 32):
        models.append(learner.weights)
        experience = learner.round(number)
        if experience.defence is not None and experience.defence.decline is not None:
            declined[number] = experience.defence.decline.base_version
        if number == 25:
            learner.restore(learner.state() | {"model": -10 * learner.weights})
    assert declined == {28: 20}
    assert np.array_equal(models[28], models[20])


def test_a_run_says_what_was_taken_back():
    """Rounds 26 and on are of hostile clients; what is served again is from before them."""
    result = simulated(ruled(**TURNED))
    (first, *_) = result.robustness["declines"]
    assert (first["round"], first["base_version"]) == (29, 21)
    ndcg = dict(result.ndcg_at_10)
    assert ndcg[29] == ndcg[21] > ndcg[28] + 0.2
    assert rows_of(result.to_dict())[-1]["models_taken_back"] == len(result.robustness["declines"])


@pytest.mark.parametrize("seed", range(10))
def test_an_honest_federation_loses_no_model(seed):
    """And without a decline a run is the same run: to look costs no click and changes no random number."""
    with_rule, without = (simulated(ruled(seed=seed, evaluation_take_back=on)) for on in (True, False))
    assert with_rule.robustness["declines"] == []
    assert np.array_equal(with_rule.weights, without.weights)


def test_a_few_liars_move_a_round_by_their_share():
    """Two of twenty who say from the first round on that nothing is good take nothing back: nothing falls."""
    lied = simulated(ruled(attackers=2, liars_vote="worse"))
    assert lied.robustness["declines"] == []


@pytest.mark.parametrize("extra", [TURNED, {"take_back": True, **TURNED}])
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, extra):
    """What rounds earned, and the models that they trained from, are part of a checkpoint."""
    of, path = ruled(**extra), tmp_path / "run.checkpoint"
    asked = []
    with pytest.raises(KeyboardInterrupt):
        simulated(of, checkpoint=CheckpointPlan(path), stop=lambda: asked.append(1) or len(asked) == 28)
    resumed = simulated(of, checkpoint=CheckpointPlan(path, resume=True))
    assert resumed.outcome() == simulated(of).outcome()


def test_what_is_kept_comes_back_as_it_was():
    """Rewards, models and the states of an optimiser, of which some rounds have none."""
    before, after = Declines(), Declines()
    for version, optimiser in ((3, None), (4, b"abc"), (5, b"de")):
        reward = reward_of_updates(version, 5, 2.5, 1.5)
        before.keep(reward, np.full(2, version, np.float32), Memory(optimiser))
    after.restore(before.state())
    model, optimiser = after.model(4)
    assert (model.tolist(), optimiser) == ([4.0, 4.0], b"abc")
    assert after.model(3)[1] is None
    for name, value in before.state().items():
        np.testing.assert_array_equal(after.state()[name], value)
    empty = Declines()
    empty.restore(Declines().state())


def test_liars_say_what_they_like():
    """The first clients by number; the others what they have seen."""
    seen = Experience(np.zeros(3), np.array([0.5, 0.25, 0.75]), 3, np.array([0, 2, 1]))
    assert Declines().reward_of(0, seen).mean == 0.5
    assert Declines(2, 1.0).reward_of(0, seen).mean == pytest.approx((1.0 + 0.25 + 1.0) / 3)
    assert Declines(1, 0.0).reward_of(0, seen).mean == pytest.approx(1.0 / 3)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"method": "foltr-es"}, "foltr-es adds noise"),
        ({"method": "pdgd"}, "pdgd has no federator"),
        ({"privacy": "secure", "mechanism": "gamma"}, "choose mechanism = gaussian"),
        ({"privacy": "secure", "norm_proof": "none"}, "choose norm_proof = l2"),
    ],
)
def test_where_nothing_is_said_there_is_no_rule(wrong, told):
    """It would never take a model back."""
    with pytest.raises(SettingsError, match=f"evaluation_take_back: .*{told}"):
        check_config(ruled(**wrong))
