"""A Compose file run by podman in a separate network, service by service.

podman-compose reads the file, as Docker's Compose would. This module adds what podman 4.3 lacks without systemd: it
polls health checks and starts services after their dependencies.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from pin_images import FILES, images_of

from foltr.core.version import __version__

PROJECT = Path(__file__).parents[2]
NAMESPACE = "foltr-containers"
# The containers' bridge is separate from the machine's network. (`ip netns exec` would hide the cgroups.)
_INSIDE = ("nsenter", f"--net=/run/netns/{NAMESPACE}")
_QUIET = ("systemd", "healthchecks")
PATIENCE_S = 180.0
"""How long to wait for what is no promise: the machine may be busy with other tests."""
_NAME_SERVER = Path("/run/containers/networks/aardvark-dns")


def tags() -> dict[str, str]:
    """Return the images of others by variable, without digests: stand-ins have the real ones' tags."""
    return {name: image for file in FILES for name, image in images_of(file.read_text(encoding="utf-8")).items()}


def image_of(target: str) -> str:
    """Return the name of an image of ours, with its tag."""
    return f"localhost/foltr_{target}:{__version__}"


class StackError(Exception):
    """A step with the containers failed."""


def run(*command: str | Path, environment: Mapping[str, str] | None = None, timeout_s: float = 120.0) -> str:
    """Run a command and return its standard output. Raises StackError with the output if it fails or takes longer."""
    try:
        done = subprocess.run(
            [str(part) for part in command],
            env=dict(os.environ) | dict(environment or {}),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise StackError(f"{' '.join(map(str, command))}: not within {timeout_s:g} s") from error
    if done.returncode != 0:
        said = "\n".join(line for line in done.stderr.splitlines() if not any(word in line for word in _QUIET))
        raise StackError(
            f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout[-2000:]}{said[-4000:]}"
        )
    return done.stdout


def wait_until(what: str, happens: Callable[[], bool], timeout_s: float, every_s: float = 0.5) -> float:
    """Wait for a condition. Return the seconds it took, or raise StackError at the limit."""
    began = time.monotonic()
    while True:
        try:
            if happens():
                return time.monotonic() - began
            cause = ""
        except StackError as error:
            cause = f": {error}"
        if time.monotonic() - began > timeout_s:
            raise StackError(f"not within {timeout_s:g} s: {what}{cause}")
        time.sleep(every_s)


def keep_bridge_addresses() -> None:
    """Make bridges keep their hardware addresses.

    By default a bridge takes the lowest of its ports' addresses, which changes as containers join. Existing containers
    keep sending to the former one, so their DNS queries fail for up to a minute.
    """
    for bridge in json.loads(run("ip", "-n", NAMESPACE, "-json", "link", "show", "type", "bridge")):
        run("ip", "-n", NAMESPACE, "link", "set", "dev", bridge["ifname"], "address", bridge["address"])


def forget_names(project: str) -> None:
    """Remove a project's names that a killed run has left.

    The name server would mistake a new container for the former one with its address, and answer with addresses of the
    former network.
    """
    for names in _NAME_SERVER.glob(f"{project}_*"):
        names.unlink(missing_ok=True)


class Stack:
    """The services of a Compose file. `remove` deletes its containers, networks and volumes.

    Args:
        compose: the command podman-compose.
        environment: values of the file's variables.
    """

    def __init__(self, compose: Path, file: Path, project: str, environment: Mapping[str, str]) -> None:
        self._compose, self._file, self.project = compose, file, project
        self._environment = tags() | dict(environment)

    @contextlib.contextmanager
    def tried(self) -> Iterator[None]:
        """Remove what a killed run has left, and at the end everything. If a step fails, print the last log lines."""
        self.remove()
        try:
            yield
        except StackError:
            # The reason comes after them: a shortened log keeps its end.
            for name in sorted(self._names()):
                print(f"{name}: {self.logs(name, 1).strip()[:500]}", file=sys.stderr, flush=True)
            raise
        finally:
            self.remove()

    def set(self, **environment: str) -> None:
        """Change variables of the file, for containers created from now on."""
        self._environment |= environment

    def _podman(self, *arguments: str, timeout_s: float = 120.0) -> str:
        return run(*_INSIDE, "podman", *arguments, timeout_s=timeout_s)

    def up(self, *services: str, scale: Mapping[str, int] | None = None) -> None:
        """Create and start services without their dependencies."""
        scaled = [part for name, n in (scale or {}).items() for part in ("--scale", f"{name}={n}")]
        self._do("up", "--detach", "--no-build", "--no-deps", "--no-recreate", *scaled, *services)
        keep_bridge_addresses()

    def join(self, network: str) -> None:
        """Connect the containers to the network of another project."""
        for name in self._names():
            self._podman("network", "connect", network, name)
        keep_bridge_addresses()

    def command(self, service: str, *command: str) -> str:
        """Run a command in a new container of a service."""
        return self._do("run", "--rm", "--no-deps", "-T", service, *command)

    def _do(self, *arguments: str) -> str:
        command = (*_INSIDE, self._compose, "--in-pod=false", "-p", self.project, "-f", self._file)
        profiles = ("--profile", "operator", "--profile", "trial", "--profile", "workers")
        return run(*command, *profiles, *arguments, environment=self._environment, timeout_s=300.0)

    def once(self, service: str, timeout_s: float = 120.0, *, again: bool = False) -> None:
        """Run a service that ends by itself. Raises StackError if it fails."""
        if again:
            self.remove_containers(self.containers(service))
        self.up(service)
        (name,) = self.containers(service)
        wait_until(f"{service} ends", lambda: not self.is_running(name), timeout_s)
        code = self._podman("inspect", "--format", "{{.State.ExitCode}}", name).strip()
        if code != "0":
            raise StackError(f"{service} ended with {code}:\n{self.logs(name)}")

    def containers(self, service: str) -> list[str]:
        """Return the names of a service's containers, running or not."""
        filters = ("--filter", f"label=com.docker.compose.service={service}")
        mine = ("--filter", f"label=com.docker.compose.project={self.project}")
        return sorted(self._podman("ps", "--all", *filters, *mine, "--format", "{{.Names}}").split())

    def is_running(self, name: str) -> bool:
        return self._podman("inspect", "--format", "{{.State.Running}}", name).strip() == "true"

    def logs(self, name: str, lines: int = 40) -> str:
        done = subprocess.run(
            ["podman", "logs", "--tail", str(lines), name], capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr

    def wait_healthy(self, *services: str, timeout_s: float = PATIENCE_S) -> None:
        """Wait until the health checks of services pass. Polls them, since podman has no systemd here for that."""
        for service in services:
            for name in self.containers(service):
                try:
                    wait_until(f"{name} is healthy", lambda name=name: self.is_healthy(name), timeout_s)  # type: ignore[misc]
                except StackError as error:
                    raise StackError(f"{error}\n{self.logs(name)}") from error

    def is_healthy(self, name: str) -> bool:
        with contextlib.suppress(StackError):
            run("podman", "healthcheck", "run", name, timeout_s=30.0)
            return True
        return False

    def execute(self, service: str, *command: str, timeout_s: float = 60.0) -> str:
        """Run a command in the first container of a service."""
        return self._podman("exec", self.containers(service)[0], *command, timeout_s=timeout_s)

    def host_of(self, name: str) -> str:
        """Return a container's host name, which identifies its federator's lease."""
        return self._podman("inspect", "--format", "{{.Config.Hostname}}", name).strip()

    def kill(self, name: str) -> None:
        """Kill the process of a container as a crash would, so its restart policy applies."""
        os.kill(int(self._podman("inspect", "--format", "{{.State.Pid}}", name)), signal.SIGKILL)

    def started_at(self, name: str) -> str:
        """Return when the container was last started."""
        return self._podman("inspect", "--format", "{{.State.StartedAt}}", name).strip()

    def remove_containers(self, names: Sequence[str]) -> None:
        """Stop containers as Compose does, and remove them."""
        self._remove_containers(names, stop_s=20)

    def query(self, sql: str) -> list[list[str]]:
        """Run SQL in PostgreSQL. Return rows of text."""
        psql = ("psql", "-U", "foltr", "-d", "foltr", "-P", "pager=off", "--csv", "--tuples-only", "-c", sql)
        return [line.split(",") for line in self.execute("postgres", *psql).splitlines()]

    def remove(self) -> None:
        """Remove everything that the project has left."""
        mine = f"label=com.docker.compose.project={self.project}"
        self._remove_containers(self._names(), stop_s=2)
        for kind in ("volume", "network"):
            # By name as well: a volume that podman made for a container alone has no label.
            named = f"name=^{self.project}_"
            left = {
                name
                for which in (mine, named)
                for name in self._podman(kind, "ls", "--filter", which, "--format", "{{.Name}}").split()
            }
            if left:
                self._podman(kind, "rm", "--force", *sorted(left))

    def _names(self) -> list[str]:
        mine = f"label=com.docker.compose.project={self.project}"
        return self._podman("ps", "--all", "--filter", mine, "--format", "{{.Names}}").split()

    def _remove_containers(self, names: Sequence[str], stop_s: int) -> None:
        """Remove containers. podman fails if one ends meanwhile; the next try removes it."""
        left = set(names)

        def are_removed() -> bool:
            try:
                if left:
                    self._podman("rm", "--force", "--volumes", "--time", str(stop_s), *sorted(left), timeout_s=300.0)
            finally:
                left.intersection_update(self._podman("ps", "--all", "--format", "{{.Names}}").split())
            return not left

        wait_until("the containers are removed", are_removed, PATIENCE_S, every_s=2.0)
