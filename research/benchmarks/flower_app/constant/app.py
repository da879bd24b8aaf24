"""Clients whose learning is a constant, and a server that averages and records when each round ended."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from flwr.client import Client, ClientApp, NumPyClient
from flwr.common import Context, ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg


class Constant(NumPyClient):
    """Adds a thousandth to each weight."""

    def fit(self, parameters: list[np.ndarray], config: dict[str, Any]) -> tuple[list[np.ndarray], int, dict[str, Any]]:  # noqa: ARG002
        return [parameters[0] + np.float32(1e-3)], 1, {}


def client_of(context: Context) -> Client:  # noqa: ARG001
    return Constant().to_client()


class Noting(FedAvg):
    """The mean of all clients. Each round's end is written to a file, in seconds since the epoch."""

    def __init__(self, n_clients: int, dim: int, ends: Path) -> None:
        first = ndarrays_to_parameters([np.zeros(dim, np.float32)])
        everybody = {"min_fit_clients": n_clients, "min_available_clients": n_clients}
        super().__init__(fraction_evaluate=0.0, initial_parameters=first, **everybody)
        self._n_clients, self._file = n_clients, ends
        self._ends: list[float] = []

    def aggregate_fit(self, server_round: int, results: list[Any], failures: list[Any]) -> Any:
        assert len(results) == self._n_clients, failures
        aggregated = super().aggregate_fit(server_round, results, failures)
        self._ends.append(time.time())
        self._file.write_text(json.dumps(self._ends))
        return aggregated


def components_of(context: Context) -> ServerAppComponents:
    settings = context.run_config
    strategy = Noting(int(settings["clients"]), int(settings["dim"]), Path(str(settings["ends"])))
    return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=int(settings["rounds"])))


client = ClientApp(client_fn=client_of)
server = ServerApp(server_fn=components_of)
