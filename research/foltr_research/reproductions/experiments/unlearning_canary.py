"""What an outsider can infer about a client by its mark, from the models before and after it is forgotten. Ours.

In half of the federations a client likes marked documents, faintly to strongly. In the others the same client clicks
like anybody. In both it joins in the middle and is forgotten after the last round. So only the remains of the
preference differ, not the existence of a job or the length of the model. The outsider of
`foltr_research.attacks.canary` judges federations by shadows with other seeds.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foltr_research.attacks.canary import Interval, area_under_curve, likelihood_ratios, pull_of_mark, threshold, wilson
from foltr_research.reproductions.claims import NOTHING, Check, Claim, Status, Verdict
from foltr_research.reproductions.experiment import CLICKS, Experiment, Scale, Section, Variant
from foltr_research.reproductions.experiments.foltr_es import eval_every
from foltr_research.reproductions.experiments.thesis_unlearning import CLIENTS, INTERACTIONS, LEAVER, outcome
from foltr_research.reproductions.outcomes import DataProfile, Outcome, Results
from foltr_research.reproductions.report import markdown
from foltr_research.simulation.clients.loading import load_experiment
from foltr_research.simulation.clients.population import Population
from foltr_research.simulation.config import SimulationConfig
from foltr_research.simulation.unlearning.departure import Leaver, UnlearningSimulation
from foltr_research.simulation.unlearning.history import History
from foltr_research.simulation.unlearning.marked_documents import MARKED_SHARE, marked_population
from foltr_research.simulation.unlearning.rounds import Trained
from foltr_research.simulation.unlearning.strategies import AGAIN, LATE_WAYS, LONG, MIDDLE, WAYS, Way, federate

UNMARKED, NOBODY = "no marks", "nobody"
STRENGTHS: Mapping[str, float] = {"loud": 1.0, "clear": 0.2, "faint": 0.05}
FALSE_POSITIVE_RATE = 0.1
TOLERANCE = 0.05
# The area under the curve of a guess has the standard error sqrt((2 n + 1) / 12) / n for n federations of each kind
# (Mann and Whitney 1947): with fewer one of 0.7 would not be above 0.5.
LEAST_JUDGED = 17

BEFORE = "before"
# Learning from fresh interactions uses nothing of the leaver, so one of these ways stands for all.
ATTACKED: Mapping[str, Way] = {name: way for name, way in {**WAYS, **LATE_WAYS}.items() if name not in {MIDDLE, LONG}}

_ROUNDS: Mapping[Scale, int] = {"quick": 1_000, "full": 10_000}
_CLICKS: Mapping[Scale, Sequence[str]] = {"quick": ("navigational",), "full": CLICKS}
_SEEDS: Mapping[Scale, int] = {"quick": 24, "full": 100}


@dataclass(frozen=True)
class Part:
    """The role of federations in the attack.

    Attributes:
        first: their first seed; roles share no seeds.
        seeds: their number; None for the number to be judged.
    """

    first: int
    seeds: int | None


SHADOW, THRESHOLD, JUDGED = "shadow", "threshold", "judged"
WITHOUT: Mapping[str, Part] = {SHADOW: Part(1, 20), THRESHOLD: Part(1_001, 19), JUDGED: Part(2_001, None)}
WITH: Mapping[str, Part] = {SHADOW: Part(3_001, 20), JUDGED: Part(4_001, None)}


@dataclass(frozen=True)
class InferenceResult:
    """What the outsider inferred about the judged federations.

    Attributes:
        shift: mean pull with the canary minus that without, in standard deviations without. Below 0, unlearning removed
            more than the canary had brought.
        rate: true positives among those with the canary.
        mistaken: false positives among those without.
        area: under the curve of both rates.
    """

    shift: float
    rate: Interval
    mistaken: Interval
    area: Interval


def infer_membership(results: Results, canary: str, models: Sequence[str]) -> InferenceResult:
    """Attack the federations of one click model.

    Args:
        models: those of each federation that the outsider sees; the shift is the last one's.
    """

    def pulls(who: str, part: str) -> NDArray[np.float64]:
        there = results.select({"canary": who, "part": part})
        return np.array([[one.result["pulls"][model] for model in models] for one in there], np.float64)

    shadows = pulls(canary, SHADOW), pulls(NOBODY, SHADOW)
    above = threshold(likelihood_ratios(*shadows, pulls(NOBODY, THRESHOLD)), FALSE_POSITIVE_RATE)
    with_canary, without = pulls(canary, JUDGED), pulls(NOBODY, JUDGED)
    ratios, of_others = likelihood_ratios(*shadows, with_canary), likelihood_ratios(*shadows, without)
    apart = with_canary[:, -1].mean() - without[:, -1].mean()
    return InferenceResult(
        float(apart / without[:, -1].std(ddof=1)),
        wilson(int((ratios > above).sum()), len(ratios)),
        wilson(int((of_others > above).sum()), len(of_others)),
        area_under_curve(ratios, of_others),
    )


def _grid(scale: Scale, data: DataProfile) -> list[Variant]:  # noqa: ARG001
    return [
        Variant({"canary": UNMARKED, "clicks": clicks}, federation(scale, clicks, CLIENTS - 1))
        for clicks in _CLICKS[scale]
    ]


def federation(scale: Scale, clicks: str, clients: int = CLIENTS) -> SimulationConfig:
    """A federation with the scale's number of rounds."""
    rounds = _ROUNDS[scale]
    values = {"clients": clients, "interactions": INTERACTIONS, "rounds": rounds, "eval_every": eval_every(rounds)}
    return SimulationConfig.read({**values, "clicks": clicks})


def _more(scale: Scale, data: DataProfile, n_seeds: int) -> Sequence[Outcome]:
    fold = data.folds[0] if data.folds else None
    configs = [federation(scale, clicks).changed(data=data.data, fold=fold) for clicks in _CLICKS[scale]]
    return [one for config in configs for one in outcomes_of(config, n_seeds)]


def outcomes_of(config: SimulationConfig, n_judged: int) -> Iterator[Outcome]:
    """Return all federations that the attack needs, each with the mark's pull on all its models."""
    worlds = [(NOBODY, 0.0, WITHOUT), *((canary, strength, WITH) for canary, strength in STRENGTHS.items())]
    retrained: dict[int, float] = {}
    for canary, strength, parts in worlds:
        for name, part in parts.items():
            for seed in range(part.first, part.first + (part.seeds or n_judged)):
                of = config.changed(seed=seed)
                history, found = _attacked(of, marked_population(of, load_experiment(of), strength), retrained)
                yield outcome({"canary": canary, "part": name}, of, history.trained, pulls=found)


def _attacked(
    config: SimulationConfig, population: Population, retrained: dict[int, float]
) -> tuple[History, dict[str, float]]:
    """Return a federation, and the mark's pull on each model. That of retraining is kept by seed."""
    simulation = UnlearningSimulation(config, population, Leaver(LEAVER, z=None, joined=config.rounds // 2 + 1))
    history = federate(simulation)
    features = population.tests[0].features

    def pull(trained: Trained) -> float:
        return pull_of_mark(simulation.ranker, trained.weights, features, features.shape[1] - 1)

    found = {BEFORE: pull(history.trained)}
    for name, way in ATTACKED.items():
        if name != AGAIN:
            found[name] = pull(way(simulation, history))
        elif config.seed not in retrained:  # slow, and independent of the leaver's preference
            retrained[config.seed] = pull(way(simulation, history))
    return history, {BEFORE: found[BEFORE], AGAIN: retrained[config.seed]} | found


_LIKED = ", ".join(f"{strength:g} ({canary})" for canary, strength in STRENGTHS.items())
_EXPLANATION = f"""\
A client likes marked documents ({MARKED_SHARE:.0%} of all, relevant or not): if it examines one, it clicks it because
of the mark with a probability of {_LIKED}. It joins in the middle and is forgotten after the last round.
**Shift** compares the mark's mean pull on scores with federations where the same client clicks like the others, in
standard deviations of these; below 0, unlearning took away more than the client had brought. **Detected** is the share
of the federations with the canary that the outsider recognised by this model, **false alarms** the share of those
without that it mistook for one. {FALSE_POSITIVE_RATE:.0%} of both is a guess, and so is an AUC of 0.5. The last two
columns use this model and the one before together. In brackets: 95 % intervals over federations with different seeds.
`foltr_research.simulation.unlearning.strategies` describes the ways. Ways that learn from fresh interactions know as
little of the leaver as `{AGAIN}`.
"""


def table(results: Results) -> str:
    """Return a table for each click model and strength: what each model reveals, alone and with the one before."""
    measured = _with_pulls(results)
    parts = [_EXPLANATION]
    header = ["model", "shift", "detected", "false alarms", "AUC", "detected, with before", "AUC, with before"]
    for clicks in measured.labels("clicks"):
        there = measured.select({"clicks": clicks})
        for canary in _canaries(there):
            rows = [_row(there, canary, model) for model in (BEFORE, *ATTACKED)]
            parts.append(f"**{clicks} clicks, {canary}**\n\n" + markdown(header, rows, 1))
    return "\n".join(parts)


def pulls(results: Results) -> list[list[str]]:
    """Return every number that the outsider sees, one line each."""
    header = ["clicks", "canary", "part", "seed", "model", "pull"]
    labels = ("clicks", "canary", "part")
    return [
        header,
        *(
            [*(one.labels[key] for key in labels), str(one.seed), model, f"{pull:.6g}"]
            for one in _with_pulls(results)
            for model, pull in one.result["pulls"].items()
        ),
    ]


def _row(results: Results, canary: str, model: str) -> list[str]:
    alone = infer_membership(results, canary, (model,))
    cells = [f"{alone.shift:+.1f}", alone.rate, alone.mistaken, alone.area]
    if model == BEFORE:
        cells += ["-", "-"]
    else:
        both = infer_membership(results, canary, (BEFORE, model))
        cells += [both.rate, both.area]
    return [model, *map(str, cells)]


def _with_pulls(results: Results) -> Results:
    return Results(tuple(one for one in results if "pulls" in one.result), results.data)


def _canaries(results: Results) -> list[str]:
    return [one for one in results.labels("canary") if one != NOBODY]


def _areas(results: Results, models: Sequence[str]) -> dict[str, Interval]:
    """Return the areas under the curve, by click model and strength."""
    measured = _with_pulls(results)
    return {
        f"{clicks}, {canary}": infer_membership(measured.select({"clicks": clicks}), canary, models).area
        for clicks in measured.labels("clicks")
        for canary in _canaries(measured.select({"clicks": clicks}))
    }


def _everywhere(model: str, holds: Callable[[Interval], bool]) -> Check:
    """Check the area under the curve of a model everywhere."""

    def check(results: Results) -> Verdict:
        found = _areas(results, (model,))
        return _verdict(results, {f"{place} {area}": holds(area) for place, area in found.items()})

    return check


def _before_tells_as_much(results: Results) -> Verdict:
    """For all ways, the model before unlearning has almost the area of both together (within the tolerance)."""
    before, held = _areas(results, (BEFORE,)), {}
    for way in ATTACKED:
        for place, both in _areas(results, (BEFORE, way)).items():
            held[f"{way}, {place} {both} from {before[place].estimate:.2f}"] = (
                both.low <= before[place].estimate + TOLERANCE
            )
    return _verdict(results, held, only_failed=True)


def _verdict(results: Results, held: Mapping[str, bool], *, only_failed: bool = False) -> Verdict:
    if not held:
        return NOTHING
    if (n := len({one.seed for one in results.select({"canary": NOBODY, "part": JUDGED})})) < LEAST_JUDGED:
        return Verdict(Status.NOT_TESTABLE, f"{n} federations of each kind to judge; it takes {LEAST_JUDGED}")
    numbers = "; ".join(place for place, holds in held.items() if not (only_failed and holds))
    status = Status.CONFIRMED if all(held.values()) else Status.NOT_CONFIRMED
    return Verdict(status, f"{sum(held.values())} of {len(held)}" + (f": {numbers}" if numbers else ""))


_PLACES = "for each click model and strength: the 95 % interval of the area under the curve"
_OURS = "ours"
_CANARY = Experiment(
    name="unlearning-canary",
    title="What an outsider learns about a forgotten client from its mark",
    source="no figure; the attacks of Carlini et al. (S&P 2022) and Chen et al. (CCS 2021) on a federation's models",
    setting="ours; federations as in the thesis' chapter 6, with an honest client that joins in the middle. ",
    grid=_grid,
    more=_more,
    seeds=_SEEDS,
    sections=(Section("What the outsider detects", table),),
    numbers={"canary.csv": pulls},
    claims=(
        Claim(
            "Before it is forgotten, the canary is detected",
            _OURS,
            f"{_PLACES} is wholly above 0.5",
            _everywhere(BEFORE, lambda area: area.low > 0.5),
        ),
        *(
            Claim(
                f"Nothing is detected after {way}",
                _OURS,
                f"{_PLACES} is not wholly above 0.5; with {LEAST_JUDGED} federations of each kind one of 0.7 would be",
                _everywhere(way, lambda area: area.low <= 0.5),
            )
            for way in ATTACKED
        ),
        Claim(
            "The model after it adds nothing to what the model before reveals",
            _OURS,
            f"{_PLACES} of both models together is not wholly above the area of the one before plus {TOLERANCE}, after "
            "every way; exceptions follow with their numbers",
            _before_tells_as_much,
        ),
    ),
    differences=(
        (
            "The outsider knows the mark, the data, how users click and who joins when: a real one knows at most as "
            "much. It looks only at the mark's pull of each model."
        ),
        (
            f"Shadows: {WITH[SHADOW].seeds} federations with the canary and {WITHOUT[SHADOW].seeds} without; the "
            f"threshold comes from {WITHOUT[THRESHOLD].seeds} more without. Each seed adds one of both to judge."
        ),
        f"At quick scale there are {_ROUNDS['quick']:,} rounds instead of {_ROUNDS['full']:,}, and one click model.",
    ),
)

EXPERIMENTS: tuple[Experiment, ...] = (_CANARY,)
