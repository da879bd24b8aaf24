"""What ingest workers take over from the leader: the processor time of an update, by the number of workers.

Run: python research/benchmarks/workers.py [--workers 0 1 2] [--clients 1000] [--dim 136] [--rounds 8] [--json FILE]

One process speaks for a crowd (crowd.py). Its updates are signed and stored in SQLite with synchronous=FULL, first by
one federator that does everything, then by a leader with workers. Sender, broker and all of these share the machine, so
a round takes no less time with workers. The useful figure is the leader's processor time for an update, because
everything else can run on other machines.

The JSON file has a list, an object for each number of workers. Times are in milliseconds:

    n_workers, n, dim, n_rounds    workers, 0 for one federator alone; clients, weights, rounds
    round_ms                       a whole round, the median
    leader_cpu_ms                  processor time for each update, of the leader or the federator alone
    workers_cpu_ms                 of all workers together
    most_leader_per_s              updates a second at which a leader has no processor time left
    most_worker_per_s              the same of a worker; None without
"""

import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from command_line import parser_of, write_json
from round_overhead import round_ends
from servers import HERE, Servers, Watch, describe_machine, write_devices

from foltr.broker.broker_records import to_json
from foltr.core.operator.credentials import write_secret

_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Shared:
    """One line of the result; its fields are explained at the top of this file."""

    n_workers: int
    n: int
    dim: int
    n_rounds: int
    round_ms: float
    leader_cpu_ms: float
    workers_cpu_ms: float

    @property
    def most_leader_per_s(self) -> float:
        return 1e3 / self.leader_cpu_ms

    @property
    def most_worker_per_s(self) -> float | None:
        return 1e3 / self.workers_cpu_ms if self.n_workers else None

    def __str__(self) -> str:
        worker = f", a worker {self.most_worker_per_s:,.0f}" if self.most_worker_per_s else ""
        return (
            f"{self.n_workers} workers: round {self.round_ms:8.1f} ms; CPU ms an update: leader "
            f"{self.leader_cpu_ms:.3f}, workers {self.workers_cpu_ms:.3f}; at most "
            f"{self.most_leader_per_s:,.0f} a second by the leader{worker}"
        )


def measure(n_workers: int, n_clients: int, dim: int, n_rounds: int) -> Shared:
    """Run one federation, from an empty database to its last round."""
    with tempfile.TemporaryDirectory(prefix="foltr-workers-") as name, Servers(Path(name)) as servers:
        write_devices(servers.folder / "devices", servers.enrol([f"device-{i:06}" for i in range(n_clients)]))
        access_file = servers.folder / "crowd.json"
        write_secret(access_file, to_json(servers.service("operator")), replace=True)
        servers.start_broker()
        leader = servers.start_federator(
            *("--role", "leader" if n_workers else "all"),
            *("--features", str(dim), "--min-clients", str(n_clients), "--max-clients", str(n_clients)),
            *("--interactions", "1", "--rounds", str(n_rounds), "--min-time", "0", "--max-time", "600"),
        )
        processes = {"leader": leader}
        processes |= {f"worker {i}": servers.start_federator("--role", "ingest") for i in range(n_workers)}
        words = [str(HERE / "crowd.py"), "--speak", str(access_file), "--dim", str(dim)]
        crowd = servers.start([sys.executable, *words, "--json", str(servers.folder / "told.json")])
        with Watch(processes) as watch:
            assert leader.wait(timeout=_TIMEOUT_S) == 0
        assert crowd.wait(timeout=60) == 0
        ends = round_ends(servers, n_clients)
        assert len(ends) == n_rounds, f"{len(ends)} rounds were completed"
        cpu_ms = {
            process: 1e3 * watch.cpu_seconds(process, ends[0], ends[-1]) / (n_clients * (n_rounds - 1))
            for process in processes
        }
        return Shared(
            n_workers=n_workers,
            n=n_clients,
            dim=dim,
            n_rounds=n_rounds,
            round_ms=1e3 * statistics.median(np.diff(ends)),
            leader_cpu_ms=cpu_ms.pop("leader"),
            workers_cpu_ms=sum(cpu_ms.values()),
        )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--dim", type=int, default=136, help="weights of the linear ranker")
    parser.add_argument("--rounds", type=int, default=8, help="at least 3")
    options = parser.parse_args(arguments)
    print(describe_machine())
    results = []
    for n_workers in options.workers:
        result = measure(n_workers, options.clients, options.dim, options.rounds)
        print(result, flush=True)
        bounds = {name: getattr(result, name) for name in ("most_leader_per_s", "most_worker_per_s")}
        results.append(asdict(result) | bounds)
    write_json(options.json, results)


if __name__ == "__main__":
    main()
