"""The attack on forgotten clients: which federations it needs, what it tells, and claims that can fail."""

from dataclasses import replace

import numpy as np
import pytest
from made_results import outcome as made_outcome
from made_results import profile

from foltr_research.reproductions.claims import Status
from foltr_research.reproductions.experiments import unlearning_canary
from foltr_research.reproductions.experiments.unlearning_canary import (
    ATTACKED,
    BEFORE,
    JUDGED,
    LEAST_JUDGED,
    NOBODY,
    SHADOW,
    STRENGTHS,
    THRESHOLD,
    WITH,
    WITHOUT,
    Part,
    infer_membership,
    outcomes_of,
    pulls,
    table,
)
from foltr_research.reproductions.outcomes import Results
from foltr_research.reproductions.registry import EXPERIMENTS
from foltr_research.simulation.clients.loading import load_experiment
from foltr_research.simulation.config import SimulationConfig
from foltr_research.simulation.unlearning.departure import Leaver, UnlearningSimulation
from foltr_research.simulation.unlearning.marked_documents import marked_population
from foltr_research.simulation.unlearning.strategies import AGAIN, LATE_WAYS, LONG, MIDDLE, REMOVE, WAYS, federate

PLACE = "perfect"


def claim(text):
    return next(one for one in EXPERIMENTS["unlearning-canary"].claims if text in one.text)


def made(n_judged=20, **shifts):
    """Normal pulls of federations to judge, the canary's of some models shifted by so many standard deviations."""
    rng, found = np.random.default_rng(1), []
    for canary, parts in ((NOBODY, WITHOUT), *((canary, WITH) for canary in STRENGTHS)):
        for name, part in parts.items():
            for seed in range(part.first, part.first + (part.seeds or n_judged)):
                values = dict(zip((BEFORE, *ATTACKED), rng.normal(size=1 + len(ATTACKED)).tolist(), strict=True))
                for model, shift in shifts.items():
                    values[model] += shift if canary != NOBODY else 0.0
                one = made_outcome({"canary": canary, "part": name, "clicks": PLACE}, seed, 0.5)
                found.append(replace(one, result={**one.result, "pulls": values}))
    unmarked = made_outcome({"canary": "no marks", "clicks": PLACE}, 1, 0.5)
    return Results((unmarked, *found), profile())


def test_every_federation_has_the_pull_of_every_model(monkeypatch):
    """As many with each strength as without, but for the threshold; retraining is the same for a seed."""
    monkeypatch.setattr(
        unlearning_canary, "WITHOUT", {SHADOW: Part(1, 1), THRESHOLD: Part(11, 1), JUDGED: Part(21, None)}
    )
    monkeypatch.setattr(unlearning_canary, "WITH", {SHADOW: Part(31, 1), JUDGED: Part(41, None)})
    ways = {name: ATTACKED[name] for name in (AGAIN, REMOVE)}
    monkeypatch.setattr(unlearning_canary, "ATTACKED", ways)
    config = SimulationConfig(data="synthetic", rounds=6, eval_every=6)
    found = list(outcomes_of(config, 2))
    seen = [(one.labels["canary"], one.labels["part"], one.seed) for one in found]
    nobody = [(NOBODY, SHADOW, 1), (NOBODY, THRESHOLD, 11), (NOBODY, JUDGED, 21), (NOBODY, JUDGED, 22)]
    assert seen[:4] == nobody
    assert seen[4:] == [
        (canary, part, seed) for canary in STRENGTHS for part, seed in ((SHADOW, 31), (JUDGED, 41), (JUDGED, 42))
    ]
    for one in found:
        assert set(one.result["pulls"]) == {BEFORE, *ways}
    again = {one.result["pulls"][AGAIN] for one in found if one.seed == 41}
    assert len(again) == 1
    assert len({one.result["pulls"][BEFORE] for one in found if one.seed == 41}) == len(STRENGTHS)


def test_what_learns_anew_from_fresh_interactions_knows_nothing_of_the_leaver():
    """The same model to the bit, whatever it liked; what adds stored updates up is another one."""
    of = SimulationConfig(data="synthetic", rounds=20, eval_every=20, seed=3)
    models = []
    for strength in (0.0, 1.0):
        simulation = UnlearningSimulation(
            of, marked_population(of, load_experiment(of), strength), Leaver(9, z=None, joined=11)
        )
        history = federate(simulation)
        ways = {**WAYS, **LATE_WAYS}
        models.append({name: ways[name](simulation, history).weights for name in (AGAIN, LONG, MIDDLE, REMOVE)})
    none, loud = models
    for name in (AGAIN, LONG, MIDDLE):
        np.testing.assert_array_equal(none[name], loud[name])
    assert not np.array_equal(none[REMOVE], loud[REMOVE])


def test_a_shifted_pull_is_told_whatever_its_sign():
    """And one that is not shifted is not; both models tell what one tells; the table has all of them."""
    found = made(**{BEFORE: 8.0, REMOVE: -8.0})
    for model, sign in ((BEFORE, 1), (REMOVE, -1)):
        one = infer_membership(found, "loud", (model,))
        assert one.shift * sign > 4.0
        assert one.rate.estimate == one.area.estimate == 1.0
        assert one.mistaken.estimate < 0.4
    guess = infer_membership(found, "loud", (AGAIN,))
    assert abs(guess.shift) < 1.0
    assert guess.area.low < 0.5 < guess.area.high
    assert guess.rate.estimate < 0.4
    found = made(**{BEFORE: 8.0})
    assert infer_membership(found, "loud", (BEFORE, AGAIN)).area.estimate > 0.98
    found = made()
    text = table(found)
    for model in (BEFORE, *ATTACKED):
        assert text.count(f"| {model} |") == len(STRENGTHS)
    assert "nan" not in text
    header, *lines = pulls(found)
    assert len(header) == len(lines[0])
    assert len(lines) == (59 + 3 * 40) * (1 + len(ATTACKED))


def test_no_seed_has_two_parts():
    """Nobody is judged by itself, up to the seeds of the full scale."""
    most = max(EXPERIMENTS["unlearning-canary"].seeds.values())
    parts = [
        range(part.first, part.first + (part.seeds or most)) for parts in (WITHOUT, WITH) for part in parts.values()
    ]
    seeds = [seed for part in parts for seed in part]
    assert len(seeds) == len(set(seeds))


@pytest.mark.parametrize(
    ("text", "good", "bad"),
    [
        ("Before it is forgotten", {BEFORE: 3.0}, {}),
        (f"after {REMOVE}", {}, {REMOVE: -3.0}),
        (f"after {REMOVE}", {}, {REMOVE: -1.0}),
        ("adds nothing to what the model before", {BEFORE: 8.0}, {REMOVE: -8.0}),
    ],
)
def test_claims(text, good, bad):
    """Each holds of pulls on one side of its bound, and not on the other; too few federations show neither."""
    assert claim(text).check(made(**good)).status is Status.CONFIRMED
    assert claim(text).check(made(**bad)).status is Status.NOT_CONFIRMED
    assert claim(text).check(made(LEAST_JUDGED - 1, **bad)).status is Status.NOT_TESTABLE
