"""Run commands with hostile values, each in a forked process with limits, a folder of its own, and loopback only."""

import contextlib
import faulthandler
import gc
import importlib
import importlib.util
import io
import json
import os
import pkgutil
import resource
import select
import shutil
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foltr.cli.main import main as main_of_foltr

MEMORY = 1_500_000_000
"""Bytes of address space that a command may take beyond what was imported."""
LIMIT = 2_400
"""Looks, ten a second: a command that has not ended by then hangs. One that computes or serves is ended before."""
SERVED, IDLE, KILLED = 30, 15, 1_200
AT_ONCE = 3
_DEVICES = ("/dev/null", "/dev/full", "/dev/zero", "/dev/tty")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_NAMES = ("mkdir", "rename", "remove", "rmdir", "link", "symlink", "chmod", "chown", "truncate")
_CHANGES = {f"os.{name}" for name in _NAMES}


@dataclass
class _Running:
    request: dict[str, Any]
    folder: Path
    pid: int
    n_looks: int = 0
    asked_at: int | None = None
    used: tuple[str, str] | None = None
    used_at: int = 0


def main() -> None:
    """Read the requests from standard input, a line each; print a line for each that has ended."""
    setup, *requests = [json.loads(line) for line in sys.stdin]
    _import_all(setup["made"])
    base = _address_space()
    waiting, running = list(enumerate(requests)), {}
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            number, request = waiting.pop(0)
            one = _start(number, request, setup, base)
            running[os.pidfd_open(one.pid)] = one
        poll = select.poll()
        for descriptor in running:
            poll.register(descriptor, select.POLLIN)
        ended = {descriptor for descriptor, _ in poll.poll(100)}
        for descriptor, one in list(running.items()):
            if descriptor in ended:
                del running[descriptor]
                os.close(descriptor)
                _report(one)
            else:
                _hurry(one)


def _import_all(made: str) -> None:
    parts = ("cli", "core.methods", "federator", "edge_client", "helper", "broker", "storage", "operations", "api")
    for package in (*(f"foltr.{part}" for part in parts), "foltr_research"):
        if importlib.util.find_spec(package) is None:  # research is a package of its own
            continue
        found = importlib.import_module(package)
        for module in pkgutil.walk_packages(found.__path__, f"{package}."):
            with contextlib.suppress(ModuleNotFoundError):
                importlib.import_module(module.name)
    # What is compiled is loaded here, once.
    sys.argv = ["foltr", "simulate", f"--data={made}/letor", "--clients=2", "--rounds=2", "--interactions=1"]
    os.environ["FOLTR_CACHE"] = f"{made}-cache"  # or nothing would be read again
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main_of_foltr()
    gc.freeze()


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _start(number: int, request: dict[str, Any], setup: dict[str, Any], base: int) -> _Running:
    folder = Path(setup["work"], f"case-{number}")
    shutil.copytree(setup["made"], folder / "at", symlinks=True)
    for name in ("out", "err", "tmp"):
        (folder / name).mkdir() if name == "tmp" else (folder / name).touch()
    if request["replaces"]:
        place = folder / "at" / request["replaces"]
        place.unlink()
        place.symlink_to(Path(setup["files"], request["hostile"]))
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            code = _child(request, setup, folder, base)
        finally:
            os._exit(code)
    return _Running(request, folder, pid)


def _child(request: dict[str, Any], setup: dict[str, Any], folder: Path, base: int) -> int:
    os.setsid()
    os.chdir(folder / "at")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    for descriptor, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / name, os.O_WRONLY), descriptor)
    faulthandler.register(signal.SIGUSR1)
    for name in [name for name in os.environ if name.startswith("FOLTR_")]:
        del os.environ[name]
    # A federator that finds no broker ends.
    os.environ["FOLTR_GIVE_UP_AFTER_S"] = "0.2"
    os.environ.update({"COLUMNS": "200", "TMPDIR": str(folder / "tmp"), "HOME": str(folder), **request["variables"]})
    sys.argv = ["foltr", *request["words"]]
    resource.setrlimit(resource.RLIMIT_AS, (base + MEMORY, base + MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000_000, 200_000_000))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.addaudithook(_Guard(folder, setup["files"]))
    try:
        main_of_foltr()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 (as the interpreter ends a process)
        traceback.print_exc()
        code = 1
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    return code


class _Guard:
    """What a command may write and reach, whoever runs the tests."""

    def __init__(self, folder: Path, files: str) -> None:
        self._folder = os.path.realpath(folder)
        self._unreadable = f"{files}/unreadable"

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            if isinstance(path, (str, bytes, os.PathLike)):
                if flags & _WRITES or (isinstance(mode, str) and set(mode) & set("wax+")):
                    self._check(path, os.path.realpath(os.fsdecode(path)))
                if os.path.realpath(os.fsdecode(path)) == self._unreadable:
                    raise PermissionError(13, "Permission denied", path)
        elif event in _CHANGES:
            for path in arguments[:2] if event in ("os.rename", "os.link") else arguments[:1]:
                if isinstance(path, (str, bytes, os.PathLike)):
                    # Of a link, not of what it leads to.
                    parent, name = os.path.split(os.fsdecode(path))
                    self._check(path, f"{os.path.realpath(parent)}/{name}")
        elif event == "socket.connect":
            address = arguments[1]
            if isinstance(address, tuple) and not str(address[0]).startswith(("127.", "::1")):
                raise OSError(101, "Network is unreachable")
        elif event == "socket.getaddrinfo":
            host = arguments[0]
            if host not in (None, "", "localhost") and not str(host).startswith(("127.", "::1")):
                raise socket.gaierror(-2, "Name or service not known")

    def _check(self, path: Any, place: str) -> None:
        if not place.startswith(f"{self._folder}/") and place not in _DEVICES:
            raise PermissionError(13, "Permission denied", path)


def _hurry(one: _Running) -> None:
    """End what serves or computes after a while, and what hangs."""
    one.n_looks += 1
    is_idle, goes_on = _idle_looks(one) > IDLE, one.request["goes_on"]
    is_over = one.n_looks > SERVED and (goes_on == "computes" or (goes_on == "serves" and is_idle))
    if one.asked_at is None and (is_over or one.n_looks > LIMIT):
        one.asked_at = one.n_looks
        os.kill(one.pid, signal.SIGUSR1)  # where it is, on its standard error
        time.sleep(0.05)
        os.kill(one.pid, signal.SIGTERM)
    elif one.asked_at is not None and one.n_looks - one.asked_at > KILLED:
        os.kill(one.pid, signal.SIGKILL)


def _idle_looks(one: _Running) -> int:
    """Return since how many looks a process uses no processor and waits for none: it serves, or it is stuck."""
    fields = Path(f"/proc/{one.pid}/stat").read_text().rpartition(")")[2].split()
    used = (fields[11], fields[12])
    if fields[0] != "S" or used != one.used:
        one.used, one.used_at = used, one.n_looks
    return one.n_looks - one.used_at


def _report(one: _Running) -> None:
    _, status = os.waitpid(one.pid, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(one.pid, signal.SIGKILL)  # what it has started
    error = (one.folder / "err").read_bytes()[-20_000:].decode(errors="replace")
    ended = {
        "number": one.request["number"],
        "code": os.waitstatus_to_exitcode(status),
        "ended": one.asked_at is not None,
        "err": error,
    }
    sys.stdout.write(json.dumps(ended) + "\n")
    sys.stdout.flush()
    shutil.rmtree(one.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
