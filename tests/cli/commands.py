"""Running ``foltr`` as a user does: as a process, with nothing in its environment but what the test says."""

import os
import subprocess
import sys
from pathlib import Path

FOLTR = [sys.executable, "-c", "from foltr.cli.main import main; main()"]
PROJECT = Path(__file__).parents[2]


def environment(**variables: str) -> dict[str, str]:
    inherited = {
        key: value for key, value in os.environ.items() if not key.startswith("FOLTR_") or key == "FOLTR_CACHE"
    }
    return {**inherited, "COLUMNS": "200", **variables}


def foltr(*arguments: str, cwd: Path | None = None, timeout_s: float = 60, **variables: str):
    """The finished process of one command."""
    return subprocess.run(
        [*FOLTR, *arguments],
        env=environment(**variables),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def start(*arguments: str, cwd: Path | None = None, **variables: str) -> subprocess.Popen[str]:
    """A command that goes on until it is stopped."""
    return subprocess.Popen(
        [*FOLTR, *arguments],
        env=environment(**variables),
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def stop(process: subprocess.Popen[str], timeout_s: float = 20) -> tuple[int, str]:
    """End ``process`` with SIGTERM; its exit code and what it printed."""
    if process.poll() is None:
        process.terminate()
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
    return process.returncode, output
