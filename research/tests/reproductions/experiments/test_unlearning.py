"""The comparison of ways to forget: its tables, and claims that can fail."""

import pytest
from made_results import outcome as made_outcome
from made_results import profile

from foltr_research.reproductions.claims import Status
from foltr_research.reproductions.experiment import CLICKS
from foltr_research.reproductions.experiments.thesis_unlearning import RETRAINED
from foltr_research.reproductions.experiments.unlearning import costs_tables, figure_rows, ranking_tables, trace_tables
from foltr_research.reproductions.experiments.unlearning_measures import BEFORE, HONEST, IID, LATE, POISONER, RESET
from foltr_research.reproductions.outcomes import Outcome, Results
from foltr_research.reproductions.registry import EXPERIMENTS
from foltr_research.simulation.unlearning.strategies import (
    ASCENT,
    ERASER,
    FINE_TUNING,
    LATE_WAYS,
    LONG_LOG,
    MIDDLE,
    REMOVE,
    ROLLBACK,
    WAYS,
)

GOOD = {
    "ndcg": 0.5,
    "distance": 0.1,
    "cosine": 0.9,
    "overlap": 0.8,
    "gap": 0.0,
    "others": 0.5,
    "own": 0.2,
    "own_loss": 0.6,
    "steps": 4.0,
    "updates": 36.0,
    "bytes": 5000.0,
    "seconds": 0.1,
}


def claim(text):
    """Return the claim of these words, or the one in which they are."""
    claims = EXPERIMENTS["unlearning"].claims
    [found] = [one for one in claims if text == one.text] or [one for one in claims if text in one.text]
    return found


def made(leavers=(POISONER, LATE, HONEST, RESET), **by_model):
    """Two seeds of each model with all click models; figures not given are those of a perfect unlearning."""
    found = []
    for leaver in leavers:
        models = (RETRAINED, BEFORE, *WAYS, *(LATE_WAYS if leaver == LATE else ()))
        for model in models:
            for clicks in CLICKS:
                labels = {"population": IID, "leaver": leaver, "model": model, "clicks": clicks}
                found += [_made(labels, seed, {**GOOD, **by_model.get(model, {})}) for seed in (1, 2)]
    return Results(tuple(found), profile())


def _made(labels, seed, figures):
    one = made_outcome(labels, seed, figures["ndcg"])
    noisy = {name: value + 0.0001 * seed * (name != "seconds") for name, value in figures.items()}
    return Outcome(one.labels, None, seed, one.config, {**one.result, "figures": noisy})


def test_ranking_traces_and_costs_are_told_against_retraining():
    """The mean, how much it is short of retraining, distances, how many times faster, and all figures."""
    table = ranking_tables(made(**{ERASER: {"ndcg": 0.48}}))
    assert table.count("| model | perfect | navigational | informational |") == 4
    assert table.count(f"| {ERASER} |" + " 0.480 (+0.020 ± 0.000) |" * 3) == 4
    assert table.count(f"| {ROLLBACK} |") == 1
    table = trace_tables(made(**{REMOVE: {"own": 0.3, "distance": 0.4}}))
    row = next(line for line in table.splitlines() if line.startswith(f"| {REMOVE} |"))
    cells = [cell.strip() for cell in row.split("|")[2:-1]]
    assert cells[0].startswith("0.400 ±")
    assert cells[5] == "+0.100 ± 0.000"
    assert cells[4] == "+0.000 ± 0.000"
    table = costs_tables(made(**{ERASER: {"seconds": 0.05}, MIDDLE: {"seconds": 0.2}}))
    rows = [line for line in table.splitlines() if line.startswith(f"| {ERASER} |")]
    assert rows[0] == f"| {ERASER} | 4 | 36 | 5 | 0.050 | 2.0 | - |"
    assert rows[1] == f"| {ERASER} | 4 | 36 | 5 | 0.050 | 2.0 | 4.0 |"
    assert not any(line.startswith((f"| {RETRAINED} |", f"| {BEFORE} |")) for line in table.splitlines())
    head, *rows = figure_rows(made((HONEST,)))
    assert head == ["population", "leaver", "clicks", "model", "seed", *GOOD]
    assert rows[0] == [IID, HONEST, "perfect", RETRAINED, "1", "0.5001", *rows[0][6:]]
    assert len(rows) == 2 * len(CLICKS) * (2 + len(WAYS))
    assert len(figure_rows(Results((), profile()))) == 1


@pytest.mark.parametrize(
    ("text", "model", "good", "bad"),
    [
        ("Fed_eraser ranks", ERASER, {"ndcg": 0.495}, {"ndcg": 0.48}),
        ("Rollback ranks", ROLLBACK, {"ndcg": 0.495}, {"ndcg": 0.48}),
        ("Gradient ascent ranks", ASCENT, {"ndcg": 0.495}, {"ndcg": 0.48}),
        (f"Fed_remove ranks as well as retraining, where the leaver is: {HONEST}", REMOVE, {}, {"ndcg": 0.48}),
        (f"Long steps, log ranks as well as retraining, where the leaver is: {LATE}", LONG_LOG, {}, {"ndcg": 0.48}),
        ("towards the retrained one", ERASER, {"cosine": 0.95}, {"cosine": 0.85}),
        ("takes nothing from the clients that stay", ERASER, {"others": 0.495}, {"others": 0.48}),
        ("better than the poisoned one", ERASER, {"ndcg": 0.51}, {"ndcg": 0.49}),
        ("going on without the client", ERASER, {"ndcg": 0.51}, {"ndcg": 0.5}),
        ("takes less from the others", REMOVE, {"others": 0.51}, {"others": 0.5}),
        (f"taught the opposite after {FINE_TUNING}", FINE_TUNING, {"own": 0.205}, {"own": 0.22}),
        ("as many times faster", ERASER, {"seconds": 0.1 / 17}, {"seconds": 0.1 / 16}),
    ],
)
def test_claims(text, model, good, bad):
    """Each holds of a figure on one side of its bound, and not on the other."""
    assert claim(text).check(made(**{model: good})).status is Status.CONFIRMED
    assert claim(text).check(made(**{model: bad})).status is Status.NOT_CONFIRMED


def test_runs_of_others_change_nothing():
    """Neither those of the grid, which have no figures, in a table, nor those of one leaver in a claim on another."""
    nobody = made_outcome({"leaver": "nobody", "model": RETRAINED, "clicks": "perfect"}, 1, 0.5)
    found = made((LATE,))
    more = Results((*found, nobody), found.data)
    for table in (ranking_tables, trace_tables, costs_tables):
        assert table(more) == table(found)
    assert [one.check(more) for one in EXPERIMENTS["unlearning"].claims] == [
        one.check(found) for one in EXPERIMENTS["unlearning"].claims
    ]
    poisoned = made((POISONER,), **{REMOVE: {"ndcg": 0.4}})
    both = Results((*poisoned, *made((HONEST,))), poisoned.data)
    assert (
        claim(f"Fed_remove ranks as well as retraining, where the leaver is: {HONEST}").check(both).status
        is Status.CONFIRMED
    )
    assert (
        claim(f"Fed_remove ranks as well as retraining, where the leaver is: {POISONER}").check(both).status
        is Status.NOT_CONFIRMED
    )
