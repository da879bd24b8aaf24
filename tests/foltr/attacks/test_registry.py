"""Attacks by name: settings that mean something, and crafted updates for any of them."""

import json

import numpy as np
import pytest

from foltr.aggregation.rule_spec import MEAN, read_rule
from foltr.attacks.crafting import fang_krum, fang_krum_partial, lie, lie_z, reversed_direction
from foltr.attacks.registry import (
    ATTACKS,
    MODEL_ATTACKS,
    AttackSpec,
    attack_parameters_of,
    attack_rng,
    check_attack,
    craft,
    read_attack,
)
from foltr.errors import SettingsError
from foltr.methods.registry import METHODS, training_for
from foltr.protocol.fields import MAX_ABS_DELTA

OWN = np.random.default_rng(1).standard_normal((3, 6)) + 1.0
OTHERS = np.random.default_rng(2).standard_normal((7, 6)) + 1.0
MODEL = np.array([3.0, 0.0, 0.0, 4.0, 0.0, 0.0], np.float32)
# Those that may know everybody's updates, and those that make no sense without.
INFORMED = [name for name in MODEL_ATTACKS if "knowledge" in attack_parameters_of(name)]
SIGHTED = [name for name in INFORMED if attack_parameters_of(name)["knowledge"] == "full"]


def crafted(name, own=OWN, others=OTHERS, rule=MEAN, round_number=1, **parameters):
    n = len(own) + (0 if others is None else len(others))
    spec = read_attack(name, parameters)
    return craft(spec, own, others, n, rule, attack_rng(5, round_number), MODEL, round_number)


def test_what_there_is():
    """Fourteen attacks, each with a meaning; all but clicks change updates, and one needs sight of others'."""
    assert set(ATTACKS) - set(MODEL_ATTACKS) == {"clicks"}
    assert len(ATTACKS) == 14
    informed = {"lie", "fang-krum", "fang-trimmed-mean", "inner-product", "bounded", "min-max", "min-sum"}
    assert set(INFORMED) == informed | {"framing"}
    assert SIGHTED == ["framing"]


@pytest.mark.parametrize("name", ATTACKS)
def test_defaults_are_settings(name):
    """What is listed as a default can be given, and is what an attack has without it; settings survive JSON."""
    defaults = attack_parameters_of(name)
    spec = read_attack(name)
    assert read_attack(name, defaults) == spec
    assert read_attack(name, json.loads(json.dumps(defaults))) == spec
    assert spec.knowledge == ("full" if name in SIGHTED else "partial")


@pytest.mark.parametrize(
    ("name", "parameters", "words"),
    [
        ("lies", {}, "there is no 'lies'; known are clicks, lie"),
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
    ],
)
def test_wrong_settings_are_told_in_words(name, parameters, words):
    """One line that names what is allowed."""
    with pytest.raises(SettingsError, match=words):
        read_attack(name, parameters)


@pytest.mark.parametrize("name", MODEL_ATTACKS)
@pytest.mark.parametrize("m", [1, 2, 4])
def test_every_attack_crafts_for_any_number_of_attackers(name, m):
    """float32 rows, one for each; alone too, and with nobody else in the round."""
    own = OWN[:m] if m < 4 else np.concatenate([OWN, OTHERS[:1]])
    for parameters in ({}, {"knowledge": "full"}) if name in INFORMED else ({},):
        for others in (OTHERS, OTHERS[:0]):
            rows = crafted(name, own=own, others=others, **parameters)
            assert rows.shape == own.shape
            assert rows.dtype == np.float32
            assert np.isfinite(rows).all() == (name != "not-finite")


@pytest.mark.parametrize("name", [name for name in MODEL_ATTACKS if name not in SIGHTED])
def test_partial_knowledge_looks_at_nobody_else(name):
    """What others learned changes nothing, nor that it is not known at all; in a late round either."""
    spec = read_attack(name)
    for number in (1, 40):
        known = crafted(name, round_number=number)
        np.testing.assert_array_equal(known, crafted(name, others=OTHERS + 5.0, round_number=number))
        unseen = craft(spec, OWN, None, 10, MEAN, attack_rng(5, number), MODEL, number)
        np.testing.assert_array_equal(known, unseen)


@pytest.mark.parametrize("name", INFORMED)
def test_full_knowledge_does(name):
    """It changes what is sent, and cannot be had without the others' updates."""
    full = crafted(name, knowledge="full")
    assert (full != crafted(name, others=OTHERS + 5.0, **({} if name in SIGHTED else {"knowledge": "partial"}))).any()
    with pytest.raises(SettingsError, match="all devices run in one process; leave it at partial"):
        crafted(name, others=None, knowledge="full")


def test_uninformed_attacks_have_no_knowledge_to_set():
    """A sign flip needs none."""
    for name in set(ATTACKS) - set(INFORMED):
        with pytest.raises(SettingsError, match="has no such parameter"):
            read_attack(name, {"knowledge": "full"})


def test_simple_attacks_by_hand():
    """-own; -2 own as the thesis' chapter 6 has it; the largest values a message may hold, against every weight."""
    own = np.array([[1.0, -2.0, 0.0], [3.0, -0.5, 0.0]])
    np.testing.assert_array_equal(crafted("sign-flip", own=own), -own)
    np.testing.assert_array_equal(crafted("scaled", own=own), -2.0 * own)
    np.testing.assert_array_equal(crafted("scaled", own=own, z=3), -3.0 * own)
    np.testing.assert_array_equal(
        crafted("huge", own=own), MAX_ABS_DELTA * np.array([[-1, 1, 1], [-1, 1, 1]], np.float32)
    )
    assert np.isnan(crafted("not-finite", own=own)).all()
    assert (crafted("not-finite", own=own, value="-inf") == -np.inf).all()


def test_a_bounded_attack_is_as_long_as_is_set():
    """In L2, against the mean update, the model, or each feature alike; against nothing it is zeros."""
    mean = OWN.mean(axis=0)
    np.testing.assert_allclose(crafted("bounded", length=2.0)[1], -2.0 * mean / np.linalg.norm(mean), rtol=1e-6)
    np.testing.assert_allclose(crafted("bounded", length=2.0, against="features"), -2.0 / np.sqrt(6.0), rtol=1e-6)
    assert not crafted("bounded", own=np.zeros((1, 6))).any()
    rng, spec = attack_rng(5, 1), read_attack("bounded", {"against": "model", "length": 10.0})
    np.testing.assert_allclose(craft(spec, OWN, None, 3, None, rng, MODEL)[0], -2.0 * MODEL, rtol=1e-6)
    with pytest.raises(SettingsError, match="choose update or features"):
        craft(spec, OWN, None, 3, None, rng)


def test_launderers_are_honest_until_they_begin():
    """From the round that is set on they take turns to burst; without the model there is no attack."""
    np.testing.assert_array_equal(crafted("launder", round_number=29), OWN.astype(np.float32))
    usual = np.median(np.linalg.norm(OWN, axis=1))
    for number in range(30, 38):
        lengths = np.linalg.norm(crafted("launder", round_number=number), axis=1) / usual
        bursting = [(number - 30 + i) % 4 == 0 for i in range(3)]
        expected = np.where(bursting, np.hypot(5.0, 0.5), np.hypot(2 / 3, 0.5))
        np.testing.assert_allclose(lengths, expected, rtol=1e-5)
    with pytest.raises(SettingsError, match="launder is for the simulator"):
        craft(read_attack("launder"), OWN, None, 3, None, attack_rng(5, 1))


def test_framers_send_what_the_honest_do():
    """One victim each, bit for bit; with nobody to frame they are honest."""
    np.testing.assert_array_equal(crafted("framing"), OTHERS[:3].astype(np.float32))
    np.testing.assert_array_equal(crafted("framing", others=OTHERS[:2]), OTHERS[[0, 1, 0]].astype(np.float32))
    np.testing.assert_array_equal(crafted("framing", others=OTHERS[:0]), OWN.astype(np.float32))


def test_lie_counts_everybody_in_the_round():
    """Its z is of n and m; one that is set takes its place."""
    np.testing.assert_array_equal(crafted("lie")[0], lie(OWN, lie_z(10, 3)).astype(np.float32))
    np.testing.assert_array_equal(crafted("lie", z=1.5)[2], lie(OWN, 1.5).astype(np.float32))
    everybody = np.concatenate([OWN, OTHERS])
    np.testing.assert_array_equal(crafted("lie", z=1.5, knowledge="full")[0], lie(everybody, 1.5).astype(np.float32))


@pytest.mark.parametrize("name", ["lie", "fang-krum", "inner-product", "min-max", "min-sum"])
def test_jitter_tells_colluders_apart(name):
    """Each adds noise of its own, of the size that was asked for; without it all send the same."""
    plain, hidden = crafted(name), crafted(name, jitter=1)
    assert (plain == plain[0]).all()
    assert len({row.tobytes() for row in hidden}) == len(hidden)
    spread = (hidden - plain) / OWN.std(axis=0)
    assert 0.5 < spread.std() < 1.5
    np.testing.assert_allclose(
        (crafted(name, jitter=0.1) - plain) / OWN.std(axis=0), 0.1 * spread, rtol=1e-3, atol=1e-4
    )


def test_fang_attacks_the_krum_it_believes_in():
    """With full knowledge: the rule's m, and of another rule its own number."""
    everybody = np.concatenate([OWN, OTHERS])
    for rule, tolerated in ((read_rule("krum", byzantine=2), 2), (read_rule("multi-krum", byzantine=1), 1), (MEAN, 3)):
        expected, _ = fang_krum(OTHERS, reversed_direction(everybody), 3, tolerated)
        rows = crafted("fang-krum", rule=rule, knowledge="full")
        np.testing.assert_array_equal(rows, np.tile(expected.astype(np.float32), (3, 1)))
    np.testing.assert_array_equal(crafted("fang-krum")[0], fang_krum_partial(OWN).astype(np.float32))


def test_the_same_round_is_attacked_the_same_way():
    """Seed and round decide what is random, so that the service and the simulator send the same."""
    first = crafted("fang-trimmed-mean")
    np.testing.assert_array_equal(first, crafted("fang-trimmed-mean"))
    assert (first != crafted("fang-trimmed-mean", round_number=2)).any()
    assert (first[0] != first[1]).any(), "each attacker draws its own"


def test_which_methods_can_be_attacked():
    """Clicks go with every method, crafted differences not with seeds and metrics."""
    for method in METHODS:
        training = training_for(method, {"n_clients": 10} if method == "fpdgd-paper" else {}, 4)
        check_attack(read_attack("clicks"), training)
        if method == "foltr-es":
            with pytest.raises(SettingsError, match="choose attack = clicks, or another method"):
                check_attack(read_attack("lie"), training)
        else:
            check_attack(read_attack("lie"), training)


def test_clicks_craft_nothing():
    """Its updates are what was learned from the clicks; asking for others is a mistake in a program."""
    with pytest.raises(RuntimeError):
        craft(AttackSpec("clicks"), OWN, None, 10, None, attack_rng(1, 1))
