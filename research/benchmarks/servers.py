"""Shared by the benchmarks: a real Mosquitto, enrolled devices, a federator process, and resource usage.

Everything is made in one temporary folder: the broker as ``foltr broker config`` writes it (with TLS including its
access list), the operator's folder as ``foltr device enrol`` makes it, and the database.
"""

import contextlib
import importlib.metadata
import json
import os
import platform
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import psutil

from foltr.broker.broker_records import CONFIG_NAME, Mode, read_access
from foltr.broker.mosquitto import MosquittoSettings, write_config
from foltr.broker.provision import provision_broker
from foltr.broker.users import provision_users
from foltr.core.operator.credentials import BrokerAccess, Credentials, write_secret
from foltr.core.operator.folder import create_authority
from foltr.edge_client.options import Connection

FEDERATION = "bench"
HERE = Path(__file__).parent
FOLTR = [sys.executable, "-c", "from foltr.cli.main import main; main()"]
START_TIMEOUT_S = 30.0


class Tls(StrEnum):
    """How the broker's clients authenticate; with ``none`` anybody may do anything."""

    NONE = "none"
    TLS = "tls"
    MTLS = "mtls"


def describe_machine() -> str:
    """Return one line: processor, cores, and the versions of the measured software."""
    packages = ("paho-mqtt", "aiomqtt", "msgpack", "cryptography", "pydantic", "sqlalchemy", "numpy")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    broker = subprocess.run([_mosquitto(), "-h"], capture_output=True, text=True, check=False).stdout.split("\n")[0]
    cores = len(os.sched_getaffinity(0))
    return f"{platform.machine()}, {cores} cores, Python {platform.python_version()}, {broker}; {versions}"


class Servers:
    """Mosquitto, a migrated database, and enrolled devices. Use as a context manager.

    Args:
        signed: devices and federator sign. Unsigned requires ``Tls.NONE``, because certificates and passwords are part
            of credentials.
        db_url: an empty database; by default a SQLite file in ``folder``.
    """

    def __init__(self, folder: Path, *, tls: Tls = Tls.NONE, signed: bool = True, db_url: str | None = None) -> None:
        if tls is not Tls.NONE and not signed:
            sys.exit("unsigned needs --tls none: TLS needs credentials")
        self.folder, self.signed = folder, signed
        self.db_url = db_url or f"sqlite:///{folder / 'federator.sqlite'}"
        self._broker_dir, self._operator_dir = folder / "broker", folder / "operator"
        self._started: list[subprocess.Popen[bytes]] = []
        self._port = free_port()
        settings = MosquittoSettings(
            self._broker_dir,
            self._broker_dir / "data",
            port=self._port,
            mode={Tls.NONE: None, Tls.TLS: Mode.PASSWORDS, Tls.MTLS: Mode.MTLS}[tls],
            federation=FEDERATION,
            # Not the user mosquitto, who cannot enter a temporary folder.
            user=pwd.getpwuid(os.geteuid()).pw_name,
        )
        self.broker_url = f"mqtt://127.0.0.1:{self._port}"
        self._has_users = tls is not Tls.NONE
        if self._has_users:
            # The address first: with "localhost" every connection might try IPv6 first.
            hosts = ("127.0.0.1", "localhost")
            self.broker_url = provision_broker(self._operator_dir, settings, hosts=hosts).broker_url
        else:
            write_config(settings)

    def __enter__(self) -> Self:
        try:
            self.run_foltr("db", "upgrade")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._started):
            stop(process)

    # --- who takes part -------------------------------------------------------------------------------------

    def enrol(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Enrol devices, before `start_broker`, which then knows them. Return their arguments for `EdgeClient`."""
        if not self.signed:
            common = {"broker": self.broker_url, "federation": FEDERATION}
            return [{**common, "client_id": name} for name in names]
        access = self._access_of(names)
        federator, operator = self.service("federator"), self.service("operator")
        with create_authority(self._operator_dir, FEDERATION, federator=federator, operator=operator) as authority:
            return [{"credentials": credentials} for credentials in authority.enrol_all(access)]

    def access(self, name: str) -> BrokerAccess:
        """Return the access of another user, enrolled or not. Call before `start_broker`."""
        return self._access_of([name])[name]

    def service(self, name: str) -> BrokerAccess:
        """Return the access of ``federator`` or ``operator``."""
        if not self._has_users:
            return BrokerAccess(broker_url=self.broker_url)
        return read_access(self._operator_dir / f"{name}.broker.json")

    def _access_of(self, names: Sequence[str]) -> dict[str, BrokerAccess]:
        if not self._has_users:
            return dict.fromkeys(names, BrokerAccess(broker_url=self.broker_url))
        return provision_users(self._operator_dir, names)

    # --- processes ------------------------------------------------------------------------------------------

    def start_broker(self) -> subprocess.Popen[bytes]:
        """Start Mosquitto, and return once it accepts connections."""
        process = self.start([_mosquitto(), "-c", str(self._broker_dir / CONFIG_NAME)], stderr=subprocess.DEVNULL)
        give_up_at = time.monotonic() + START_TIMEOUT_S
        while not _accepts(self._port):
            if process.poll() is not None or time.monotonic() > give_up_at:
                sys.exit("Mosquitto did not start")
            time.sleep(0.02)
        return process

    def start_federator(
        self, *arguments: str, profile: Path | None = None, **variables: str
    ) -> subprocess.Popen[bytes]:
        """Start ``foltr federator run``; with ``profile`` under research/benchmarks/profiled.py."""
        foltr = FOLTR if profile is None else [sys.executable, str(HERE / "profiled.py"), str(profile), "foltr"]
        identity = ["--credentials", str(self._operator_dir / "federator.json")]
        if not self.signed:
            identity = ["--allow-unsigned", "--broker", self.broker_url, "--federation", FEDERATION]
        return self.start([*foltr, "federator", "run", *identity, *arguments], variables)

    def run_foltr(self, *arguments: str) -> None:
        """Run one command to its end."""
        subprocess.run([*FOLTR, *arguments], env=self._environment(), check=True, stdout=subprocess.DEVNULL)

    def start(
        self, command: list[str], variables: Mapping[str, str] = MappingProxyType({}), **options: Any
    ) -> subprocess.Popen[bytes]:
        """Start a process that ends with this object at the latest."""
        process = subprocess.Popen(command, env={**self._environment(), **variables}, cwd=self.folder, **options)
        self._started.append(process)
        return process

    def _environment(self) -> dict[str, str]:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("FOLTR_")}
        paths = [str(HERE.parents[1]), inherited.get("PYTHONPATH", "")]
        return {
            **inherited,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "FOLTR_DB_URL": self.db_url,
            "FOLTR_LOG_LEVEL": "error",
        }


def write_devices(path: Path, devices: Sequence[dict[str, Any]]) -> None:
    """Write the result of `Servers.enrol` for another process, one line each."""
    lines = [
        json.dumps(
            {key: value.model_dump() if isinstance(value, Credentials) else value for key, value in device.items()}
        )
        for device in devices
    ]
    write_secret(path, "\n".join(lines) + "\n", replace=True)


def read_devices(path: Path) -> list[dict[str, Any]]:
    """Return keyword arguments of `EdgeClient`, one device each."""
    devices = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [
        {
            "credentials": Credentials.model_validate(device.pop("credentials")) if "credentials" in device else None,
            "connection": Connection(**device),
        }
        for device in devices
    ]


class Watch:
    """Samples resource usage of processes by name: CPU seconds (user and system) and resident memory.

    Args:
        period_s: seconds between samples; the kernel counts CPU time in steps of 10 ms.
    """

    def __init__(self, processes: dict[str, subprocess.Popen[bytes]], period_s: float = 0.02) -> None:
        self._processes = {name: psutil.Process(process.pid) for name, process in processes.items()}
        self._samples: dict[str, list[tuple[float, float, float]]] = {name: [] for name in processes}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._sample, args=(period_s,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def cpu_seconds(self, name: str, start: float, end: float) -> float:
        """Return the CPU seconds between two times (since the epoch), interpolated between samples."""
        times, cpu, _ = np.array(self._samples[name]).T
        first, last = np.interp([start, end], times, cpu)
        return float(last - first)

    def memory(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return times in seconds since the epoch, and resident megabytes (10^6) at each."""
        times, _, rss = np.array(self._samples[name]).T
        return times, rss / 1e6

    def _sample(self, period_s: float) -> None:
        while not self._stopped.wait(period_s):
            for name, process in self._processes.items():
                with contextlib.suppress(psutil.Error), process.oneshot():
                    cpu = process.cpu_times()
                    rss = process.memory_info().rss
                    # A process that has ended and was not waited for reports no memory.
                    if rss:
                        self._samples[name].append((time.time(), cpu.user + cpu.system, rss))


def stop(process: subprocess.Popen[bytes], timeout_s: float = 20.0) -> int:
    """Stop a process with SIGTERM, then SIGKILL. Return its exit code."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return process.returncode


def free_port() -> int:
    """Return a free loopback TCP port below the range that systems use for outgoing connections."""
    for _ in range(1000):
        port = secrets.choice(range(12_000, 32_000))
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    sys.exit("no free loopback port between 12,000 and 32,000")


def paced(rate_per_s: float, n: int, start: float) -> Iterator[tuple[int, float]]:
    """Yield ``(i, due time)`` for n events at a fixed rate from ``start`` (perf_counter), never early.

    Events are never delayed by missing answers: the offered load does not depend on the other side.
    """
    for i in range(n):
        due = start + i / rate_per_s
        while (left := due - time.perf_counter()) > 0:
            time.sleep(left)
        yield i, due


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _mosquitto() -> str:
    binary = shutil.which("mosquitto", path=os.environ["PATH"] + ":/usr/sbin:/usr/local/sbin")
    if binary is None:
        sys.exit("this benchmark needs Mosquitto: apt-get install mosquitto")
    return binary
