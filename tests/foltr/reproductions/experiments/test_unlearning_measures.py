"""Figures of forgetting: which models are measured, how, and claims that can fail."""

import pytest
from made_results import outcome as made_outcome
from made_results import profile

from foltr.reproductions.claims import Status
from foltr.reproductions.experiment import CLICKS
from foltr.reproductions.experiments.unlearning_measures import (
    AGAIN,
    BEFORE,
    ERASER,
    ERASER_LOG,
    HONEST,
    LATE,
    POISONER,
    RETRAINED,
    ROLLBACK,
    ROLLBACK_LOG,
    costs_table,
    figures_table,
    leavers,
    outcomes_of,
)
from foltr.reproductions.outcomes import Outcome, Results
from foltr.reproductions.registry import EXPERIMENTS
from foltr.simulation.config import SimulationConfig

NAMED = leavers(40)


def claim(text):
    return next(one for one in EXPERIMENTS["unlearning"].claims if text in one.text)


def measured(leaver, seed=2):
    config = SimulationConfig(data="synthetic", rounds=40, eval_every=20, seed=seed)
    return Results(tuple(outcomes_of(config, leaver, NAMED[leaver])), profile())


def made(**by_model):
    """Two seeds of each model with all click models; figures not given are those of a perfect unlearning."""
    good = {"ndcg": 0.5, "distance": 0.1, "cosine": 0.9, "training": 0.5, "loss": 0.6, "steps": 4.0}
    models = {model: {**good, **by_model.get(model, {})} for model in (RETRAINED, BEFORE, AGAIN, ERASER, ERASER_LOG)}
    found = []
    for model, figures in models.items():
        for clicks in CLICKS:
            for seed in (1, 2):
                one = made_outcome({"leaver": HONEST, "model": model, "clicks": clicks}, seed, figures["ndcg"])
                noisy = {name: value + 0.0001 * seed for name, value in figures.items()}
                seconds = {"learning": figures.get("seconds", 0.1), "wall": None}
                result = {**one.result, "unlearning": noisy, "seconds": seconds}
                found.append(Outcome(one.labels, None, seed, one.config, result))
    nobody = made_outcome({"leaver": "nobody", "model": RETRAINED, "clicks": "perfect"}, 1, 0.5)
    return Results((*found, nobody), profile())


@pytest.mark.parametrize("leaver", [POISONER, LATE, HONEST])
def test_every_way_to_forget_is_measured(leaver):
    """Rollback only where there is something before the leaver."""
    expected = {BEFORE, RETRAINED, AGAIN, ERASER, ERASER_LOG, *((ROLLBACK, ROLLBACK_LOG) if leaver == LATE else ())}
    found = measured(leaver)
    assert {one.labels["model"] for one in found} == expected
    assert found.labels("leaver") == (leaver,)
    for one in found:
        figures = one.result["unlearning"]
        assert -1.0 <= figures["cosine"] <= 1.0
        assert figures["loss"] > 0.0
    [reference] = found.select({"model": RETRAINED})
    assert (reference.result["unlearning"]["distance"], reference.result["unlearning"]["cosine"]) == (0.0, 1.0)


def test_the_late_leaver_joins_in_a_stored_round():
    """Half the rounds are before it, and rollback replays the other half."""
    assert leavers(1_000)[LATE].joined == 501
    [rolled_back] = measured(LATE).select({"model": ROLLBACK})
    assert rolled_back.result["unlearning"]["steps"] == 2.0


def test_tables_have_every_model():
    """Figures by click model; costs relative to the second retraining."""
    found = measured(LATE, seed=1)
    figures, costs = figures_table(found), costs_table(found)
    assert figures.count(f"| {LATE} |") == 7
    assert "nan" not in costs
    assert f"| {LATE} | {ROLLBACK} | 2 | 33.3 |" in costs
    assert f"| {LATE} | {ERASER} | 4 | 16.7 |" in costs
    assert AGAIN not in costs


def test_device_code_is_timed_once():
    """By the first seed: it is slow, and says the same for each."""
    timed = [one.labels["model"] for one in measured(POISONER, seed=1) if "device_seconds" in one.result["unlearning"]]
    assert timed == [AGAIN, ERASER, ERASER_LOG]
    assert not any("device_seconds" in one.result["unlearning"] for one in measured(POISONER))


def test_the_grids_run_is_in_no_table():
    """It is there for the harness, and has no figures."""
    found = made()
    assert "nobody" not in figures_table(found)
    assert "nobody" not in costs_table(found)


@pytest.mark.parametrize(
    ("text", "good", "bad"),
    [
        ("Fed_eraser ranks", {"ndcg": 0.495}, {"ndcg": 0.48}),
        ("where retraining ends", {"cosine": 0.95}, {"cosine": 0.85}),
        ("takes nothing", {"training": 0.495}, {"training": 0.48}),
        ("as many times faster", {"seconds": 0.1 / 17}, {"seconds": 0.1 / 16}),
    ],
)
def test_claims(text, good, bad):
    """Each holds of a figure on one side of its bound, and not on the other."""
    assert claim(text).check(made(**{ERASER: good})).status is Status.CONFIRMED
    assert claim(text).check(made(**{ERASER: bad})).status is Status.NOT_CONFIRMED


def test_claims_without_runs_are_not_testable():
    """Rollback where nobody joined late; anything where nothing was run."""
    assert claim("Rollback ranks").check(made()).status is Status.NOT_TESTABLE
    for one in EXPERIMENTS["unlearning"].claims:
        assert one.check(Results((), profile())).status is Status.NOT_TESTABLE
