"""Time of making a model without a client that left, beside retraining without it, in the same run.

Run: python research/benchmarks/unlearning_time.py [--rounds N] [--repeats N] [--json FILE]

As in Wang's thesis, Section 6.1.3: ten clients learn from five interactions a round by FPDGD; the last one leaves after
the last round. FedEraser then goes through every tenth stored round (delta t = 10) and has the others learn from three
interactions (n' = 3). So each makes 5 / 3 * 10 = 16.7 times fewer local steps than by retraining. Both use the
simulator's code, with fresh interactions on queries of 120 documents with 136 features, as in learners.py. Times are of
learning and aggregation, without evaluations.
Repeats retrain and unlearn in turns, with different seeds; figures are medians. Each repeat unlearns several times and
takes the median, because one unlearning is too short to compare. Nothing is sent: over a network the rounds take most
of the time, and FedEraser needs ten times fewer.

The JSON file has ``retrain_s``, ``unlearn_s``, their ``ratio``, ``steps_ratio`` (of the interactions that were really
learned from), ``steps_expected``, and ``step_ratio``: how much longer a local step takes in unlearning.
"""

import statistics

import numpy as np
from command_line import parser_of, write_json

from foltr.core.data.synthetic import split_queries, synthetic_dataset
from foltr.core.protocol.states import Strategy
from foltr.core.unlearning.schedule import Schedule
from foltr_research.simulation.clients.population import iid_population
from foltr_research.simulation.config import SimulationConfig
from foltr_research.simulation.unlearning.departure import Leaver, UnlearningSimulation
from foltr_research.simulation.unlearning.measures import steps_saved

CLIENTS, INTERACTIONS, LOCAL_INTERACTIONS, INTERVAL = 10, 5, 3, 10
DOCS, FEATURES = 120, 136
UNLEARNINGS = 7


def measure(rounds: int, seed: int) -> dict[str, float]:
    """Return seconds and interactions of both ways, once."""
    config = SimulationConfig(
        clients=CLIENTS,
        interactions=INTERACTIONS,
        rounds=rounds,
        clicks=("navigational",),
        eval_every=rounds,
        seed=seed,
    )
    data = synthetic_dataset(np.random.default_rng(seed), n_queries=200, docs_per_query=DOCS, n_features=FEATURES)
    train, test = split_queries(data, 150)
    population = iid_population(train, test, CLIENTS, config.clicks, INTERACTIONS)
    simulation = UnlearningSimulation(config, population, Leaver(CLIENTS - 1, z=None))
    history = simulation.federate()
    retrained = simulation.federate(with_leaver=False).trained
    schedule = Schedule(Strategy.FED_ERASER, INTERVAL, LOCAL_INTERACTIONS, least_steps=1)
    several = [simulation.unlearn(history, schedule) for _ in range(UNLEARNINGS)]
    unlearned = several[0]
    unlearn_s = statistics.median(one.seconds for one in several)
    return {
        "retrain_s": retrained.seconds,
        "unlearn_s": unlearn_s,
        "ratio": retrained.seconds / unlearn_s,
        "steps_ratio": retrained.interactions / unlearned.interactions,
        "step_ratio": (unlearn_s / unlearned.interactions) / (retrained.seconds / retrained.interactions),
    }


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=10_000, help="of the federation; the thesis has 10,000")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    runs = [measure(options.rounds, seed) for seed in range(1, options.repeats + 1)]
    results = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    results["steps_expected"] = steps_saved(INTERACTIONS, LOCAL_INTERACTIONS, INTERVAL)
    print(
        f"{options.rounds} rounds: retraining {results['retrain_s']:.2f} s, FedEraser {results['unlearn_s']:.2f} s: "
        f"{results['ratio']:.1f} x faster with {results['steps_ratio']:.1f} x fewer local steps "
        f"({results['steps_expected']:.1f} x by the thesis)"
    )
    write_json(options.json, results)


if __name__ == "__main__":
    main()
