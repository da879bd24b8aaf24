"""Round time per client update in Flower, for comparison with round_overhead.py. It runs in Flower's environment.

Run (after make bench-peers): .venv-peers/bin/python research/benchmarks/flower_rounds.py [--clients N ...] [--nodes N]
     [--rounds N] [--deployed-rounds N] [--json FILE]

legacy: ``start_server`` in one process, and n clients in another, each with a gRPC connection and a thread. deployment:
what Flower runs by default, ``flower-superlink`` with n ``flower-supernode``, to which ``flwr run`` submits an app;
each message to a client starts a process. Both run without TLS, signatures or a database, and learning is a constant,
as in round_overhead.py. Times are medians over rounds, from the end of the one before to the round's own end.
Connecting and the first round are left out. With a thousand clients the legacy server did not reach its first round,
because each client occupies one of its thousand threads. Also measured: how long SuperLink and SuperNode take to be
ready.

The JSON file has a list with ``kind``, ``n``, ``round_ms``, ``per_update_ms`` and, of a deployment, ``link_s`` and
``node_s``: seconds until the SuperLink accepts connections, and from a SuperNode's start until it is activated.
"""

import argparse
import contextlib
import ctypes
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from command_line import parser_of, write_json

HERE = Path(__file__).parent
APP = HERE / "flower_app"
DIM = 136
_TIMEOUT_S = 120.0
_PR_SET_PDEATHSIG = 1


def main() -> None:
    # On SIGTERM, too, started processes must be stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    parser = parser_of(__doc__)
    parser.add_argument("--clients", type=int, nargs="*", default=[10, 100], help="of the legacy server")
    parser.add_argument("--nodes", type=int, default=2, help="nodes of the deployment; 0 leaves it out")
    parser.add_argument("--rounds", type=int, default=20, help="rounds of the legacy server, at least 3")
    parser.add_argument("--deployed-rounds", type=int, default=5, help="at least 3")
    parser.add_argument("--part", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        part, *words = options.part
        {"server": serve, "clients": take_part}[part](*words)
        return
    rows = [legacy(n, options.rounds) for n in options.clients]
    if options.nodes:
        rows.append(deployment(options.nodes, options.deployed_rounds))
    write_json(options.json, rows)


def legacy(n: int, rounds: int) -> dict[str, Any]:
    """Return a row for the server that Flower had before deployments."""
    with tempfile.TemporaryDirectory() as name:
        ends, port = Path(name) / "ends.json", str(free_port())
        with (
            running(name, sys.executable, __file__, "--part", "server", port, str(n), str(rounds), str(ends)) as server,
            running(name, sys.executable, __file__, "--part", "clients", port, str(n)),
        ):
            assert server.wait(timeout=_TIMEOUT_S) == 0
        return row_of("legacy", n, json.loads(ends.read_text()), rounds)


def deployment(n: int, rounds: int) -> dict[str, Any]:
    """Return a row for a SuperLink and SuperNodes, run as Flower's documentation says."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        port, ends = str(free_port()), Path(name) / "ends.json"
        link = ["flower-superlink", "--insecure", "--port", port, "--disable-runtime-dependency-installation"]
        began = time.perf_counter()
        stack.enter_context(running(name, *command(*link)))
        until(lambda: accepts(int(port)), "the SuperLink takes no connections")
        link_s = time.perf_counter() - began
        began = time.perf_counter()
        logs = [Path(name) / f"node-{i}.log" for i in range(n)]
        for log in logs:
            own = ["--superlink", f"127.0.0.1:{port}", "--port", str(free_port())]
            stack.enter_context(running(name, *command("flower-supernode", "--insecure", *own), log=log))
        until(lambda: all("Node ID" in log.read_text() for log in logs), "a SuperNode is not activated")
        node_s = (time.perf_counter() - began) / n
        settings = f"clients={n} rounds={rounds} dim={DIM} ends='{ends}'"
        (Path(name) / "config.toml").write_text(
            f'[superlink]\ndefault = "bench"\n[superlink.bench]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
        )
        submit = command("flwr", "run", str(APP), "bench", "--run-config", settings)
        subprocess.run(submit, env=environment(name), cwd=name, check=True, stdout=subprocess.DEVNULL)
        until(lambda: ends.exists() and ends.read_text().count(",") >= rounds - 1, "the rounds did not end")
        row = row_of("deployment", n, json.loads(ends.read_text()), rounds)
        print(f"SuperLink ready in {link_s:.1f} s, a SuperNode in {node_s:.1f} s", flush=True)
        return {**row, "link_s": link_s, "node_s": node_s}


def row_of(kind: str, n: int, ends: list[float], rounds: int) -> dict[str, Any]:
    assert len(ends) == rounds, f"{len(ends)} rounds"
    round_ms = 1e3 * statistics.median(np.diff(ends))
    print(f"Flower, {kind}, n = {n}: round {round_ms:.1f} ms, per update {round_ms / n:.3f} ms", flush=True)
    return {"kind": kind, "n": n, "round_ms": round_ms, "per_update_ms": round_ms / n}


# --- parts, each in a separate process ------------------------------------------------------------------------


def serve(port: str, n: str, rounds: str, ends: str) -> None:
    from flwr.server import ServerConfig, start_server

    sys.path.insert(0, str(APP))
    from constant.app import Noting

    strategy = Noting(int(n), DIM, Path(ends))
    start_server(server_address=f"127.0.0.1:{port}", config=ServerConfig(num_rounds=int(rounds)), strategy=strategy)


def take_part(port: str, n: str) -> None:
    # By module: the package has a function of the same name.
    from flwr.compat.client.app import start_client

    sys.path.insert(0, str(APP))
    from constant.app import Constant

    def one() -> None:
        start_client(server_address=f"127.0.0.1:{port}", client=Constant().to_client(), insecure=True)

    threads = [threading.Thread(target=one) for _ in range(int(n))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# --- processes ----------------------------------------------------------------------------------------------


def command(program: str, *arguments: str) -> list[str]:
    """Return the command of one of Flower's programs."""
    return [str(Path(sys.executable).parent / program), *arguments]


def environment(folder: str) -> dict[str, str]:
    """Return an environment that keeps Flower's files in ``folder`` and disables its telemetry."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, "PATH": path, "HOME": folder, "FLWR_HOME": folder, "FLWR_TELEMETRY_ENABLED": "0"}


def end_with_parent() -> None:
    """End a child with its parent: a hundred threads that look for a missing server would keep a machine busy."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@contextlib.contextmanager
def running(folder: str, *words: str, log: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process, and at the end stop it with all its children, which SuperLink and SuperNode would leave."""
    with open(log or os.devnull, "wb") as out:  # noqa: PTH123 (the null device is no path of ours)
        process = subprocess.Popen(
            words,
            env=environment(folder),
            cwd=folder,
            stdout=out,
            stderr=out,
            start_new_session=True,
            preexec_fn=end_with_parent,  # noqa: PLW1509 (no thread runs yet in this process)
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()


def until(is_so: Callable[[], bool], otherwise: str) -> None:
    give_up_at = time.monotonic() + _TIMEOUT_S
    while not is_so():
        if time.monotonic() > give_up_at:
            sys.exit(otherwise)
        time.sleep(0.02)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


if __name__ == "__main__":
    main()
