"""Crafted updates of a round, for any attack by name."""

import numpy as np
import pytest

from foltr.core.aggregation.rule_spec import MEAN, read_rule
from foltr.core.errors import SettingsError
from foltr.core.protocol.fields import MAX_ABS_DELTA
from foltr_research.attacks.attacked_round import attack_rng, craft
from foltr_research.attacks.aware import creep
from foltr_research.attacks.crafting import fang_krum, fang_krum_partial, lie, lie_z, reversed_direction
from foltr_research.attacks.directions import direction_of
from foltr_research.attacks.registry import MODEL_ATTACKS, AttackSpec, attack_parameters_of, has_parameter, read_attack

OWN = np.random.default_rng(1).standard_normal((3, 6)) + 1.0
OTHERS = np.random.default_rng(2).standard_normal((7, 6)) + 1.0
MODEL = np.array([3.0, 0.0, 0.0, 4.0, 0.0, 0.0], np.float32)
# Those that may know everybody's updates, and those that make no sense without.
INFORMED = [name for name in MODEL_ATTACKS if has_parameter(name, "knowledge")]
SIGHTED = [name for name in INFORMED if attack_parameters_of(name)["knowledge"] == "full"]
# By when all of them have begun.
LATE = 301


def crafted(name, own=OWN, others=OTHERS, rule=MEAN, round_number=1, **parameters):
    n = len(own) + (0 if others is None else len(others))
    spec = read_attack(name, parameters)
    return craft(spec, own, others, n, rule, attack_rng(5, round_number), MODEL, round_number)


def test_every_attack_crafts_for_any_number_of_attackers():
    """float32 rows, one for each; alone too, and with nobody else in the round."""
    for m in (1, 2, 4):
        for name in MODEL_ATTACKS:
            own = OWN[:m] if m < 4 else np.concatenate([OWN, OTHERS[:1]])
            for parameters in ({}, {"knowledge": "full"}) if name in INFORMED else ({},):
                for others in (OTHERS, OTHERS[:0]):
                    rows = crafted(name, own=own, others=others, **parameters)
                    assert rows.shape == own.shape, name
                    assert rows.dtype == np.float32, name
                    assert np.isfinite(rows).all() == (name != "not-finite"), name


def test_partial_knowledge_looks_at_nobody_else():
    """What others learned changes nothing, nor that it is not known at all; once the attack has begun either."""
    for name in set(MODEL_ATTACKS) - set(SIGHTED):
        spec = read_attack(name)
        for number in (1, LATE):
            known = crafted(name, round_number=number)
            np.testing.assert_array_equal(known, crafted(name, others=OTHERS + 5.0, round_number=number), name)
            unseen = craft(spec, OWN, None, 10, MEAN, attack_rng(5, number), MODEL, number)
            np.testing.assert_array_equal(known, unseen, name)


def test_full_knowledge_does():
    """It changes what is sent, and cannot be had without the others' updates."""
    for name in INFORMED:
        # So far that what the others' clicks say is what ends it.
        far = {"towards": "reverse", "longest": 100} if name == "acceptable" else {}
        full = crafted(name, knowledge="full", round_number=LATE, **far)
        less = {} if name in SIGHTED else {"knowledge": "partial"}
        assert (full != crafted(name, others=OTHERS + 5.0, round_number=LATE, **less, **far)).any(), name
        with pytest.raises(SettingsError, match="all devices run in one process; leave it at partial"):
            crafted(name, others=None, knowledge="full")


def test_simple_attacks_by_hand():
    """-own, -2 own, the largest values; clicks craft nothing; framers copy a victim each; lie's z is of n and m."""
    own = np.array([[1.0, -2.0, 0.0], [3.0, -0.5, 0.0]])
    np.testing.assert_array_equal(crafted("sign-flip", own=own), -own)
    np.testing.assert_array_equal(crafted("scaled", own=own), -2.0 * own)
    np.testing.assert_array_equal(crafted("scaled", own=own, z=3), -3.0 * own)
    np.testing.assert_array_equal(
        crafted("huge", own=own), MAX_ABS_DELTA * np.array([[-1, 1, 1], [-1, 1, 1]], np.float32)
    )
    assert np.isnan(crafted("not-finite", own=own)).all()
    assert (crafted("not-finite", own=own, value="-inf") == -np.inf).all()
    with pytest.raises(RuntimeError):
        craft(AttackSpec("clicks"), OWN, None, 10, None, attack_rng(1, 1))
    np.testing.assert_array_equal(crafted("framing"), OTHERS[:3].astype(np.float32))
    np.testing.assert_array_equal(crafted("framing", others=OTHERS[:2]), OTHERS[[0, 1, 0]].astype(np.float32))
    np.testing.assert_array_equal(crafted("framing", others=OTHERS[:0]), OWN.astype(np.float32))
    np.testing.assert_array_equal(crafted("lie")[0], lie(OWN, lie_z(10, 3)).astype(np.float32))
    np.testing.assert_array_equal(crafted("lie", z=1.5)[2], lie(OWN, 1.5).astype(np.float32))
    everybody = np.concatenate([OWN, OTHERS])
    np.testing.assert_array_equal(crafted("lie", z=1.5, knowledge="full")[0], lie(everybody, 1.5).astype(np.float32))


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


def test_attacks_begin_when_they_are_told_to():
    """Before, what is sent is honest; from then on it is not."""
    for name in ["launder", "creep", "acceptable", "alternate", "turncoat", "late-joiners"]:
        for knowledge in ({}, {"knowledge": "full"}) if name in INFORMED else ({},):
            honest = crafted(name, start=7, round_number=6, **knowledge)
            np.testing.assert_array_equal(honest, OWN.astype(np.float32))
            assert (crafted(name, start=7, round_number=7, **knowledge) != honest).any()


def test_a_direction_is_gone():
    """The mean of what is sent over some rounds is on the side of the direction, seen from the honest updates."""
    for towards in ["reverse", "orthogonal", "feature"]:
        for name in ["launder", "creep", "acceptable", "alternate", "turncoat", "sybils", "late-joiners"]:
            aim = direction_of(towards, MODEL.astype(np.float64), 3)
            more = {} if name == "sybils" else {"start": 1}
            sent = [crafted(name, towards=towards, feature=3, round_number=1 + turn, **more) for turn in range(4)]
            assert ((np.mean(sent, axis=0) - (0.0 if name == "launder" else OWN)) @ aim).mean() > 0.0


def test_alternation_has_rounds_of_both_kinds():
    """Two hostile ones of five, from the third on; turncoats may send copies of the honest until they turn."""
    settings = {"towards": "update", "z": 3, "period": 5, "hostile": 2, "start": 3}
    sent = [crafted("alternate", round_number=number, **settings) for number in range(1, 13)]
    hostile = [np.allclose(rows, -3.0 * OWN) for rows in sent]
    assert hostile == [False, False, True, True, False, False, False, True, True, False, False, False]
    settings = {"before": "copies", "knowledge": "full", "start": 10}
    np.testing.assert_array_equal(crafted("turncoat", round_number=9, **settings), OTHERS[:3].astype(np.float32))
    turned = crafted("turncoat", round_number=10, **settings)
    assert len({row.tobytes() for row in turned} | {row.astype(np.float32).tobytes() for row in OTHERS}) == 10


def test_with_sight_creeping_starts_from_the_honest():
    """Creeping starts from the honest mean, even if attackers learned something else; without sight, from their own."""
    settings = {"knowledge": "full", "step": 0.25, "start": 1, "longest": 10}
    np.testing.assert_array_equal(crafted("creep", **settings), crafted("creep", own=OWN - 9.0, **settings))
    usual = np.median(np.linalg.norm(OTHERS, axis=1))
    mean = OTHERS.mean(axis=0) * usual / np.linalg.norm(OTHERS.mean(axis=0))
    aim = direction_of("orthogonal", MODEL.astype(np.float64))
    for row in crafted("creep", spread=0, **settings):
        np.testing.assert_allclose(row, mean + 0.25 * usual * aim, rtol=1e-5)
    settings = {"knowledge": "full", "start": 1}
    expected = creep(OWN, direction_of("orthogonal", MODEL.astype(np.float64)), 0.25, 1.0, 2.0).astype(np.float32)
    np.testing.assert_array_equal(crafted("creep", others=OTHERS[:0], **settings), expected)


def test_jitter_tells_colluders_apart():
    """Each adds noise of its own, of the size that was asked for; without it all send the same."""
    for name in ["lie", "fang-krum", "inner-product", "min-max", "min-sum"]:
        plain, hidden = crafted(name), crafted(name, jitter=1)
        assert (plain == plain[0]).all()
        assert len({row.tobytes() for row in hidden}) == len(hidden)
        spread = (hidden - plain) / OWN.std(axis=0)
        assert 0.5 < spread.std() < 1.5
        np.testing.assert_allclose(
            (crafted(name, jitter=0.1) - plain) / OWN.std(axis=0), 0.1 * spread, rtol=1e-3, atol=1e-4
        )


def test_fang_attacks_the_krum_it_believes_in():
    """With full knowledge the rule's m, of another rule its own number; seed and round decide what is random."""
    everybody = np.concatenate([OWN, OTHERS])
    for rule, tolerated in ((read_rule("krum", byzantine=2), 2), (read_rule("multi-krum", byzantine=1), 1), (MEAN, 3)):
        expected, _ = fang_krum(OTHERS, reversed_direction(everybody), 3, tolerated)
        rows = crafted("fang-krum", rule=rule, knowledge="full")
        np.testing.assert_array_equal(rows, np.tile(expected.astype(np.float32), (3, 1)))
    np.testing.assert_array_equal(crafted("fang-krum")[0], fang_krum_partial(OWN).astype(np.float32))
    first = crafted("fang-trimmed-mean")
    np.testing.assert_array_equal(first, crafted("fang-trimmed-mean"))
    assert (first != crafted("fang-trimmed-mean", round_number=2)).any()
    assert (first[0] != first[1]).any(), "each attacker draws its own"
