"""Bytes on the federator's disk per update, and memory of federator and broker, by the ranker's length.

Run: python research/benchmarks/footprint.py [--clients 100] [--rounds 20] [--dims 136 10000] [--db URL] [--json FILE]
     [--aggregation RULE]

The devices are those of constant_devices.py. Their updates are signed and sealed, so no two are alike and nothing
compresses better than in life. Disk space is the growth of the database with its indexes and views since before the
first round, divided by its updates; it includes a model a round. On PostgreSQL it is pg_database_size of an empty
database that you name. Memory is the highest resident memory seen. Not measured: the devices' stores, dead rows that
PostgreSQL has not cleaned up yet, and the data keys, which take 4 kB of disk for each client.
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from command_line import parser_of, write_json
from servers import HERE, Servers, Watch, describe_machine, write_devices
from sqlalchemy import text

from foltr.storage.database import Database

_TIMEOUT_S = 500.0


async def stored(db_url: str) -> tuple[int, int]:
    """Return the bytes of the database, and its number of updates."""
    async with await Database.connect(db_url) as database, database.reading() as connection:
        size = (
            "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
            if database.dialect == "sqlite"
            else "SELECT pg_database_size(current_database())"
        )
        n_bytes = (await connection.execute(text(size))).scalar_one()
        n_updates = (await connection.execute(text("SELECT count(*) FROM updates"))).scalar_one()
        return int(n_bytes), int(n_updates)


def measure(options: argparse.Namespace, dim: int) -> dict[str, float]:
    """Run one federation, from an empty database to its last round."""
    names = [f"device-{i:05}" for i in range(options.clients)]
    with (
        tempfile.TemporaryDirectory(prefix="foltr-footprint-") as folder,
        Servers(Path(folder), db_url=options.db) as servers,
    ):
        before, _ = asyncio.run(stored(servers.db_url))
        write_devices(servers.folder / "devices", servers.enrol(names))
        limits = [str(options.clients)] * 2
        processes = {"broker": servers.start_broker()}
        processes["federator"] = servers.start_federator(
            *("--features", str(dim), "--interactions", "1", "--rounds", str(options.rounds), "--min-time", "0"),
            *("--min-clients", limits[0], "--max-clients", limits[1], "--aggregation", options.aggregation),
        )
        words = (str(servers.folder / "devices"), str(dim), "0", "1")
        devices = servers.start([sys.executable, str(HERE / "constant_devices.py"), *words])
        with Watch(processes, period_s=0.1) as watch:
            if processes["federator"].wait(_TIMEOUT_S) != 0 or devices.wait(60) != 0:
                sys.exit("a process of the benchmark failed")
        after, n_updates = asyncio.run(stored(servers.db_url))
        return {
            "dim": dim,
            "n": options.clients,
            "aggregation": options.aggregation,
            "n_updates": n_updates,
            "bytes_per_update": (after - before) / n_updates,
            "federator_mb": float(watch.memory("federator")[1].max()),
            "broker_mb": float(watch.memory("broker")[1].max()),
        }


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--dims", type=int, nargs="+", default=[136, 10_000])
    parser.add_argument("--aggregation", default="mean", help="a rule; see foltr federator run --help")
    parser.add_argument("--db", help="an empty PostgreSQL database, with one of --dims; default: SQLite")
    options = parser.parse_args()
    if options.db and len(options.dims) > 1:
        parser.error("--db names one database: give one of --dims")
    print(describe_machine())
    print(f"{'weights':>8} {'updates':>8} {'bytes each':>11} {'federator MB':>13} {'broker MB':>10}")
    rows = []
    for dim in options.dims:
        row = measure(options, dim)
        rows.append(row)
        sizes = f"{row['bytes_per_update']:11,.0f} {row['federator_mb']:13.0f} {row['broker_mb']:10.0f}"
        print(f"{dim:8,} {row['n_updates']:8,.0f} {sizes}", flush=True)
    write_json(options.json, rows)


if __name__ == "__main__":
    main()
