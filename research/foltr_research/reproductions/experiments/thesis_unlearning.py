"""Unlearning (thesis, chapter 6; Wang, Liu and Zuccon, ECIR 2024): Figures 6.2 and 6.3, Table 6.2.

One of ten clients leaves after the last round. It sends -2 times its local model, so that its effect is visible. Names
of federations count honest clients (H) and such clients (M): U(9H-1M) is the model that unlearning makes of 9H-1M, and
9H-0M the one retrained from scratch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from foltr.core.protocol.states import Strategy
from foltr.core.unlearning.schedule import Schedule
from foltr_research.reproductions.checks import among, higher, increasing, not_above, similar
from foltr_research.reproductions.claims import HIGHER, HIGHER_IN_MOST, RANGE, Claim
from foltr_research.reproductions.experiment import CLICKS, Experiment, Scale, Table, Variant
from foltr_research.reproductions.experiments.foltr_es import eval_every
from foltr_research.reproductions.figures import Figure
from foltr_research.reproductions.outcomes import DataProfile, Outcome
from foltr_research.simulation.clients.loading import load_experiment, population_for
from foltr_research.simulation.config import SimulationConfig
from foltr_research.simulation.unlearning.departure import Leaver, UnlearningSimulation
from foltr_research.simulation.unlearning.rounds import Trained

CLIENTS, INTERACTIONS = 10, 5
# The last by name, so that a federation without it has the same nine others with the same users.
LEAVER = CLIENTS - 1
ROUNDS: Mapping[Scale, int] = {"quick": 1_000, "full": 10_000}
SEEDS: Mapping[Scale, int] = {"quick": 5, "full": 25}
INTERVAL, LOCAL_INTERACTIONS = 10, 3
INTERVALS, LOCAL_INTERACTIONS_TRIED = (5, 10, 20), (1, 2, 3, 4)
TOLERANCE = 0.01

TAINTED, ALL_HONEST, RETRAINED, UNLEARNED = "9H-1M", "10H-0M", "9H-0M", "U(9H-1M)"
_BASELINE = {"interval": "1", "local_interactions": str(INTERACTIONS)}
_STEPS, _END = {"shown": "steps"}, {"shown": "end"}

SETTING = (
    "MQ2007, MSLR-WEB10K, Yahoo! and Istella-S; 10 clients, 5 interactions in each of 10,000 rounds, FPDGD with a "
    "linear ranker, learning rate 0.1, zero start; one client, which sent -2 times its local model in each round, "
    "leaves after the last; three click models. "
)
FEWER = "At quick scale there are 1,000 rounds instead of 10,000, with a tenth of the calibration rounds."
FRESH = "As in the thesis, retained clients learn from fresh interactions; the service's devices learn from a log."


def federation(scale: Scale, clicks: str, clients: int = CLIENTS) -> SimulationConfig:
    rounds = ROUNDS[scale]
    return SimulationConfig.read(
        {
            "clients": clients,
            "interactions": INTERACTIONS,
            "rounds": rounds,
            "eval_every": eval_every(rounds),
            "clicks": clicks,
        }
    )


def settings(scale: Scale, data: DataProfile, n_seeds: int) -> list[SimulationConfig]:
    """`federation` with each click model and seed, in the harness' order of runs."""
    return [
        federation(scale, clicks).changed(
            data=data.data, seed=seed, fold=data.folds[(seed - 1) % len(data.folds)] if data.folds else None
        )
        for clicks in CLICKS
        for seed in range(1, n_seeds + 1)
    ]


def schedule(
    strategy: Strategy = Strategy.FED_ERASER, interval: int = INTERVAL, local_interactions: int = LOCAL_INTERACTIONS
) -> Schedule:
    """As in the thesis: the interval is used unchanged, while the service would make at least 100 steps."""
    return Schedule(strategy, interval, local_interactions, least_steps=1)


def simulation_of(config: SimulationConfig, leaver: Leaver) -> UnlearningSimulation:
    return UnlearningSimulation(config, population_for(config, load_experiment(config)), leaver)


def outcome(labels: Mapping[str, str], config: SimulationConfig, trained: Trained, **more: Any) -> Outcome:
    """Return an outcome in the shape of `SimulationResult.to_dict`, without values of the lists shown."""
    result = {
        "ndcg_at_10": [{"round": number, "value": value} for number, value in trained.ndcg],
        "ndcg_at_10_global": None,
        "online_ndcg": None,
        "online_per_round": [None],
        "max_rr": [None],
        "interactions": trained.interactions,
        "bytes": {"up": None, "down": None},
        "seconds": {"learning": trained.seconds, "wall": None},
        **more,
    }
    return Outcome({**labels, "clicks": config.clicks[0]}, config.fold, config.seed, config, result)


def _level(trained: Trained, like: Trained) -> Trained:
    """Repeat the last value at the points of another curve, to draw it as a line."""
    curve = tuple((number, trained.ndcg[-1][1]) for number, _ in like.ndcg)
    return replace(trained, ndcg=curve)


def _honest(scale: Scale, data: DataProfile) -> list[Variant]:  # noqa: ARG001
    return [
        Variant({"federation": name, "clicks": clicks}, federation(scale, clicks, clients))
        for name, clients in ((ALL_HONEST, CLIENTS), (RETRAINED, CLIENTS - 1))
        for clicks in CLICKS
    ]


def _tainted(scale: Scale, data: DataProfile, n_seeds: int) -> Sequence[Outcome]:
    return [
        outcome({"federation": TAINTED}, config, simulation_of(config, Leaver(LEAVER)).federate().trained)
        for config in settings(scale, data, n_seeds)
    ]


def _retrained(labels: Mapping[str, str]) -> Callable[[Scale, DataProfile], list[Variant]]:
    def grid(scale: Scale, data: DataProfile) -> list[Variant]:  # noqa: ARG001
        return [
            Variant({"federation": RETRAINED, **labels, "clicks": clicks}, federation(scale, clicks, CLIENTS - 1))
            for clicks in CLICKS
        ]

    return grid


def _over_steps(scale: Scale, data: DataProfile, n_seeds: int) -> Sequence[Outcome]:
    found = []
    for config in settings(scale, data, n_seeds):
        simulation = simulation_of(config, Leaver(LEAVER))
        tainted = simulation.federate()
        retrained = simulation.federate(with_leaver=False)
        unlearned = simulation.unlearn(tainted, schedule())
        lines = (
            (UNLEARNED, unlearned),
            (RETRAINED, _level(retrained.trained, unlearned)),
            (TAINTED, _level(tainted.trained, unlearned)),
        )
        for name, trained in lines:
            found.append(outcome({"federation": name, **_STEPS}, config, trained))
    return found


def _by_step_and_interval(scale: Scale, data: DataProfile, n_seeds: int) -> Sequence[Outcome]:
    found = []
    for config in settings(scale, data, n_seeds):
        simulation = simulation_of(config, Leaver(LEAVER))
        tainted = simulation.federate()
        for local in LOCAL_INTERACTIONS_TRIED:
            for interval in INTERVALS:
                unlearned = simulation.unlearn(tainted, schedule(interval=interval, local_interactions=local))
                labels = {"federation": UNLEARNED, "interval": str(interval), "local_interactions": str(local)}
                found.append(outcome(labels, config, unlearned))
    return found


_LATE = "nDCG@10 over the last quarter of the rounds"
_6_2 = Experiment(
    name="thesis-6.2",
    title="One client that sends -2 times its model, and a federation with or without one honest client more",
    source="thesis, Section 6.3.1, Figure 6.2",
    setting=SETTING,
    grid=_honest,
    more=_tainted,
    seeds=SEEDS,
    figures=(Figure("offline.png", "offline", ("federation",), title="nDCG@10 on the test set"),),
    tables=(
        Table("nDCG@10 in the last quarter of the rounds", "late", ("federation",)),
        Table("nDCG@10 after the last round", "offline", ("federation",)),
    ),
    claims=(
        *(
            Claim(
                f"The client to be unlearned makes the ranker worse: {TAINTED} is below {honest}",
                "Section 6.3.1, Figure 6.2",
                f"{_LATE}, {honest} above {TAINTED} for each click model: " + HIGHER,
                higher("late", {"federation": honest}, {"federation": TAINTED}),
            )
            for honest in (ALL_HONEST, RETRAINED)
        ),
        Claim(
            f"{ALL_HONEST} and {RETRAINED} cannot be distinguished: one honest client more or less does not show",
            "Section 6.3.1, Figure 6.2",
            f"{_LATE} of the two: {RANGE} is within {TOLERANCE} for each click model",
            among("federation", (ALL_HONEST, RETRAINED), similar("late", "federation", TOLERANCE)),
        ),
    ),
    published=("MQ2007: honest 0.515; with one -2 client about 0.455 / 0.43 / 0.385 (read off the figure)",),
    differences=(
        "Claims are judged by the mean of the evaluations in the last quarter of the rounds; the thesis shows curves.",
        FEWER,
    ),
)

_6_3 = Experiment(
    name="thesis-6.3",
    title=(
        f"Unlearning by FedEraser, every {INTERVAL}th round and local_interactions = {LOCAL_INTERACTIONS}, "
        "over its calibration rounds"
    ),
    source="thesis, Section 6.3.2, Figure 6.3",
    setting=SETTING
    + f"Updates are stored every {INTERVAL} rounds, {LOCAL_INTERACTIONS} interactions in a calibration round.",
    grid=_retrained(_END),
    more=_over_steps,
    seeds=SEEDS,
    figures=(
        Figure(
            "steps.png",
            "offline",
            ("federation",),
            title="nDCG@10 by calibration round; the others are levels after the last round",
            where=_STEPS,
        ),
    ),
    tables=(Table("Final nDCG@10", "offline", ("federation",), where=_STEPS),),
    claims=(
        Claim(
            f"Unlearning makes the ranker better than {TAINTED}",
            "Section 6.3.2, Figures 6.2 and 6.3",
            f"final nDCG@10, {UNLEARNED} above {TAINTED} for each click model: " + HIGHER,
            higher("offline", {"federation": UNLEARNED}, {"federation": TAINTED}, where=_STEPS),
        ),
        Claim(
            f"{UNLEARNED} converges to {RETRAINED}",
            "Section 6.3.2, Figure 6.3; the bound of 0.01 is ours",
            f"final nDCG@10, {RETRAINED} minus {UNLEARNED}: {RANGE} is below {TOLERANCE} for each click model",
            not_above("offline", {"federation": RETRAINED}, {"federation": UNLEARNED}, TOLERANCE, where=_STEPS),
        ),
        Claim(
            f"{UNLEARNED} is no better than {RETRAINED} either",
            "ours: forgetting that makes a ranker better than retraining is more than forgetting",
            f"final nDCG@10, {UNLEARNED} minus {RETRAINED}: {RANGE} is below {TOLERANCE} for each click model",
            not_above("offline", {"federation": UNLEARNED}, {"federation": RETRAINED}, TOLERANCE, where=_STEPS),
        ),
    ),
    published=(
        "MSLR-WEB10K: 0.43 / 0.425 / 0.415 after unlearning, about 0.438 after retraining (read off the figure)",
    ),
    differences=(FRESH, FEWER),
)

_TABLE_6_2 = Experiment(
    name="thesis-table-6.2",
    title="Unlearning by the number of local updates and the interval between stored updates",
    source="thesis, Section 6.3.3, Table 6.2",
    setting=SETTING + "local_interactions is 1, 2, 3 or 4, the interval 5, 10 or 20 rounds.",
    grid=_retrained(_BASELINE),
    more=_by_step_and_interval,
    seeds=SEEDS,
    tables=(Table("Final nDCG@10", "offline", ("federation", "interval", "local_interactions")),),
    claims=(
        Claim(
            "More local updates give a better ranker",
            "Section 6.3.3, Table 6.2: relatively higher with more",
            "final nDCG@10 with local_interactions = 4 is above that with 1, no step from one number to the next goes "
            "down, for each interval and click model: " + HIGHER,
            increasing(
                "offline",
                "local_interactions",
                tuple(map(str, LOCAL_INTERACTIONS_TRIED)),
                ("interval", "clicks"),
                {"federation": UNLEARNED},
            ),
        ),
        Claim(
            "A smaller interval gives a better ranker in most cases",
            "Section 6.3.3, Table 6.2",
            "final nDCG@10 with interval 5 above that with 20, no step from 20 to 10 to 5 goes down, for most "
            "local_interactions and click models: " + HIGHER_IN_MOST,
            increasing(
                "offline",
                "interval",
                tuple(map(str, reversed(INTERVALS))),
                ("local_interactions", "clicks"),
                {"federation": UNLEARNED},
                need="most",
            ),
        ),
    ),
    differences=(FRESH, FEWER, "We do not have Table 6.2's numbers, so we judge only what the text says of them."),
)

EXPERIMENTS: tuple[Experiment, ...] = (_6_2, _6_3, _TABLE_6_2)
