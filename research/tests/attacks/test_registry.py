"""Attacks by name: settings that mean something."""

import json
import re

import pytest

from foltr.core.errors import SettingsError
from foltr.core.methods.registry import METHODS, training_for
from foltr.core.protocol.fields import NAME_PATTERN
from foltr_research.attacks.presence import all_names, is_there, n_rounds_there, name_in
from foltr_research.attacks.registry import (
    ATTACKS,
    MODEL_ATTACKS,
    attack_parameters_of,
    check_attack,
    check_without_model,
    has_parameter,
    read_attack,
)

# Those that may know everybody's updates, and those that make no sense without.
INFORMED = [name for name in MODEL_ATTACKS if has_parameter(name, "knowledge")]
SIGHTED = [name for name in INFORMED if attack_parameters_of(name)["knowledge"] == "full"]


def test_defaults_are_settings():
    """What is listed as a default can be given, and is what an attack has without it; settings survive JSON."""
    for name in ATTACKS:
        defaults = attack_parameters_of(name)
        spec = read_attack(name)
        assert read_attack(name, defaults) == spec
        assert read_attack(name, json.loads(json.dumps(defaults))) == spec
        assert spec.knowledge == ("full" if name in SIGHTED else "partial")


@pytest.mark.parametrize(
    ("name", "parameters", "words"),
    [
        ("lies", {}, "unknown 'lies'; known are clicks, lie"),
        ("clicks", {"z": 1}, "clicks has no such parameter; it has none"),
        ("lie", {"epsilon": 1}, "lie has no such parameter; it has z, jitter, knowledge"),
        ("lie", {"knowledge": "some"}, "knowledge: 'some' is not allowed; partial or full"),
        ("lie", {"z": "nan"}, "z: 'nan' is not allowed; auto or a number from -100 to 100"),
        ("scaled", {"z": "much"}, "a number from 0 to 1e"),
        ("fang-trimmed-mean", {"b": 0.5}, "b: '0.5' is not allowed; a number from 1"),
        ("min-max", {"perturbation": "random"}, "unit or std or sign"),
        ("not-finite", {"value": "one"}, "nan or inf or -inf"),
        ("huge", {"size": -1}, "a number from 0"),
        ("launder", {"period": 1}, "period: '1' is not allowed; a number from 2"),
        ("framing", {"knowledge": "partial"}, "knowledge: 'partial' is not allowed; full"),
        ("launder", {"towards": "update"}, "towards: 'update' is not allowed; reverse or orthogonal or feature"),
        ("creep", {"honest": 2}, "honest: '2' is not allowed; a number from 0 to 1"),
        ("turncoat", {"before": "copies"}, "copies need the honest updates; set knowledge=full too"),
        ("sybils", {"life": 0}, "life: '0' is not allowed; a number from 1"),
    ],
)
def test_wrong_settings_are_told_in_words(name, parameters, words):
    """One line that names what is allowed."""
    with pytest.raises(SettingsError, match=words):
        read_attack(name, parameters)


def test_which_methods_can_be_attacked():
    """Clicks go with every method, crafted differences not with seeds and metrics; a sign flip needs no knowledge."""
    for method in METHODS:
        training = training_for(method, {"n_clients": 10} if method == "fpdgd-paper" else {}, 4)
        check_attack(read_attack("clicks"), training)
        if method == "foltr-es":
            with pytest.raises(SettingsError, match="choose attack = clicks, or another method"):
                check_attack(read_attack("lie"), training)
        else:
            check_attack(read_attack("lie"), training)
    for name in set(ATTACKS) - set(INFORMED):
        with pytest.raises(SettingsError, match="has no such parameter"):
            read_attack(name, {"knowledge": "full"})


def test_attacks_of_the_simulator_alone():
    """A process of devices is told so; it has no model at hand, and one name for each device."""
    for name in ["launder", "creep", "acceptable", "alternate", "turncoat", "sybils", "late-joiners"]:
        with pytest.raises(SettingsError, match=f"attack: {name} is for the simulator"):
            check_without_model(read_attack(name))
        check_without_model(read_attack("sign-flip"))


SYBILS = read_attack("sybils", {"life": 3})
LATE = read_attack("late-joiners", {"start": 4})


def test_sybils_take_new_names_and_late_joiners_are_absent_at_first():
    """Every three rounds, all of which the record knows; late joiners are there from the fourth round on."""
    names = [name_in(SYBILS, "device-001", number) for number in range(1, 8)]
    assert names == ["device-001"] * 3 + ["device-001.2"] * 3 + ["device-001.3"]
    assert all(re.fullmatch(NAME_PATTERN, name) for name in names)
    assert all_names(SYBILS, ["a", "b"], 7) == ["a", "a.2", "a.3", "b", "b.2", "b.3"]
    assert all_names(LATE, ["a", "b"], 7) == ["a", "b"]
    assert [is_there(LATE, number) for number in range(1, 7)] == [False] * 3 + [True] * 3
    assert [n_rounds_there(LATE, rounds) for rounds in (2, 3, 4, 10)] == [0, 0, 1, 7]


def test_all_others_are_there_under_their_names():
    """In every round."""
    for name in [name for name in MODEL_ATTACKS if name not in {"sybils", "late-joiners"}]:
        spec = read_attack(name)
        assert all(is_there(spec, number) for number in (1, 5, 500))
        assert {name_in(spec, "a", number) for number in (1, 5, 500)} == {"a"}
        assert n_rounds_there(spec, 12) == 12
