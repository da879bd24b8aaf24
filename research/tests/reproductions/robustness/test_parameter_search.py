"""A small search for harmful parameters: the same every time, on seeds of its own, and it finds harm where there is."""

import pytest

from foltr_research.attacks.registry import read_attack
from foltr_research.reproductions.harness import profile_data
from foltr_research.reproductions.registry import EXPERIMENTS
from foltr_research.reproductions.robustness import attacks_by_rule, parameter_search
from foltr_research.reproductions.robustness.aware_attacks import AWARE, parameters_of, with_feature
from foltr_research.reproductions.robustness.parameter_search import SEEDS, candidates, search


@pytest.mark.parametrize("name", AWARE)
def test_candidates_are_settings_of_the_attack(name):
    """Distinct, the defaults among them, and never one that says the attack is another; the same every time."""
    found = candidates(name, 12)
    assert found == candidates(name, 12)
    assert found[0] == {}
    assert len({str(sorted(one.items())) for one in found}) == len(found)
    for one in found:
        assert not one.keys() & AWARE[name].settings.keys()
        read_attack(AWARE[name].attack, with_feature({**one, **AWARE[name].settings}, 46))


@pytest.mark.parametrize("name", AWARE)
def test_what_was_chosen_can_be_run(name):
    """It is a setting of the attack, with the feature that the data has."""
    read_attack(AWARE[name].attack, with_feature(parameters_of(name), 46))


def test_seeds_of_the_search_are_not_reported():
    """Experiments report the seeds from 1 on."""
    experiment = EXPERIMENTS["robustness-aware"]
    assert min(SEEDS) > max(experiment.seeds.values())


def test_a_feature_is_demoted_that_rankers_like():
    """BM25 of the whole document where the data is known; nothing where no feature is aimed at."""
    demoted = {"towards": "feature"}
    assert [with_feature(demoted, n)["feature"] for n in (46, 136, 8)] == [25, 110, 1]
    assert with_feature({"towards": "reverse"}, 46) == {"towards": "reverse"}


def test_the_most_harmful_candidate_is_found(monkeypatch):
    """Under a mean any of them does harm; a bias of a usual length does more than none at all."""
    monkeypatch.setitem(attacks_by_rule.ROUNDS, "quick", 40)
    monkeypatch.setattr(parameter_search, "CLICKS", ("informational",))
    tried = [{"step": 0.0}, {"step": 1.0, "start": 2, "longest": 4}, {"step": 0.01}]
    monkeypatch.setattr(parameter_search, "candidates", lambda *_: tried)
    data = [profile_data("synthetic", "quick")]
    found = search(["creep"], "mean", data, attackers=4, tries=3, jobs=1)
    assert found["creep"].parameters == tried[1]
    assert found["creep"].n_tried == 3
    assert found["creep"].kept < 0.95
    assert found == search(["creep"], "mean", data, attackers=4, tries=3, jobs=1)
