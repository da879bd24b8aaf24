"""Round time per client update, durable and receipted, beside a bare paho + Mosquitto exchange in the same run.

What is timed: federator (its own process, SQLite with synchronous=FULL), Mosquitto (its own process), and all n
devices with a connection each (one process, learning replaced by a constant so that transport and bookkeeping
are what is left; their stores are in memory). A round is: announcements to all, an update from each, decision,
commit, receipt, aggregation, the next model. The bare exchange sends the same bytes and an answer, nothing else.
"""

import argparse
import asyncio
import gc
import importlib.metadata
import os
import platform
import shutil
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from datetime import datetime
from pathlib import Path

import numpy as np
import paho.mqtt.client as paho

from edge_client.client import EdgeClient
from edge_client.store import Interaction
from foltr.cli.output import configure_logging
from foltr.messages import PdgdTraining

DIM = 136
FEDERATION = "bench"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--fleet", nargs=2, metavar=("PORT", "N"), help=argparse.SUPPRESS)
    parser.add_argument("--bare-server", type=int, metavar="PORT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    configure_logging("error", "text")
    if options.fleet:
        asyncio.run(run_fleet(int(options.fleet[0]), int(options.fleet[1])))
    elif options.bare_server:
        serve_bare(options.bare_server)
    else:
        print_machine()
        for n_clients in options.clients:
            with tempfile.TemporaryDirectory() as folder:
                measure(n_clients, options.rounds, Path(folder))


def print_machine() -> None:
    packages = ("paho-mqtt", "aiomqtt", "msgpack", "sqlalchemy", "numpy")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; {versions}")
    print(f"d = {DIM}; medians over rounds; the two columns are measured one after the other")


def measure(n_clients: int, n_rounds: int, folder: Path) -> None:
    port = free_port()
    mosquitto = start_mosquitto(port, folder)
    try:
        bare = run_bare(port, n_clients, n_rounds)
        ours = run_service(port, n_clients, n_rounds, folder)
    finally:
        stop(mosquitto)
    print(
        f"n = {n_clients:5}: round {ours * 1e3:8.1f} ms, per client {ours / n_clients * 1e3:6.3f} ms; "
        f"bare exchange per client {bare / n_clients * 1e3:6.3f} ms; ratio {ours / bare:5.1f}"
    )


def run_service(port: int, n_clients: int, n_rounds: int, folder: Path) -> float:
    """Median seconds between two rounds' ends, by the federator's own clock."""
    db = folder / "bench.sqlite"
    foltr = [sys.executable, "-c", "from foltr.cli.main import main; main()"]
    environment = {
        **os.environ,
        "FOLTR_DB_URL": f"sqlite:///{db}",
        "FOLTR_BROKER_URL": f"mqtt://127.0.0.1:{port}",
        "FOLTR_FEDERATION": FEDERATION,
        "FOLTR_LOG_LEVEL": "error",
    }
    subprocess.run([*foltr, "db", "upgrade"], env=environment, check=True, stdout=subprocess.DEVNULL)
    arguments = ["--features", str(DIM), "--min-clients", str(n_clients), "--max-clients", str(n_clients)]
    arguments += ["--interactions", "1", "--rounds", str(n_rounds), "--max-time", "120"]
    federator = subprocess.Popen([*foltr, "federator", "run", *arguments], env=environment)
    fleet = subprocess.Popen([sys.executable, __file__, "--fleet", str(port), str(n_clients)], env=environment)
    try:
        federator.wait(timeout=600)
    finally:
        stop(federator)
        stop(fleet)
    with sqlite3.connect(db) as connection:
        rows = connection.execute("SELECT state, closed_at, n_updates FROM round_history ORDER BY round").fetchall()
    connection.close()
    assert [(state, n) for state, _, n in rows] == [("completed", n_clients)] * n_rounds, rows
    ends = [datetime.fromisoformat(closed_at).timestamp() for _, closed_at, _ in rows]
    return statistics.median(np.diff(ends))


async def run_fleet(port: int, n_clients: int) -> None:
    def constant(weights: np.ndarray, interaction: Interaction, training: PdgdTraining) -> np.ndarray:  # noqa: ARG001
        return weights + 1e-3

    features = np.ones((1, DIM), np.float32)

    async def device(number: int) -> None:
        url = f"mqtt://127.0.0.1:{port}"
        name = f"device-{number:04d}"
        async with EdgeClient(url, federation=FEDERATION, client_id=name, store=":memory:", learner=constant) as client:
            newest = 0
            while True:
                round_ = await client.next_round(after=newest, timeout_s=300)
                if not round_.open:
                    return
                newest = round_.round
                client.record_clicks(client.rank(features), [0])

    # A thousand devices share this process's garbage collector, which no device in the field does.
    gc.set_threshold(100_000, 20, 100)
    await asyncio.gather(*(device(i) for i in range(n_clients)))


def run_bare(port: int, n_clients: int, n_rounds: int) -> float:
    """Median seconds for n updates of the same size and an answer to each, QoS 1, two paho processes."""
    server = subprocess.Popen([sys.executable, __file__, "--bare-server", str(port)])
    answered = threading.Semaphore(0)
    client = paho_client(lambda _client, _data, _message: answered.release())
    client.connect("127.0.0.1", port)
    set_nodelay(client)
    client.loop_start()
    client.subscribe("answers/+", qos=1)
    try:
        for attempt in range(100):  # until the server has subscribed
            client.publish("updates/probe", b"", qos=1)
            if answered.acquire(timeout=0.1):
                break
            assert attempt < 99
        time.sleep(0.3)
        while answered.acquire(blocking=False):
            pass
        seconds = []
        payload = bytes(4 * DIM + 170)
        for _ in range(n_rounds):
            started = time.perf_counter()
            for i in range(n_clients):
                client.publish(f"updates/{i}", payload, qos=1)
            for _ in range(n_clients):
                assert answered.acquire(timeout=30)
            seconds.append(time.perf_counter() - started)
        return statistics.median(seconds)
    finally:
        client.disconnect()
        client.loop_stop()
        stop(server)


def serve_bare(port: int) -> None:
    def answer(client: paho.Client, _data: object, message: paho.MQTTMessage) -> None:
        client.publish(message.topic.replace("updates", "answers"), bytes(150), qos=1)

    client = paho_client(answer)
    client.connect("127.0.0.1", port)
    set_nodelay(client)
    client.subscribe("updates/+", qos=1)
    client.loop_forever()


def paho_client(on_message: object) -> paho.Client:
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    client.on_message = on_message
    client.max_inflight_messages_set(1000)
    return client


def set_nodelay(client: paho.Client) -> None:
    client.socket().setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def start_mosquitto(port: int, folder: Path) -> subprocess.Popen:
    binary = shutil.which("mosquitto", path=os.environ["PATH"] + ":/usr/sbin:/usr/local/sbin")
    if binary is None:
        sys.exit("this benchmark needs Mosquitto: apt-get install mosquitto")
    config = folder / "mosquitto.conf"
    config.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\n"
        "max_queued_messages 100000\nmax_inflight_messages 1000\nlog_type error\n"
    )
    process = subprocess.Popen([binary, "-c", str(config)])
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return process
        time.sleep(0.05)
    sys.exit("Mosquitto did not start")


def stop(process: subprocess.Popen) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    main()
