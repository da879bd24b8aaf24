"""Measures of unlearning: what is left of a client, what the others lost, what it costs. Ours, not the thesis'.

Every model is measured against a federation that never had the client (`RETRAINED`). A second retraining, from other
interactions, says how far from it a model is that owes the client nothing either.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isnan

import numpy as np
from numpy.typing import NDArray

from foltr.protocol.states import Strategy
from foltr.reproductions.claims import HIGHER, Check, Claim, Difference, Status, Verdict, difference_of
from foltr.reproductions.experiment import CLICKS, Experiment, Scale, Section, Variant
from foltr.reproductions.experiments.thesis_unlearning import (
    CLIENTS,
    FEWER,
    INTERACTIONS,
    INTERVAL,
    LEAVER,
    LOCAL_INTERACTIONS,
    RETRAINED,
    SEEDS,
    SETTING,
    TOLERANCE,
    federation,
    outcome,
    schedule,
    settings,
    simulation_of,
)
from foltr.reproductions.outcomes import DataProfile, Labels, Outcome, Results
from foltr.simulation.config import SimulationConfig
from foltr.simulation.unlearning.departure import History, Interactions, Leaver, UnlearningSimulation
from foltr.simulation.unlearning.rounds import Trained
from foltr.unlearning.calibration import steps_saved
from foltr.unlearning.measures import click_losses, cosine, relative_distance

POISONER, LATE, HONEST = "poisoner", "poisoner, second half", "honest"
BEFORE, AGAIN = "before", "retrained again"
ERASER, ERASER_LOG = "fed_eraser", "fed_eraser, log"
ROLLBACK, ROLLBACK_LOG = "rollback", "rollback, log"

_COLUMNS: Mapping[str, str] = {
    "ndcg": "nDCG@10",
    "distance": "distance",
    "cosine": "cosine",
    "training": "nDCG@10, training",
    "loss": "click loss",
}
_PLACE = ("leaver", "clicks")


def leavers(rounds: int) -> dict[str, Leaver]:
    """Return, by name, who leaves after the last round."""
    return {
        POISONER: Leaver(LEAVER),
        # So that its first round is one of those that are stored.
        LATE: Leaver(LEAVER, joined=rounds // (2 * INTERVAL) * INTERVAL + 1),
        HONEST: Leaver(LEAVER, z=None),
    }


def _grid(scale: Scale, data: DataProfile) -> list[Variant]:  # noqa: ARG001
    return [
        Variant({"leaver": "nobody", "model": RETRAINED, "clicks": clicks}, federation(scale, clicks, CLIENTS - 1))
        for clicks in CLICKS
    ]


def _more(scale: Scale, data: DataProfile, n_seeds: int) -> Sequence[Outcome]:
    return [
        one
        for config in settings(scale, data, n_seeds)
        for name, leaver in leavers(config.rounds).items()
        for one in outcomes_of(config, name, leaver)
    ]


def outcomes_of(config: SimulationConfig, name: str, leaver: Leaver) -> Iterator[Outcome]:
    """A federation, every way to forget its leaver, and all figures of each model."""
    simulation = simulation_of(config, leaver)
    history = simulation.federate(record_every=INTERVAL)
    reference = simulation.federate(with_leaver=False).trained
    ways: dict[str, tuple[Strategy, Interactions]] = {
        AGAIN: (Strategy.RETRAIN, "fresh"),
        ERASER: (Strategy.FED_ERASER, "fresh"),
        ERASER_LOG: (Strategy.FED_ERASER, "kept"),
    }
    if leaver.joined > 1:
        ways |= {ROLLBACK: (Strategy.ROLLBACK, "fresh"), ROLLBACK_LOG: (Strategy.ROLLBACK, "kept")}
    models = {BEFORE: history.trained, RETRAINED: reference}
    seconds = {}
    for model, (strategy, interactions) in ways.items():
        of = schedule(strategy)
        models[model] = simulation.unlearn(history, of, interactions=interactions)
        # Slow, and the same for every seed.
        if config.seed == 1:
            seconds[model] = simulation.unlearn(history, of, interactions=interactions, runner="reference").seconds
    for model, trained in models.items():
        figures = _figures(simulation, history, leaver.client, trained, reference.weights)
        more = {"device_seconds": seconds[model]} if model in seconds else {}
        yield outcome({"leaver": name, "model": model}, config, trained, unlearning={**figures, **more})


def _figures(
    simulation: UnlearningSimulation, history: History, leaver: int, trained: Trained, reference: NDArray[np.float32]
) -> dict[str, float]:
    logs = [log for logs in history.interactions.values() for client, log in logs.items() if client != leaver]
    losses = click_losses(simulation.ranker, trained.weights, [one for kept in logs for one in kept])
    return {
        "ndcg": trained.ndcg[-1][1],
        "distance": relative_distance(trained.weights, reference),
        "cosine": cosine(trained.weights, reference),
        "training": simulation.others_ndcg(trained.weights),
        "loss": float(np.nanmean(losses)),
        "steps": float(trained.ndcg[-1][0]),
    }


def _measured(results: Results, figure: str) -> dict[int, float]:
    return {one.seed: one.result["unlearning"][figure] for one in results}


def _minus(results: Results, place: Labels, first: str, second: str, figure: str) -> Difference:
    """First model minus second, paired by seed."""
    there = results.select(place)
    one, other = (_measured(there.select({"model": model}), figure) for model in (first, second))
    return difference_of(np.array([one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())]))


def _places(results: Results, *models: str) -> list[tuple[str, dict[str, str]]]:
    """Leavers and click models, with their names, for which there are all of these models."""
    found = [results.select({"model": model}).combinations(_PLACE) for model in models]
    return [(", ".join(place.values()), place) for place in found[0] if all(place in other for other in found)]


def _compare(first: str, second: str, figure: str, holds: Callable[[Difference], bool]) -> Check:
    """Everywhere the first model's figure minus the second's is as it should be."""

    def check(results: Results) -> Verdict:
        places = _places(results, first, second)
        found = {name: _minus(results, place, first, second, figure) for name, place in places}
        if not found or min(one.n for one in found.values()) < 2:
            return Verdict(Status.NOT_TESTABLE, "no runs with two seeds or more")
        n_held = sum(holds(one) for one in found.values())
        numbers = "; ".join(f"{name} {one}" for name, one in found.items())
        status = Status.CONFIRMED if n_held == len(found) else Status.NOT_CONFIRMED
        return Verdict(status, f"{n_held} of {len(found)}: {numbers}")

    return check


def _in_blocks(one: Outcome) -> float:
    return float(one.result["seconds"]["learning"])


def _by_device(one: Outcome) -> float | None:
    seconds: float | None = one.result["unlearning"].get("device_seconds")
    return seconds


def _interactions(one: Outcome) -> float:
    return float(one.result["interactions"])


def _times_less(results: Results, model: str, place: Labels, cost: Callable[[Outcome], float | None]) -> float:
    """How much the second retraining costs, over what the model does: of the sums over runs; NaN without any."""
    there = results.select(place)
    sums = [
        sum(found for one in there.select({"model": which}) if (found := cost(one)) is not None)
        for which in (AGAIN, model)
    ]
    return sums[0] / sums[1] if sums[1] else float("nan")


def _as_fast_as_promised(results: Results) -> Verdict:
    promised = steps_saved(INTERACTIONS, LOCAL_INTERACTIONS, INTERVAL)
    places = dict(_places(results, ERASER, AGAIN))
    if not places:
        return Verdict(Status.NOT_TESTABLE, "no runs to compare")
    times = {name: _times_less(results, ERASER, place, _in_blocks) for name, place in places.items()}
    held = all(found >= promised for found in times.values())
    numbers = "; ".join(f"{name} {found:.1f} times" for name, found in times.items())
    return Verdict(Status.CONFIRMED if held else Status.NOT_CONFIRMED, f"{numbers}; promised {promised:.1f}")


def figures_table(results: Results) -> str:
    """A table for each click model: figures by leaver and model."""
    measured = Results(tuple(one for one in results if "unlearning" in one.result), results.data)
    parts = [
        (
            f"Means over seeds. Distance (relative, L2) and cosine are to {RETRAINED}. Training: on the queries that "
            "clients learned from. Click loss: of the clicks retained clients made in the federation with the leaver, "
            "in nats; it grows with the length of the weights, so it is no measure of quality. `log`: learned from the "
            "stored rounds' own interactions instead of fresh ones.\n"
        )
    ]
    for clicks in measured.labels("clicks"):
        lines = [
            "| leaver | model | " + " | ".join(_COLUMNS.values()) + " |",
            "|---|---|" + "---:|" * len(_COLUMNS),
        ]
        there = measured.select({"clicks": clicks})
        for labels in there.combinations(("leaver", "model")):
            runs = there.select(labels)
            cells = [f"{np.mean(list(_measured(runs, figure).values())):.3f}" for figure in _COLUMNS]
            lines.append(f"| {' | '.join([*labels.values(), *cells])} |")
        parts.append(f"**{clicks} clicks**\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def costs_table(results: Results) -> str:
    """Return a table of what each way costs, over all click models."""
    lines = [
        "| leaver | model | rounds | fewer interactions | less time, in blocks | less time, device code |",
        "|---|---|---:|---:|---:|---:|",
    ]
    measured = Results(tuple(one for one in results if "unlearning" in one.result), results.data)
    for labels in measured.combinations(("leaver", "model")):
        model = labels["model"]
        if model in {BEFORE, RETRAINED, AGAIN}:
            continue
        times = [
            _times_less(measured, model, {"leaver": labels["leaver"]}, cost)
            for cost in (_interactions, _in_blocks, _by_device)
        ]
        cells = ["-" if isnan(found) else f"{found:.1f}" for found in times]
        if model in {ERASER_LOG, ROLLBACK_LOG}:
            cells[1] = "-"
        rounds = np.mean(list(_measured(measured.select(labels), "steps").values()))
        lines.append(f"| {labels['leaver']} | {model} | {rounds:.0f} | {' | '.join(cells)} |")
    promised = steps_saved(INTERACTIONS, LOCAL_INTERACTIONS, INTERVAL)
    return (
        "How many times less than retraining in the same process: learning and aggregation, without evaluations, sums "
        f"over runs. n / local_interactions * interval = {promised:.1f}. In blocks a round costs nearly the same "
        "however little is learned in it. Device code learns one interaction after the other, as the service does; "
        "seed 1 alone. With a log no lists are shown, and retraining is the one that shows them: that is a part of "
        "what is saved.\n\n" + "\n".join(lines) + "\n"
    )


_OURS = "ours: issue of the service, thesis Section 6.1.4"
_EVERYWHERE = "for each leaver and click model (means of the paired differences)"
_FIGURES = Experiment(
    name="unlearning",
    title="What is left of a client after unlearning, what the others lost, and what it costs",
    source="no single figure; the setting of the thesis' chapter 6",
    setting=SETTING,
    grid=_grid,
    more=_more,
    seeds=SEEDS,
    sections=(
        Section("figures", "Under- and over-unlearning", figures_table),
        Section("costs", "Costs", costs_table),
    ),
    claims=(
        *(
            Claim(
                f"{model.capitalize()} ranks as well as retraining",
                "ours: the bar of the service",
                f"final nDCG@10 of {RETRAINED} is above by at most {TOLERANCE} {_EVERYWHERE}",
                _compare(RETRAINED, model, "ndcg", lambda lead: lead.mean <= TOLERANCE),
            )
            for model in (ERASER, ERASER_LOG, ROLLBACK, ROLLBACK_LOG)
        ),
        Claim(
            "Unlearning moves the model to where retraining ends",
            _OURS,
            f"cosine to {RETRAINED}, {ERASER} above the model before unlearning, for each leaver and click model: "
            + HIGHER,
            _compare(ERASER, BEFORE, "cosine", lambda lead: lead.above),
        ),
        Claim(
            "It takes nothing from retained clients",
            _OURS,
            f"nDCG@10 on their training queries under {RETRAINED} is above by at most {TOLERANCE} {_EVERYWHERE}",
            _compare(RETRAINED, ERASER, "training", lambda lead: lead.mean <= TOLERANCE),
        ),
        Claim(
            "It is as many times faster as it saves local updates",
            "Section 6.1.3, which counts updates; that time follows is ours",
            "time of retraining over time of unlearning in the simulator, run in blocks, is at least "
            "n / local_interactions * interval for each leaver and click model",
            _as_fast_as_promised,
        ),
    ),
    differences=(
        (
            f"FedEraser with interval {INTERVAL} and local_interactions {LOCAL_INTERACTIONS}; "
            "rollback for the client that joined late only."
        ),
        "The thesis' leaver is there from the first round on and poisons; the late and the honest one are ours.",
        FEWER,
    ),
)

EXPERIMENTS: tuple[Experiment, ...] = (_FIGURES,)
