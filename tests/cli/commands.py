"""Running ``foltr`` as a user does: with nothing in its environment but what the test says."""

import asyncio
import contextlib
import io
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO
from unittest import mock

import structlog
from rich.console import ConsoleDimensions
from support.prepared_processes import PreparedProcess, with_defaults
from support.waiting import PATIENCE_S

from foltr.cli import output
from foltr.cli.main import main

FOLTR = [sys.executable, "-c", "import sys; from foltr.cli.main import main; sys.argv[0] = 'foltr'; main()"]
PROJECT = Path(__file__).parents[2]
# `make test-all` sets it: more of what is drawn is tried.
IS_NIGHT = "FOLTR_TEST_NIGHTLY" in os.environ
# For a federator and who looks at it: on a machine that stands still for seconds it is not taken for a dead one.
LONG_LEASES = with_defaults({"foltr.storage.leases.LEASE_S": 600.0})
# A device that has taken part in its rounds waits for its last receipt as long as a test does.
LATE_RECEIPTS = with_defaults({"foltr.edge_client.simulated_user._SETTLE_S": PATIENCE_S})


def environment(**variables: str) -> dict[str, str]:
    inherited = {
        key: value for key, value in os.environ.items() if not key.startswith("FOLTR_") or key == "FOLTR_CACHE"
    }
    return {**inherited, "COLUMNS": "200", **variables}


def foltr(
    *arguments: object, cwd: Path | None = None, code: int | None = None, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """The result of one command, run inside this process; `foltr_process` is for one beside others, or with signals."""
    words = [str(argument) for argument in arguments]
    printed, complained = _stream(), _stream()
    with (
        mock.patch.dict(os.environ, environment(**variables), clear=True),
        mock.patch.object(sys, "argv", ["foltr", *words]),
        contextlib.chdir(cwd or Path.cwd()),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(complained),
    ):
        ended = _outside_loops(_exit_code)
        # What it configured writes to streams that nobody reads any more.
        structlog.reset_defaults()
    return _checked(subprocess.CompletedProcess(words, ended, _read(printed), _read(complained)), code)


def _checked(done: "subprocess.CompletedProcess[str]", code: int | None) -> "subprocess.CompletedProcess[str]":
    assert code is None or done.returncode == code, (
        f"{done.args} ended with {done.returncode}\n{done.stdout}{done.stderr}"
    )
    return done


def foltr_process(
    *arguments: object,
    cwd: Path | None = None,
    timeout_s: float = PATIENCE_S,
    code: int | None = None,
    program: Path | None = None,
    **variables: str,
) -> "subprocess.CompletedProcess[str]":
    """The finished process of one command, or of a program in Python, that began with all imported; else as `foltr`."""
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as complained:
        process = PreparedProcess(
            [str(argument) for argument in arguments],
            environment(**variables),
            cwd,
            output=printed.fileno(),
            errors=complained.fileno(),
            program=program,
        )
        try:
            ended = process.wait(timeout_s)
        finally:
            process.kill()
        done = subprocess.CompletedProcess(process.args, ended, _whole(printed), _whole(complained))
    return _checked(done, code)


def foltr_fresh(
    *arguments: object, cwd: Path | None = None, timeout_s: float = PATIENCE_S, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """The finished process of one command in an interpreter of its own, as a shell starts it."""
    return subprocess.run(
        [*FOLTR, *map(str, arguments)],
        env=environment(**variables),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def start(*arguments: str, cwd: Path | None = None, **variables: str) -> PreparedProcess:
    """A command that goes on until it is stopped."""
    return PreparedProcess(arguments, environment(**variables), cwd)


def stop(process: PreparedProcess, timeout_s: float = PATIENCE_S) -> tuple[int, str]:
    """End ``process`` with SIGTERM; its exit code and what it printed."""
    if process.poll() is None:
        process.terminate()
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
    return process.returncode, output


def _exit_code() -> int:
    # As wide and high as the environment says now; a process reads this when it starts.
    for one in (output.console, output.errors):
        one.size = ConsoleDimensions(int(os.environ["COLUMNS"]), int(os.environ.get("LINES", "25")))
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception:  # noqa: BLE001 (as the interpreter ends a process)
        traceback.print_exc()
        return 1
    return 0


def _outside_loops(function: Callable[[], int]) -> int:
    """In a thread of its own where a loop is running in this one: a command runs its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return function()
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def _stream() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)


def _whole(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def _read(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()
