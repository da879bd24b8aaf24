"""Who comes, and under which name."""

import re

import pytest

from foltr.core.protocol.fields import NAME_PATTERN
from foltr_research.attacks.presence import all_names, is_there, n_rounds_there, name_in
from foltr_research.attacks.registry import MODEL_ATTACKS, read_attack

SYBILS = read_attack("sybils", {"life": 3})
LATE = read_attack("late-joiners", {"start": 4})


def test_sybils_take_new_names():
    """Every three rounds, and the first three under their own."""
    names = [name_in(SYBILS, "device-001", number) for number in range(1, 8)]
    assert names == ["device-001"] * 3 + ["device-001.2"] * 3 + ["device-001.3"]
    assert all(re.fullmatch(NAME_PATTERN, name) for name in names)


def test_all_names_of_sybils_are_known_to_the_record():
    """Those that came within so many rounds."""
    assert all_names(SYBILS, ["a", "b"], 7) == ["a", "a.2", "a.3", "b", "b.2", "b.3"]
    assert all_names(LATE, ["a", "b"], 7) == ["a", "b"]


def test_late_joiners_are_absent_at_first():
    """From the fourth round on they are there."""
    assert [is_there(LATE, number) for number in range(1, 7)] == [False] * 3 + [True] * 3
    assert [n_rounds_there(LATE, rounds) for rounds in (2, 3, 4, 10)] == [0, 0, 1, 7]


@pytest.mark.parametrize("name", [name for name in MODEL_ATTACKS if name not in {"sybils", "late-joiners"}])
def test_all_others_are_there_under_their_names(name):
    """In every round."""
    spec = read_attack(name)
    assert all(is_there(spec, number) for number in (1, 5, 500))
    assert {name_in(spec, "a", number) for number in (1, 5, 500)} == {"a"}
    assert n_rounds_there(spec, 12) == 12
