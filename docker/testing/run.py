"""Build the images, run both stacks in podman, and test them: ``make containers-test``.

If this machine cannot run containers, the test is skipped with the reason. Any later problem is a failure. Containers,
networks and volumes are removed at the end. Images stay, so the next run rebuilds only what has changed.
"""

import contextlib
import fcntl
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from hosts import HELPER
from production import PRODUCTION, run_in_production
from stack import NAMESPACE, PROJECT, Stack, StackError, forget_names, image_of, run, tags
from trial import TRIAL, try_out

HERE = Path(__file__).parent
TARGETS = ("federator", "edge-client", "helper", "dashboard")
_UNABLE = 75


def main() -> int:
    """Run everything. Return the exit code."""
    began = time.monotonic()
    prepared = subprocess.run([HERE / "machine.sh"], stdout=subprocess.PIPE, text=True, check=False)
    if prepared.returncode == _UNABLE:
        print(f"SKIPPED: containers ({prepared.stdout.strip()})")
        return 0
    if prepared.returncode != 0:
        print(f"containers: FAILED: machine.sh ended with {prepared.returncode}", file=sys.stderr)
        return 1
    machine = read_exports(prepared.stdout)
    os.environ["CONTAINERS_CONF"] = machine["CONTAINERS_CONF"]
    # A second run would share names, networks and volumes with the first.
    lock = (Path(machine["CONTAINERS_CONF"]).parent / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("containers: FAILED: another run goes on here; wait for its end", file=sys.stderr)
        return 1
    # Clean up also after SIGTERM.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    flags = shlex.split(machine["FOLTR_BUILD_FLAGS"])
    note(began, "podman, and bases for the images, are there")
    try:
        for target in TARGETS:
            build(target, flags)
        note(began, "images built: " + ", ".join(f"{target} {size_of(target)} MB" for target in TARGETS))
        with network_of_its_own():
            for scenario in (try_out, run_in_production):
                for line in scenario(Path(sys.executable).with_name("podman-compose")):
                    note(began, line)
    except StackError as error:
        print(f"containers: FAILED after {time.monotonic() - began:.0f} s: {error}", file=sys.stderr)
        return 1
    note(began, "all of it works")
    return 0


def read_exports(text: str) -> dict[str, str]:
    """Parse lines of ``export NAME=value`` with shell quoting."""
    return dict(shlex.split(line)[1].split("=", 1) for line in text.splitlines())


def note(began: float, line: str) -> None:
    print(f"containers: {time.monotonic() - began:4.0f} s  {line}", flush=True)


def build(target: str, flags: list[str]) -> None:
    """Build one image as docker/README.md says, with a different package index for pip, and the base that is here."""
    command = ("podman", "build", *flags, "--quiet", "--file", PROJECT / "docker/Dockerfile", "--target", target)
    base = f"PYTHON={tags()['PYTHON']}"
    run(*command, "--build-arg", base, "--tag", image_of(target), PROJECT, timeout_s=600.0)


def size_of(target: str) -> int:
    """Return the size of an image in megabytes, including its base."""
    return round(int(run("podman", "image", "inspect", "--format", "{{.Size}}", image_of(target))) / 1e6)


@contextlib.contextmanager
def network_of_its_own() -> Iterator[None]:
    """Make a network namespace for the containers' bridge, and remove it at the end."""
    if Path("/run/netns", NAMESPACE).exists():  # of a run that was killed
        for project in (TRIAL, HELPER, PRODUCTION):
            Stack(Path(), Path(), project, {}).remove()
        run("ip", "netns", "del", NAMESPACE)
    for project in (TRIAL, HELPER, PRODUCTION):
        forget_names(project)
    end_lost_name_server()
    run("ip", "netns", "add", NAMESPACE)
    try:
        run("ip", "-n", NAMESPACE, "link", "set", "lo", "up")
        yield
    finally:
        run("ip", "netns", "del", NAMESPACE)
        end_lost_name_server()


def end_lost_name_server() -> None:
    """End podman's name server in a removed namespace, which podman leaves running.

    It would be asked for the names of the next containers, too, and know none of them.
    """
    pid_file = Path("/run/containers/networks/aardvark-dns/aardvark.pid")
    with contextlib.suppress(OSError, ValueError):
        pid = int(pid_file.read_text())
        namespace = Path(f"/proc/{pid}/ns/net").stat().st_ino
        reached = [Path("/proc/self/ns/net"), *Path("/run/netns").glob("*")]
        is_podmans = "aardvark-dns" in Path(f"/proc/{pid}/cmdline").read_text()
        if is_podmans and namespace not in {path.stat().st_ino for path in reached}:
            os.kill(pid, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
