"""Run a program and sample its CPU time: ``python profiled.py OUTPUT foltr|SCRIPT [ARGUMENT ...]``.

Sampling begins with SIGUSR1, after start-up. After every few milliseconds of CPU time the main thread's stack is
recorded, so functions in C count for their callers and little is slowed down. A figure below about ten samples is
chance. CPU time of other threads (the database driver's) is counted separately while the main thread waits. cProfile
would double the time of frequently called functions.
"""

import json
import linecache
import runpy
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType

_PERIOD_S = 0.001  # the kernel rounds it up to its tick
_LOOP = ("asyncio/", "python3")


class Sampler:
    """Counts samples by function: those with it on top, and those with it anywhere."""

    def __init__(self) -> None:
        self._own: Counter[str] = Counter()
        self._total: Counter[str] = Counter()
        self._cpu_at_start = 0.0

    def start(self) -> None:
        self._cpu_at_start = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, _PERIOD_S, _PERIOD_S)

    def sample(self, frame: FrameType | None) -> None:
        if frame is None:
            return
        if frame.f_code.co_filename.endswith("selectors.py") and frame.f_code.co_name == "select":
            self._own["(other threads, while this one waits)"] += 1
            return
        # The interpreter has no line number between two lines.
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno or 0).strip()
        self._own[f"{_name(frame)}: {line}"] += 1
        seen = set()
        # Frames below a callback of the event loop are common to all.
        while frame is not None and frame.f_code.co_qualname != "Handle._run":
            seen.add(_name(frame))
            frame = frame.f_back
        self._total.update(seen)

    def stop(self) -> dict[str, object]:
        signal.setitimer(signal.ITIMER_PROF, 0)
        cpu_s = time.process_time() - self._cpu_at_start
        return {"cpu_s": cpu_s, "own": dict(self._own), "total": dict(self._total)}


def main() -> None:
    output, program, *arguments = sys.argv[1:]
    sampler = Sampler()
    signal.signal(signal.SIGUSR1, lambda *_: sampler.start())
    signal.signal(signal.SIGPROF, lambda _, frame: sampler.sample(frame))
    sys.argv = [program, *arguments]
    try:
        if program == "foltr":
            from foltr.cli.main import main as foltr

            foltr()
        else:
            sys.path.insert(0, str(Path(program).parent))
            runpy.run_path(program, run_name="__main__")
    finally:
        Path(output).write_text(json.dumps(sampler.stop()), encoding="utf-8")


def print_profile(file: Path, n_updates: int, n_lines: int = 60) -> None:
    """Print the most costly lines and functions, in microseconds of CPU time per client update."""
    profile = json.loads(file.read_text(encoding="utf-8"))
    n_samples = sum(profile["own"].values())
    if not n_samples:
        print(f"profile {file.stem}: too short for a sample")
        return
    us = 1e6 * profile["cpu_s"] / n_updates / n_samples
    print(f"profile {file.stem}: {us * n_samples:.0f} us of CPU time per update, {n_samples} samples")
    for title, what in (("lines", "own"), ("functions with all they call", "total")):
        print(f"  {title}")
        rows = Counter({name: n for name, n in profile[what].items() if what == "own" or not name.startswith(_LOOP)})
        for name, n in rows.most_common(n_lines):
            print(f"    {us * n:7.1f} us  {name:.120}")


def _name(frame: FrameType) -> str:
    return f"{'/'.join(Path(frame.f_code.co_filename).parts[-2:])} {frame.f_code.co_qualname}"


if __name__ == "__main__":
    main()
