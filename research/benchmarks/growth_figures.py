"""Laws from growth.py's cells, and the constants for sizing.py."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from growth_law import Law, fit_law, fit_line
from sizing import Constants

FILE = "growth.json"

Cost = Callable[[Mapping[str, Any]], float]
Size = tuple[int, int]

COSTS: dict[str, tuple[str, str, Cost]] = {
    "wall": ("rounds", "the whole round, on two processors", lambda cell: cell["round_ms"]),
    "federator": ("rounds", "the federator", lambda cell: cell["cpu_ms"]["federator"]),
    "devices": ("rounds", "the devices together", lambda cell: cell["cpu_ms"]["devices"]),
    "broker": ("rounds", "Mosquitto, with n devices connected", lambda cell: cell["cpu_ms"]["broker"]),
    "crowd-federator": ("crowd", "the federator, without devices", lambda cell: cell["n"] * cell["federator_cpu_ms"]),
    "crowd-broker": ("crowd", "Mosquitto, with one connection", lambda cell: cell["n"] * cell["broker_cpu_ms"]),
}
"""Costs of a round in milliseconds, all but the first of CPU time: kind of cells, description, and key in a cell."""
_LEAST_MS = 0.01
"""Replaces a time of 0 that the kernel did not count, which relative errors cannot handle."""


@dataclass(frozen=True)
class Growth:
    """All measured cells, as growth.py's ``make`` wrote their records."""

    records: list[dict[str, Any]]

    def results(self, kind: str) -> list[dict[str, Any]]:
        return [record["result"] for record in self.records if record["kind"] == kind]

    def costs(self, name: str) -> dict[Size, float]:
        """Return a cost of `COSTS` by size, ``(n, d)``."""
        kind, _, cost = COSTS[name]
        return {(cell["n"], cell["dim"]): max(cost(cell), _LEAST_MS) for cell in self.results(kind)}

    def law(self, name: str) -> Law:
        """Fit a cost's law. Raises ValueError if too few rounds were measured."""
        costs = self.costs(name)
        return fit_law(list(costs), list(costs.values()))

    def constants(self) -> Constants:
        """Return the constants for sizing.py.

        Raises:
            ValueError: too little was measured.
        """
        crowds, connected = self.results("crowd"), [one for one in self.results("fan-out") if one["tls"] == "tls"]
        federator, broker = self.law("crowd-federator"), self.law("crowd-broker")
        deliveries = [one for cell in connected for one in cell["deliveries"]]
        delivery = fit_line([one["bytes"] for one in deliveries], [one["cpu_ms"] for one in deliveries])
        dims = [cell["dim"] for cell in crowds]
        heard = fit_line(dims, [cell["heard_bytes"] for cell in crowds])
        stored = fit_line(dims, [cell["bytes_per_update"] for cell in crowds])
        memory = fit_law([(cell["n"], cell["dim"]) for cell in crowds], [cell["federator_mb"] for cell in crowds])
        # From the fewest to the most at equal length: a thousand clients are too few to extrapolate to a million.
        most = max(crowds, key=lambda cell: cell["n"])
        fewest = min((cell for cell in crowds if cell["dim"] == most["dim"]), key=lambda cell: cell["n"])
        more_mb = most["federator_mb"] - fewest["federator_mb"]
        largest = max(connected, key=lambda cell: cell["n"])
        # Mosquitto searches a topic's subscribers, so each connection costs more than the one before.
        connect = fit_line([cell["n"] for cell in connected], [cell["connect_ms"] for cell in connected])
        visit = max(self.results("paced"), key=lambda cell: cell["devices"])["cpu_ms_per_visit"]
        return Constants(
            federator_round_ms=federator.round,
            federator_update_ms=federator.update,
            federator_weight_ms=federator.weight,
            federator_join_ms=min(cell["join_cpu_ms"] for cell in crowds),
            federator_visit_ms=visit["federator"],
            federator_mb=memory.round,
            federator_mb_per_client=more_mb / max(1, most["n"] - fewest["n"]),
            federator_mb_per_weight=memory.weight,
            broker_update_ms=broker.update,
            broker_weight_ms=broker.weight,
            broker_connect_ms=connect[0],
            broker_connect_ms_per_connection=connect[1],
            # Fleets that take turns were measured without TLS, so the cost of a TLS connection is added.
            broker_visit_ms=visit["broker"] + connect[0],
            broker_ping_ms=largest["ping_ms"],
            broker_delivery_ms=delivery[0],
            broker_byte_ms=delivery[1],
            broker_mb=min(cell["broker_mb"] for cell in crowds),
            broker_mb_per_connection=largest["connected_mb"] / largest["n"],
            heard_messages=max(cell["heard_messages"] for cell in crowds),
            heard_bytes=heard[0],
            heard_bytes_per_weight=heard[1],
            client_bytes=most["bytes_per_client"],
            stored_bytes=stored[0],
            stored_bytes_per_weight=stored[1],
        )


def write_growth(growth: Growth, folder: Path) -> None:
    """Write all cells, one per line, and the results."""
    lines = ",\n".join(f"  {json.dumps(record)}" for record in growth.records)
    laws = json.dumps({name: asdict(growth.law(name)) for name in COSTS}, indent=1)
    constants = json.dumps(asdict(growth.constants()), indent=1)
    folder.mkdir(parents=True, exist_ok=True)
    text = f'{{\n"cells": [\n{lines}\n],\n"laws": {laws},\n"constants": {constants}\n}}\n'
    (folder / FILE).write_text(text)


def read_growth(folder: Path) -> Growth:
    """Read the output of `write_growth`. The laws follow from the cells."""
    return Growth(json.loads((folder / FILE).read_text())["cells"])
