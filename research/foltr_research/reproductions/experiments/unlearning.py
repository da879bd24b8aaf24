"""Ways to forget a client compared: ranking quality, remains of the client, and cost."""

from collections.abc import Callable, Mapping

import numpy as np

from foltr_research.reproductions.claims import (
    HIGHER,
    NOTHING,
    RANGE,
    Check,
    Claim,
    Difference,
    Verdict,
    decided,
    difference_of,
    judged,
    minus,
)
from foltr_research.reproductions.experiment import Experiment, Section
from foltr_research.reproductions.experiments.thesis_unlearning import (
    FEWER,
    INTERACTIONS,
    INTERVAL,
    LOCAL_INTERACTIONS,
    RETRAINED,
    SETTING,
    TOLERANCE,
)
from foltr_research.reproductions.experiments.unlearning_measures import (
    BEFORE,
    HONEST,
    LATE,
    POISONER,
    RESET,
    SKEWED,
    all_outcomes,
    never_there,
)
from foltr_research.reproductions.outcomes import Labels, Results
from foltr_research.reproductions.report import markdown
from foltr_research.simulation.unlearning.measures import steps_saved
from foltr_research.simulation.unlearning.strategies import (
    AGAIN,
    ASCENT,
    ASCENTS,
    ERASER,
    ERASER_LOG,
    FINE_TUNING,
    LIVE_ROUNDS,
    LONG,
    LONG_LOG,
    MIDDLE,
    RECOVERY,
    REMOVE,
    REMOVE_LAST,
    REMOVE_LIVE,
    ROLLBACK,
    ROLLBACK_LOG,
)

_PLACE = ("population", "leaver", "clicks")
_BELOW = f"{RANGE} is below {TOLERANCE}"
_FIGURES: Mapping[str, str] = {
    "distance": "distance",
    "cosine": "cosine",
    "overlap": "lists",
    "gap": "distance gap",
    "others": "others' queries",
    "own": "own queries",
    "own_loss": "own clicks",
}
# Figures that are meaningful only relative to retraining.
_LESS_RETRAINED = frozenset({"others", "own", "own_loss"})


def _by_seed(results: Results, figure: str) -> dict[int, float]:
    """Return a figure by seed, averaged over all other labels."""
    found: dict[int, list[float]] = {}
    for one in results:
        found.setdefault(one.seed, []).append(one.result["figures"][figure])
    return {seed: float(np.mean(values)) for seed, values in found.items()}


def _minus(results: Results, place: Labels, first: str, second: str, figure: str) -> Difference:
    """First model minus second, paired by seed."""
    there = results.select(place)
    one, other = (_by_seed(there.select({"model": model}), figure) for model in (first, second))
    return minus(one, other)


def _places(results: Results, where: Labels, *models: str) -> list[tuple[str, dict[str, str]]]:
    """Return the places, with their names, that have all of these models."""
    chosen = results.select(where)
    found = [chosen.select({"model": model}).combinations(_PLACE) for model in models]
    return [(", ".join(place.values()), place) for place in found[0] if all(place in other for other in found)]


def _compare(first: str, second: str, figure: str, holds: Callable[[Difference, float], bool], where: Labels) -> Check:
    """Check the first model's figure minus the second's everywhere."""
    return lambda results: judged(
        {name: _minus(results, place, first, second, figure) for name, place in _places(results, where, first, second)},
        holds,
    )


def _little(lead: Difference, level: float) -> bool:
    return lead.at_most(TOLERANCE, level)


def _ranks_as_well(model: str, source: str, leaver: str | None = None) -> Claim:
    where, places = ({}, "population, leaver") if leaver is None else ({"leaver": leaver}, "population")
    return Claim(
        f"{model.capitalize()} ranks as well as retraining" + (f", where the leaver is: {leaver}" if leaver else ""),
        source,
        f"final nDCG@10, {RETRAINED} minus it: {_BELOW} for each {places} and click model",
        _compare(RETRAINED, model, "ndcg", _little, where),
    )


def _times_less(results: Results, model: str, than: str, place: Labels) -> float:
    """Return how many times longer another model takes to learn and aggregate, by sums over runs; NaN without any."""
    there = results.select(place)
    sums = [sum(one.result["figures"]["seconds"] for one in there.select({"model": which})) for which in (than, model)]
    return sums[0] / sums[1] if all(sums) else float("nan")


def _as_fast_as_promised(results: Results) -> Verdict:
    promised = steps_saved(INTERACTIONS, LOCAL_INTERACTIONS, INTERVAL)
    places = _places(results, {}, ERASER, AGAIN)
    if not places:
        return NOTHING
    times = {name: _times_less(results, ERASER, AGAIN, place) for name, place in places}
    held = all(found >= promised for found in times.values())
    numbers = "; ".join(f"{name} {found:.1f} times" for name, found in times.items())
    return decided(held, f"{numbers}; promised {promised:.1f}")


def _titles(results: Results, *keys: str) -> list[tuple[str, Results]]:
    """Return the results by the values of some labels, with these as titles."""
    return [(", ".join(labels.values()), results.select(labels)) for labels in results.combinations(keys)]


_RANKING = (
    f"nDCG@10 on the test queries, mean over seeds; in brackets by how much {RETRAINED} is better, paired by seed, "
    f"with the half width of its 95 % interval. {RETRAINED} is a federation that never had the client, `{AGAIN}` "
    "another one with other clicks, so its gap is chance.\n"
)
_TRACES = (
    f"Means over seeds and click models. Against {RETRAINED}: relative distance and cosine of the weights; lists: "
    "rank-biased overlap of the first ten documents of the test queries. Distance gap: how much further than "
    "retraining the model moved; below 0 it moved too little. Others' and own queries: nDCG@10 on the queries that "
    "the clients who stay learned from, and on the leaver's by its own labels; own clicks: the pairwise loss of the "
    f"leaver's newest, in nats. These three are minus {RETRAINED}'s, with the half width of the 95 % interval. Own "
    "queries above 0 mean that something is left of the client, below 0 that more than the client was removed. The "
    "loss grows with the weights, so it only compares models of the same length.\n"
)
_COSTS = (
    "Means over everything except the leaver. Updates are those that clients were asked for, each for a model they "
    "were sent; kB count both, without envelopes. Seconds are the simulator's, of learning and aggregation without "
    f"evaluations, on a machine that did other things too; `times less` compares with `{AGAIN}`, all rounds from the "
    f"first, and with `{MIDDLE}`, all rounds since the client joined, by sums over runs of the same machine. In the "
    "simulator a step that learns less is hardly faster; a step of the service takes as long as its slowest "
    "device.\n"
)


def ranking_tables(results: Results) -> str:
    """Return nDCG@10 of every model and its gap to retraining, by click model."""
    parts = [_RANKING]
    for title, there in _titles(results, "population", "leaver"):
        clicks = there.labels("clicks")
        rows = [
            [model, *(_short_of_retraining(there, model, {"clicks": name}) for name in clicks)]
            for model in there.labels("model")
        ]
        parts.append(f"**{title}**\n\n{markdown(['model', *clicks], rows, 1)}")
    return "\n".join(parts)


def trace_tables(results: Results) -> str:
    """Return the differences of every model from retraining, over all click models."""
    parts = [_TRACES]
    for title, there in _titles(results, "population", "leaver"):
        rows = [[model, *(_trace(there, model, name) for name in _FIGURES)] for model in there.labels("model")]
        parts.append(f"**{title}**\n\n{markdown(['model', *_FIGURES.values()], rows, 1)}")
    return "\n".join(parts)


def costs_tables(results: Results) -> str:
    """Return the cost of each way, over all populations and click models."""
    parts = [_COSTS]
    columns = ["model", "steps", "updates", "kB", "seconds", "times less", "than from the middle"]
    measured = Results(tuple(one for one in results if "figures" in one.result), results.data)
    for leaver, there in _titles(measured, "leaver"):
        rows = [_costs(there, model) for model in there.labels("model") if model not in {BEFORE, RETRAINED}]
        parts.append(f"**{leaver}**\n\n{markdown(columns, rows, 1)}")
    return "\n".join(parts)


def figure_rows(results: Results) -> list[list[str]]:
    """Return every figure of every run, headings first."""
    measured = [one for one in results if "figures" in one.result]
    names = list(measured[0].result["figures"]) if measured else []
    keys = [*_PLACE, "model"]
    rows = [
        [*(one.labels[key] for key in keys), str(one.seed), *(f"{one.result['figures'][name]:.5g}" for name in names)]
        for one in measured
    ]
    return [[*keys, "seed", *names], *rows]


def _short_of_retraining(results: Results, model: str, place: Labels) -> str:
    mean = np.mean(list(_by_seed(results.select({**place, "model": model}), "ndcg").values()))
    lead = _minus(results, place, RETRAINED, model, "ndcg")
    return f"{mean:.3f} ({lead.mean:+.3f} ± {lead.margin():.3f})"


def _trace(results: Results, model: str, figure: str) -> str:
    if figure in _LESS_RETRAINED:
        found = _minus(results, {}, model, RETRAINED, figure)
        return f"{found.mean:+.3f} ± {found.margin():.3f}"
    found = difference_of(np.array(list(_by_seed(results.select({"model": model}), figure).values())))
    return f"{found.mean:.3f} ± {found.margin():.3f}"


def _costs(results: Results, model: str) -> list[str]:
    chosen = results.select({"model": model})
    steps, updates, sent, seconds = (
        float(np.mean(list(_by_seed(chosen, figure).values()))) for figure in ("steps", "updates", "bytes", "seconds")
    )
    times = [_times_less(results, model, than, {}) for than in (AGAIN, MIDDLE)]
    less = ["-" if np.isnan(one) else f"{one:.1f}" for one in times]
    return [model, f"{steps:.0f}", f"{updates:.0f}", f"{sent / 1000:.0f}", f"{seconds:.3f}", *less]


_THESIS = "ours; thesis, Section 6.3.2, of a poisoner among IID clients: unlearning converges to retraining"
_STUDY = "ours; arXiv 2505.12791 has this strategy, we do not have its figures"
_OURS = "ours"
_LEAVERS = (POISONER, LATE, HONEST, RESET)

EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        name="unlearning",
        title="Ways to forget a client: how the model ranks, what is left of the client, what it costs",
        source="thesis, chapter 6, and the reproducibility study of unlearning in FOLtR (arXiv 2505.12791)",
        setting=SETTING,
        grid=never_there,
        more=all_outcomes,
        seeds={"quick": 10, "full": 25},
        sections=(
            Section("How the model ranks", ranking_tables),
            Section("What is left of the client, and what the others lost", trace_tables),
            Section("What it costs", costs_tables),
        ),
        numbers={"ranking.csv": figure_rows},
        claims=(
            *(_ranks_as_well(model, _THESIS) for model in (ERASER, ERASER_LOG)),
            *(_ranks_as_well(model, _OURS, LATE) for model in (ROLLBACK, ROLLBACK_LOG)),
            *(_ranks_as_well(model, _STUDY) for model in (FINE_TUNING, ASCENT, REMOVE_LAST)),
            *(_ranks_as_well(REMOVE, _STUDY, leaver) for leaver in _LEAVERS),
            *(_ranks_as_well(model, _OURS, leaver) for model in (LONG, LONG_LOG) for leaver in _LEAVERS),
            Claim(
                "FedEraser turns the model towards the retrained one",
                "ours, after thesis Section 6.1.4",
                f"cosine to {RETRAINED}, {ERASER} above the model before unlearning, everywhere: {HIGHER}",
                _compare(ERASER, BEFORE, "cosine", Difference.above, {}),
            ),
            Claim(
                "FedEraser takes nothing from the clients that stay",
                "ours, after thesis Section 6.1.4",
                f"nDCG@10 on their queries, {RETRAINED} minus it: {_BELOW} everywhere",
                _compare(RETRAINED, ERASER, "others", _little, {}),
            ),
            Claim(
                "FedEraser makes the ranker better than the poisoned one",
                "thesis, Section 6.3.2, Figures 6.2 and 6.3, of IID clients; the other population is ours",
                f"final nDCG@10, {ERASER} above {BEFORE} where the leaver is a poisoner from the start, for each "
                f"population and click model: {HIGHER}",
                _compare(ERASER, BEFORE, "ndcg", Difference.above, {"leaver": POISONER}),
            ),
            Claim(
                f"FedEraser is better than going on without the client for {LIVE_ROUNDS} rounds",
                "ours: otherwise its steps are wasted",
                f"final nDCG@10, {ERASER} above {FINE_TUNING} where the leaver is a poisoner from the start, for each "
                f"population and click model: {HIGHER}",
                _compare(ERASER, FINE_TUNING, "ndcg", Difference.above, {"leaver": POISONER}),
            ),
            Claim(
                "If an honest client leaves, removal takes less from the others than FedEraser",
                "ours",
                f"nDCG@10 on the others' queries, {REMOVE} above {ERASER} everywhere: {HIGHER}",
                _compare(REMOVE, ERASER, "others", Difference.above, {"leaver": HONEST}),
            ),
            *(
                Claim(
                    "Nothing is left of a client who taught the opposite "
                    + ("even before unlearning" if model == BEFORE else f"after {model}"),
                    "ours, by the study's reset of relevance",
                    f"nDCG@10 on its own queries by its own labels, minus that of {RETRAINED}: {_BELOW} for each "
                    "population and click model",
                    _compare(model, RETRAINED, "own", _little, {"leaver": RESET}),
                )
                for model in (BEFORE, ERASER, LONG_LOG, REMOVE, REMOVE_LAST, FINE_TUNING, ASCENT)
            ),
            Claim(
                "FedEraser is as many times faster as it saves local updates",
                "thesis, Section 6.1.3, which counts updates; we expect the same of time",
                "time of retraining over time of unlearning in the simulator, run in blocks, sums over seeds, is at "
                "least n / local_interactions * interval everywhere",
                _as_fast_as_promised,
            ),
        ),
        differences=(
            (
                f"{ERASER}: interval {INTERVAL}, local_interactions {LOCAL_INTERACTIONS}, from the first model on. "
                f"{ROLLBACK}: the same from the model before the client's first round, if there is one."
            ),
            (
                f"{LONG}: from the model before the client's first round on, a step for every {INTERVAL} rounds; in it "
                f"a client learns from {INTERVAL} times its interactions of a round, and nothing is calibrated."
            ),
            (
                "`log`: each step draws from the newest 500 interactions of each client, like the service's "
                "devices. Other ways use fresh interactions, as in the thesis."
            ),
            (
                f"{REMOVE}: the others' stored updates added up once more, on the model before the client's first "
                f"round. {REMOVE_LIVE}: {LIVE_ROUNDS} rounds of the others after it. {REMOVE_LAST}: what the study's "
                "code does, which averages local models, so that rounds overwrite each other and the last alone counts."
            ),
            (
                f"{FINE_TUNING}: {LIVE_ROUNDS} rounds of the others on the newest model, as many as FedEraser has "
                f"steps at quick scale. {ASCENT}: {ASCENTS} steps of the leaver up its loss within a third of the way "
                f"back to the first model, then {RECOVERY} rounds of the others (Halimi et al. 2022); the leaver must "
                "be there for it, and honest. The study's code lets it climb in all rounds beside the others, without "
                "projection."
            ),
            (
                "The thesis' leaver poisons from the first round on. The late and the honest one are ours. "
                f"`{RESET}` follows the study: an honest client that finds the opposite relevant."
            ),
            (
                f"`{SKEWED}`: each client has documents of two grades, and clicks are navigational; 12 clients if "
                "there are 3 grades, else 10."
            ),
            FEWER,
        ),
    ),
)
