"""Processes that begin with everything imported: each is forked from one that has done nothing else.

They are processes like any other, with arguments, environment, folder and output of their own, and may be killed like
any other; but importing what a federator needs takes a second of a processor, and the tests start hundreds of them.
What a fresh interpreter does is promised by the tests of `cli.commands.foltr_fresh`.
"""

import importlib
import json
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from multiprocessing import reduction
from operator import methodcaller
from pathlib import Path
from typing import Any, TextIO

DEFAULTS = "FOLTR_TEST_DEFAULTS"
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        "aiosqlite",
        "asyncpg",
        "foltr.edge_client.client",
        "foltr.federator.service",
        "foltr.cli.main",
        "foltr.cli.federator",
        "foltr.helper.service",
        "numpy.random",
        "sqlalchemy.dialects.postgresql.asyncpg",
        "sqlalchemy.dialects.sqlite.aiosqlite",
        "foltr.federator.store",
        "foltr.storage.migrate",
        # Of this folder, which is found if tests are started where the project begins; elsewhere they only take longer.
        "tests.support.frozen_garbage",
    ]
)


def with_defaults(places: Mapping[str, Mapping[str, object] | float]) -> dict[str, str]:
    """The variable by which a process has other defaults of ``module.name``, or another number as that constant."""
    return {DEFAULTS: json.dumps(places)}


class PreparedProcess:
    """One running ``foltr`` command, or another program; used as a `subprocess.Popen` is.

    Output goes to a file's descriptor or a pipe, errors to another or with it; ``program`` is a Python file.
    """

    def __init__(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        cwd: Path | None = None,
        output: int | None = None,
        errors: int | None = None,
        program: Path | None = None,
    ) -> None:
        self.args = list(words)
        self.stdout: TextIO | None = None
        written = output
        if written is None:
            read, written = os.pipe()
            self.stdout = os.fdopen(read, encoding="utf-8")
        streams = {1: _Descriptor(written), 2: _Descriptor(written if errors is None else errors)}
        given = program, self.args, dict(environment), str(cwd or Path.cwd()), streams
        self._process = _CONTEXT.Process(target=_run, args=given)
        self._process.start()
        if output is None:
            os.close(written)

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """Wait for its end; what it printed must fit into a pipe, as what a test looks at does."""
        self.wait(timeout)
        assert self.stdout is not None
        with self.stdout:
            return self.stdout.read(), None

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Descriptor:
    """A descriptor that the process gets a copy of, by its number there."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return methodcaller("detach"), (reduction.DupFd(self._number),)


def _run(
    program: Path | None, words: Sequence[str], environment: Mapping[str, str], cwd: str, streams: Mapping[int, int]
) -> None:
    for number, stream in streams.items():
        os.dup2(stream, number)
        os.close(stream)
    # The one that is there knows of another stream where it may seek.
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    sys.argv = [str(program or "foltr"), *words]
    from foltr.core.failpoints import of_this_process

    of_this_process.cache_clear()
    _change_defaults()
    if program is None:
        _run_foltr()
    else:
        sys.path.insert(0, str(program.parent))  # as an interpreter does
        runpy.run_path(str(program), run_name="__main__")


def _change_defaults() -> None:
    """Give what a command takes from modules other values than the service's constants."""
    for place, values in json.loads(os.environ.get(DEFAULTS, "{}")).items():
        module, _, name = place.rpartition(".")
        there = importlib.import_module(module)
        setattr(there, name, partial(getattr(there, name), **values) if isinstance(values, dict) else values)


def _run_foltr() -> None:
    from foltr.cli import output as consoles
    from foltr.cli.main import main

    # As wide as the environment says now; a fresh process reads this when it starts.
    for one in (consoles.console, consoles.errors):
        one.width = int(os.environ.get("COLUMNS", "80"))
    main()
