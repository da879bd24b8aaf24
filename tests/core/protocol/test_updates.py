"""Updates: what their fields may hold, and the vote and the evaluation that may go with one."""

import pytest
from pydantic import ValidationError

from foltr.core.protocol.evaluations import Evaluation
from foltr.core.protocol.updates import DenseDelta, MaskedVector, ModelUpdate, Vote

UPDATE = {
    "federation": "mail",
    "client_id": "device-7",
    "update_id": "0123456789abcdef" * 2,
    "round": 1,
    "base_version": 0,
    "base_hash": bytes(16),
    "after": 10,
    "through": 15,
    "n_interactions": 5,
    "body": DenseDelta(dim=1, values=bytes(4)),
}


def test_an_update_refuses_what_no_column_could_hold():
    """Counts are plain integers that fit SQL; it covers as many interactions as it holds at least."""
    for field, values in {
        "update_id": ["0" * 31, "0" * 33, "0" * 31 + "G", "0" * 31 + "A", "0" * 32 + "\n"],
        "round": [-1, 2**31, 1.0, True, "1"],
        "base_version": [-1, 2**63],
        "n_interactions": [0, 100_001, None],
    }.items():
        for value in values:
            with pytest.raises(ValidationError):
                ModelUpdate(**{**UPDATE, field: value})
    for covers in [(10, 10), (15, 10), (10, 14), (-1, 15), (2**48 - 4, 2**48 + 1), (10, None)]:
        with pytest.raises(ValidationError):
            ModelUpdate(**UPDATE | {"after": covers[0], "through": covers[1]})
        ModelUpdate(**UPDATE | {"after": 2**48 - 5, "through": 2**48})


def test_a_vote_is_one_of_three():
    """Worse, neither or better. Not beside a masked body: the federator would see it."""
    assert [Vote(anchor_version=3, value=each).value for each in (-1, 0, 1)] == [-1, 0, 1]
    for value in [-2, 2, 0.5, 1.0, True, "1", None]:
        with pytest.raises(ValidationError):
            Vote(anchor_version=3, value=value)
    masked = {**UPDATE, "body": MaskedVector(dim=1, values=bytes(8), ticket=b"a ticket")}
    assert ModelUpdate(**masked).vote is None
    with pytest.raises(ValidationError, match="beside a masked body"):
        ModelUpdate(**masked, vote=Vote(anchor_version=3, value=1))
    with pytest.raises(ValidationError, match="an evaluation beside a masked body"):
        ModelUpdate(**masked, evaluation=Evaluation(clicked=1.0, reward=0.5, base_reward=0.5))


def test_an_evaluation_is_three_means_of_which_clicks_earn_two():
    right = {"clicked": 0.75, "reward": 0.75, "base_reward": 0.0}
    assert Evaluation(**right).reward == 0.75
    for wrong in [
        {"clicked": 1.0000001},
        {"clicked": -0.0000001, "reward": 0.0},
        {"clicked": float("nan")},
        {"reward": -0.25},
        {"reward": 0.76},
        {"base_reward": 0.76},
        {"base_reward": None},
    ]:
        with pytest.raises(ValidationError):
            Evaluation(**(right | wrong))
