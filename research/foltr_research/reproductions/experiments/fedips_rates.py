"""The search of FedIPS' and FedAvg's learning rates: ``python -m foltr_research.reproductions.experiments.fedips_rates
DATA``.

A fifth of the training queries is held out for validation; test queries are not looked at. Both methods have the same
candidates. `foltr_research.reproductions.experiments.fedips.RATES` is what this finds.
"""

import sys

import numpy as np

from foltr.core.data.dataset import select_queries
from foltr_research.reproductions.experiments.fedips import QUERIES, RATES, settings
from foltr_research.simulation.clients.loading import load_experiment
from foltr_research.simulation.clients.population import iid_population
from foltr_research.simulation.config import SimulationConfig
from foltr_research.simulation.federated import run

LOCAL_RATES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
SERVER_RATES = (0.5, 2.0)
BIASES = ("0.5", "1", "2")
CLIENTS, ROUNDS = 100, 60
_HELD_OUT = 0.2


def search(
    data: str, method: str, bias: str, clients: int = CLIENTS, rounds: int = ROUNDS
) -> dict[tuple[float, float], float]:
    """Validation nDCG@10 at the end of a short run by (local rate, the federator's rate).

    Args:
        data: as `SimulationConfig.data`; of a set published in folds the first.
        method: fedips or fedavg.
        bias: gamma.
    """
    experiment = load_experiment(SimulationConfig(data=data))
    order = np.random.default_rng(1).permutation(experiment.train.n_queries)
    n_held_out = max(1, round(_HELD_OUT * len(order)))
    validation = select_queries(experiment.train, np.sort(order[:n_held_out]))
    train = select_queries(experiment.train, np.sort(order[n_held_out:]))
    found = {}
    for local in LOCAL_RATES:
        for server in SERVER_RATES:
            rates = {"learning_rate": local, "server_learning_rate": server}
            config = settings(
                "quick",
                train.n_queries,
                method,
                bias,
                rates,
                data=data,
                clients=clients,
                rounds=rounds,
                eval_every=rounds,
            )
            population = iid_population(train, validation, clients, config.clicks, QUERIES, experiment.n_grades)
            found[local, server] = run(config, population).final_ndcg
    return found


def main() -> None:
    for method in RATES:
        for bias in BIASES:
            found = search(sys.argv[1], method, bias)
            local, server = max(found, key=lambda rates: found[rates])
            line = f"{method} gamma {bias}: local {local:g}, server {server:g}, nDCG@10 {found[local, server]:.3f}"
            sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
