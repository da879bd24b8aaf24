"""A federation whose processes are of two versions of foltr: each is started from a checkout of its own."""

import contextlib
import getpass
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from servers import accepts, free_port

FEDERATION = "mail"
_MAIN = "import sys; from foltr.cli.main import main; sys.argv[0] = 'foltr'; main()"
PATIENCE_S = 120.0


class TrialError(Exception):
    """Two versions do not get on as was expected; the message says where."""


class Version:
    """One checkout of foltr, whose commands are run by this interpreter with its packages.

    Args:
        checkout: the folder that has `foltr/`, `federator/` and the other packages.
    """

    def __init__(self, checkout: Path) -> None:
        if not (checkout / "foltr/cli/main.py").exists():
            raise TrialError(f"{checkout} is no checkout of foltr")
        self.checkout = checkout
        # Before devices had limits of their own, they took part in sums of any size.
        sources = (checkout / "foltr/cli/client.py", checkout / "foltr/cli/fleet/running.py")
        has_limits = any("min_cohort" in path.read_text(encoding="utf-8") for path in sources if path.exists())
        self.for_few = ("--min-cohort", "2") if has_limits else ()

    def start(self, *arguments: object, folder: Path, log: Path, **variables: str) -> "subprocess.Popen[bytes]":
        """Start a command that goes on, with what it prints at the end of ``log``."""
        environment = self._env() | variables
        with log.open("ab") as output:
            return subprocess.Popen(self._words(arguments), cwd=folder, env=environment, stdout=output, stderr=output)

    def run(self, *arguments: object, folder: Path) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end."""
        return subprocess.run(
            self._words(arguments),
            cwd=folder,
            env=self._env(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def _words(self, arguments: Sequence[object]) -> list[str]:
        return [sys.executable, "-c", _MAIN, *map(str, arguments)]

    def _env(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("FOLTR_")}
        return {**kept, "PYTHONPATH": str(self.checkout), "FOLTR_DATASET": "synthetic", "COLUMNS": "200"}


class Deployment:
    """Broker, database, federator, helpers and devices in one folder; `close` ends what runs.

    Args:
        folder: empty, and this deployment's own.
        first: the version that configures the broker and makes the operator's folder.
    """

    def __init__(self, folder: Path, first: Version) -> None:
        self.folder, self.db = folder, f"sqlite:///{folder}/mail.sqlite"
        self.port = free_port()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.configure_broker(first)
        self._start_mosquitto()

    def configure_broker(self, version: Version, *more: str) -> None:
        self.succeed(
            *(version, "broker", "config", "--tls", "--federation", FEDERATION, "--host", "localhost"),
            *("--out", "mosquitto", "--port", self.port, "--user", getpass.getuser(), *more),
        )

    def _start_mosquitto(self) -> None:
        program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
        if program is None:
            raise TrialError("no mosquitto")
        with (self.folder / "broker.log").open("ab") as log:
            self._running["broker"] = subprocess.Popen(
                [program, "-c", "mosquitto/mosquitto.conf"], cwd=self.folder, stdout=log, stderr=log
            )
        self.until("the broker listens", lambda: accepts(self.port))

    def restart_broker(self) -> None:
        self.stop("broker")
        self._start_mosquitto()

    def succeed(self, version: Version, *arguments: object) -> str:
        """Run a command that has to end well; return what it printed."""
        done = version.run(*arguments, folder=self.folder)
        if done.returncode != 0:
            raise TrialError(f"foltr {' '.join(map(str, arguments))}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def refused(self, version: Version, *arguments: object, code: int) -> str:
        """Run a command that has to be refused in one line; return the line."""
        done = version.run(*arguments, folder=self.folder)
        lines = [line for line in done.stderr.strip().splitlines() if "[info" not in line and "[warning" not in line]
        if done.returncode != code or len(lines) != 1:
            raise TrialError(f"foltr {' '.join(map(str, arguments))}: {done.returncode}, not {code}\n{done.stderr}")
        return lines[0]

    def start(self, name: str, version: Version, *arguments: object, **variables: str) -> None:
        log = self.folder / f"{name}.log"
        self._running[name] = version.start(*arguments, folder=self.folder, log=log, **variables)

    def device(self, name: str, version: Version, *more: object) -> None:
        """Start a device with the store it has had before."""
        credentials, store = f"devices/{name}.json", f"{name}.sqlite"
        self.start(
            name, version, "client", "run", "--credentials", credentials, "--store", store, *version.for_few, *more
        )

    def federator(self, version: Version, min_clients: int, max_clients: int, *more: object, **variables: str) -> None:
        limits = ("--min-clients", min_clients, "--max-clients", max_clients, "--min-time", 1, "--max-time", 600)
        own = ("--credentials", "foltr-operator/federator.json", "--db", self.db)
        self.start("federator", version, "federator", "run", *own, *limits, *more, **variables)

    def stop(self, *names: str) -> None:
        """End processes as an operator does; each has to end well."""
        for name in names:
            process = self._running.pop(name)
            if process.poll() is not None:
                raise TrialError(f"{name} had ended with {process.returncode}\n{self.log(name)}")
            process.send_signal(signal.SIGTERM)
            if process.wait(30) != 0:
                raise TrialError(f"{name} ended with {process.returncode}\n{self.log(name)}")

    def has_ended(self, name: str) -> bool:
        return self._running[name].poll() is not None

    def ended(self, name: str) -> int:
        """Wait for a process that ends by itself; return its exit code."""
        return self._running.pop(name).wait(PATIENCE_S)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()[-4000:]

    def close(self) -> None:
        for name in reversed(list(self._running)):
            process = self._running.pop(name)
            process.kill()
            process.wait(30)

    def ask(self, statement: str) -> list[tuple[object, ...]]:
        """Ask the federator's database."""
        with contextlib.closing(sqlite3.connect(self.folder / "mail.sqlite", timeout=10)) as database:
            return database.execute(statement).fetchall()

    def completed(self) -> dict[int, int]:
        """How many updates each completed round has."""
        rows = self.ask("SELECT round, n_updates FROM round_history WHERE state = 'completed' ORDER BY round")
        return {int(str(number)): int(str(n)) for number, n in rows}

    def learn(self, rounds: int, n_updates: int) -> None:
        """Wait until so many rounds more have so many updates each."""
        newest = max(self.completed(), default=0)

        def enough() -> bool:
            self.all_run()
            return sum(n >= n_updates for number, n in self.completed().items() if number > newest) >= rounds

        self.until(f"{rounds} rounds with {n_updates} updates", enough)

    def waiting_updates(self) -> int:
        """How many updates the open round has."""
        ((n,),) = self.ask("SELECT coalesce(sum(n_updates), 0) FROM round_history WHERE state = 'collecting'")
        return int(str(n))

    def all_run(self) -> None:
        for name, process in self._running.items():
            if process.poll() is not None:
                raise TrialError(f"{name} has ended with {process.returncode}\n{self.log(name)}")

    def until(self, what: str, happens: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
        give_up_at = time.monotonic() + timeout_s
        while not happens():
            if time.monotonic() > give_up_at:
                logs = "\n".join(f"--- {name}\n{self.log(name)[-1500:]}" for name in self._running)
                raise TrialError(f"not within {timeout_s:g} s: {what}\n{logs}")
            time.sleep(0.2)

    def refusals(self) -> dict[str, int]:
        """By code, how many updates and messages were refused."""
        rows = self.ask("SELECT code, sum(n) FROM events WHERE code IS NOT NULL GROUP BY code")
        return {str(code): int(str(n)) for code, n in rows}

    def check_clicks(self) -> None:
        """Of each client the updates that count follow one another: no click is twice in a model, none is left out."""
        rows = self.ask(
            "SELECT u.client, u.covers_after, u.covers_through FROM updates u JOIN rounds r "
            "ON r.federation = u.federation AND r.number = u.round WHERE r.state != 'abandoned' ORDER BY 1, 2"
        )
        ends: dict[object, object] = {}
        for client, after, through in rows:
            if client in ends and ends[client] != after:
                raise TrialError(f"client {client}: an update ends at {ends[client]}, the next begins at {after}")
            ends[client] = through
