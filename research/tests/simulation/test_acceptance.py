"""A simulated federation whose devices test each model before they take it."""

import numpy as np
import pytest
from simulated import config, simulated

from foltr.core.errors import SettingsError
from foltr_research.simulation.checkpoint import CheckpointPlan
from foltr_research.simulation.config import check_config
from foltr_research.simulation.results import rows_of

# Of one attacker against four: the mean goes backwards from the first round on.
RUINED = {"attack": "scaled", "attackers": 1, "attack_parameters": {"z": 20}}


def judging(**values):
    return config(interactions=20, rounds=20, eval_every=1, **{"acceptance_level": 0.05, **values})


def test_devices_refuse_a_ruined_model_and_learn_on_from_their_own():
    """So what honest users see is what each one's clicks make, and no longer the federation's."""
    plain, tested = (simulated(judging(acceptance_level=level, **RUINED)) for level in (None, 0.05))
    alone = simulated(config(interactions=20, rounds=20, method="local"))
    assert tested.accepted_per_round.max() <= 0.25
    assert tested.final_ndcg > plain.final_ndcg + 0.2
    assert tested.final_ndcg > alone.final_ndcg - 0.05
    assert dict(tested.ndcg_at_10_global)[20] < tested.final_ndcg - 0.2


def test_devices_take_honest_models_now_and_then():
    """One list says how many did, of the honest ones; rows have it too."""
    result = simulated(judging(acceptance_level=0.5))
    assert result.accepted_per_round.shape == (20,)
    assert 0.0 < result.accepted_per_round.mean() < 1.0
    assert result.accepted_per_round[0] == 0.0
    assert rows_of(result.to_dict())[-1]["accepted_of_round"] == result.accepted_per_round[-1]


def test_without_a_test_nothing_is_said_of_it():
    """And the run is the one that it was."""
    result = simulated(config())
    assert result.accepted_per_round is None
    assert rows_of(result.to_dict())[-1]["accepted_of_round"] is None


def test_who_takes_nothing_learns_as_if_alone():
    """Until there are lists enough nobody takes anything, and the rankers are those of the reference `local`."""
    of = config(interactions=4, rounds=7)
    tested, alone = simulated(of.changed(acceptance_level=0.5)), simulated(of.changed(method="local"))
    assert not tested.accepted_per_round.any()
    assert tested.final_ndcg == pytest.approx(alone.final_ndcg, abs=1e-6)


@pytest.mark.parametrize("extra", [{}, RUINED, {"participants": 3}])
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, extra):
    """Own models, histories and what was accepted are part of a checkpoint."""
    of, path = judging(acceptance_level=0.5, **extra), tmp_path / "run.checkpoint"
    asked = []
    with pytest.raises(KeyboardInterrupt):
        simulated(of, checkpoint=CheckpointPlan(path), stop=lambda: asked.append(1) or len(asked) == 9)
    resumed = simulated(of, checkpoint=CheckpointPlan(path, resume=True))
    assert resumed.outcome() == simulated(of).outcome()
    assert np.array_equal(resumed.accepted_per_round, simulated(of).accepted_per_round)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"method": "fpdgd-personal"}, "acceptance_level: fpdgd-personal gives a device no shared ranker"),
        ({"method": "pdgd"}, "acceptance_level: pdgd"),
        ({"take_back": True}, "leave out take_back"),
        ({"base_feature": 1}, "leave out base_feature"),
    ],
)
def test_what_cannot_be_is_said_at_the_start(values, problem):
    """In one line, by the name of the setting."""
    with pytest.raises(SettingsError, match=problem):
        check_config(config(acceptance_level=0.05, **values))


def test_it_is_run_by_the_reference():
    """Blocks begin from one model."""
    with pytest.raises(SettingsError, match="not run in blocks"):
        simulated(judging(), runner="block")
