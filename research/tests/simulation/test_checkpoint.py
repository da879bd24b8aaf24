"""A run that was stopped goes on as if it had not been; a file that does not fit is refused in one line."""

import numpy as np
import pytest
from simulated import config, population, simulated

from foltr.core.errors import DataError, SettingsError
from foltr.core.methods.registry import METHODS
from foltr_research.simulation.checkpoint import CheckpointPlan
from foltr_research.simulation.federated import run
from foltr_research.simulation.method_names import SIMULATOR_METHODS

RUNNERS = [(method, "auto") for method in (*METHODS, *SIMULATOR_METHODS)]
RUNNERS += [("fpdgd", "reference"), ("fedper", "reference"), ("fedips-estimated", "auto")]


def of_method(method: str, **values: object):
    neural = {"ranker": "neural", "hidden": 3} if method == "fedper" else {}
    if method == "fedips-estimated":
        return config(method="fedips", parameters={"propensities": "estimated"}, **values)
    return config(method=method, **neural, **values)


def stopped(of, path, after: int, **how):
    """Stop a run after a round, as a signal does."""
    asked = []

    def stop() -> bool:
        asked.append(True)
        return len(asked) >= after

    with pytest.raises(KeyboardInterrupt):
        simulated(of, checkpoint=CheckpointPlan(path), stop=stop, **how)


@pytest.mark.parametrize(("method", "kind"), RUNNERS)
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, method, kind):
    """Stopped twice, with a subset of clients and personal click models: the same results, bit for bit."""
    # lambdarank knows no clients.
    subset = {} if method == "lambdarank" else {"participants": 4}
    # An evaluation ends a stretch of rounds made in one go: so each run can be stopped after any round.
    of = of_method(method, rounds=7, clients=6, clicks="fedips-1", eval_every=1, **subset)
    path = tmp_path / "run.checkpoint"
    stopped(of, path, 3, runner=kind)
    with pytest.raises(KeyboardInterrupt):
        simulated(of, checkpoint=CheckpointPlan(path, resume=True), stop=lambda: True, runner=kind)
    resumed = simulated(of, checkpoint=CheckpointPlan(path, resume=True), runner=kind)
    whole = simulated(of, runner=kind)
    assert resumed.outcome() == whole.outcome()
    assert np.array_equal(resumed.weights, whole.weights)


def test_checkpoints_are_written_every_so_many_rounds(tmp_path):
    """A run that dies without a word goes on from the last checkpoint; of a finished one nothing is left to do."""
    of = config(rounds=7)
    path = tmp_path / "run.checkpoint"

    def die(progress):
        if progress.round == 6:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        simulated(of, checkpoint=CheckpointPlan(path, every=2), on_round=die)
    rounds = []
    resumed = simulated(
        of, checkpoint=CheckpointPlan(path, every=2, resume=True), on_round=lambda done: rounds.append(done.round)
    )
    # The sixth round's checkpoint was written before the run died.
    assert rounds == [6, 7]
    assert resumed.outcome() == simulated(of).outcome()
    path = tmp_path / "run.checkpoint"
    first = simulated(config(), checkpoint=CheckpointPlan(path))
    again = simulated(config(), checkpoint=CheckpointPlan(path, resume=True))
    assert again.outcome() == first.outcome()


def test_another_configuration_and_other_data_are_refused(tmp_path):
    """The message names what differs, and only that; the same words may have other data behind them."""
    path = tmp_path / "run.checkpoint"
    simulated(config(), checkpoint=CheckpointPlan(path))
    with pytest.raises(SettingsError, match=r"another configuration: seed: 1 and 2$"):
        simulated(config(seed=2), checkpoint=CheckpointPlan(path, resume=True))
    path = tmp_path / "run.checkpoint"
    people = population(config())
    run(config(), people, checkpoint=CheckpointPlan(path))
    people.datasets[0].features[0, 0] += 1.0
    with pytest.raises(DataError, match="other data"):
        run(config(), people, checkpoint=CheckpointPlan(path, resume=True))


@pytest.mark.parametrize("damage", ["cut", "flip", "foreign", "empty"])
def test_a_damaged_file_is_refused(tmp_path, damage):
    """One line, whatever happened to the file."""
    path = tmp_path / "run.checkpoint"
    simulated(config(), checkpoint=CheckpointPlan(path))
    content = path.read_bytes()
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    damaged = {"cut": content[:-10], "flip": bytes(flipped), "foreign": b"PK\x03\x04" + content, "empty": b""}
    path.write_bytes(damaged[damage])
    with pytest.raises(DataError, match="to start over") as refused:
        simulated(config(), checkpoint=CheckpointPlan(path, resume=True))
    assert "\n" not in str(refused.value)


def test_a_missing_file_or_folder_is_refused(tmp_path, monkeypatch):
    """In one line; where writing ends in the middle, the file is replaced at once or not at all."""
    with pytest.raises(SettingsError, match="no checkpoint to resume from"):
        simulated(config(), checkpoint=CheckpointPlan(tmp_path / "none", resume=True))
    with pytest.raises(SettingsError, match="cannot be written"):
        simulated(config(), checkpoint=CheckpointPlan(tmp_path / "no" / "folder"))
    path = tmp_path / "run.checkpoint"
    stopped(config(), path, 2)
    before = path.read_bytes()
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError("no space")))
    with pytest.raises(SettingsError, match="no space"):
        simulated(config(), checkpoint=CheckpointPlan(path, resume=True))
    assert path.read_bytes() == before
