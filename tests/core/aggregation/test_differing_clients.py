"""Clients that differ and pull with the others are bounded, not left out, if the operator says that clients differ."""

import pytest
from support.adaptive_rounds import Attack, Federation, clipped, dropped

from foltr.core.aggregation.rule_spec import read_rule
from foltr.core.errors import SettingsError

DIFFERING = read_rule("adaptive", parameters={"differing": "1"})
DIRECTION = Federation().direction


def eager(rows, _):
    """They deviate steadily, in the direction of the others."""
    return rows + 0.7 * DIRECTION


def long_lists(rows, _):
    """They are steadily eight times as long, and otherwise like the others."""
    return 8.0 * rows


@pytest.mark.parametrize(("taste", "evidence"), [(eager, "deviates steadily"), (long_lists, "times as long as usual")])
def test_a_rare_taste_is_left_out_only_without_the_option(taste: Attack, evidence: str) -> None:
    """With it the same clients are drawn in or shortened in the end, so that they lead nobody far."""
    usual = Federation(n_attackers=2, attack=taste).play(100)
    assert usual.ever_dropped() == usual.attackers
    assert all(evidence in finding.detail for finding in usual.found("defence_raised"))
    federation = Federation(n_attackers=2, attack=taste, spec=DIFFERING).play(100)
    assert federation.ever_dropped() == set()
    assert clipped(federation.played[-1]) >= federation.attackers


@pytest.mark.parametrize("n_attackers", [1, 4])
@pytest.mark.parametrize("factor", [-1.0, -3.0])
def test_who_pulls_against_the_others_is_left_out_all_the_same(n_attackers: int, factor: float) -> None:
    """And nobody else."""
    federation = Federation(n_attackers=n_attackers, attack=lambda rows, _: factor * rows, spec=DIFFERING).play(60)
    assert dropped(federation.played[-1]) == federation.attackers == federation.ever_dropped()


def test_the_option_lets_in_who_was_left_out_before() -> None:
    """From the next round on, with the evidence that is there; without it they are left out again."""
    federation = Federation(n_attackers=2, attack=eager).play(100)
    assert dropped(federation.played[-1]) == federation.attackers
    federation.spec = DIFFERING
    federation.play(1)
    assert dropped(federation.played[-1]) == set()
    assert {finding.client_id for finding in federation.played[-1].report.findings} == federation.attackers
    federation.spec = read_rule("adaptive")
    federation.play(1)
    assert dropped(federation.played[-1]) == federation.attackers


def test_it_is_yes_or_no() -> None:
    """Nothing in between, and no by default."""
    assert read_rule("adaptive").parameter("differing") == 0.0
    with pytest.raises(SettingsError, match=r"differing=0\.5 must be a whole number from 0 to 1"):
        read_rule("adaptive", parameters={"differing": 0.5})


def test_no_other_rule_has_it() -> None:
    """If the operator changes the rule, as for secure sums, the forgotten parameter is refused, not ignored."""
    with pytest.raises(SettingsError, match="median has no parameter 'differing'"):
        read_rule("median", parameters={"differing": "1"})
