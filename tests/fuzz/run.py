"""Many inputs in several processes (``make fuzz``); what breaks a promise is kept in ``found/`` and tried first."""

import argparse
import hashlib
import logging
import os
import re
import sys
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from random import Random

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])  # as pytest is told: `fuzz` is below tests/

import msgpack
from fuzz.corpus import TOPICS, Sample, messages
from fuzz.mutations import mutated
from fuzz.targets import TARGETS, BrokenPromiseError, examine

from foltr.core.protocol.orders import ORDER_TYPES

FOUND = Path(__file__).parent / "found"
INPUTS_VARIABLE = "FOLTR_TEST_FUZZ_INPUTS"
_BLOCK = 500
# Of one kind of failure a few examples are enough.
_KEPT_PER_CAUSE = 3
_HOME = 0.75
# A whole client costs ten times what a reader does.
_CLIENTS = 0.15


@dataclass(frozen=True)
class Failure:
    """An input that broke a promise."""

    target: str
    payload: bytes
    reason: str

    @property
    def cause(self) -> str:
        """What failures of one kind have in common."""
        return self.reason.split(":", 1)[0]

    def keep(self, folder: Path) -> Path:
        folder.mkdir(exist_ok=True)
        name = f"{re.sub('[^a-z]+', '-', self.target)}-{hashlib.sha256(self.payload).hexdigest()[:12]}.msgpack"
        path = folder / name
        path.write_bytes(msgpack.packb({"target": self.target, "payload": self.payload, "reason": self.reason}))
        return path


def kept(folder: Path = FOUND) -> list[Failure]:
    """Every failure that was ever found and kept."""
    return [Failure(**msgpack.unpackb(path.read_bytes())) for path in sorted(folder.glob("*.msgpack"))]


def failures(
    seed: int, numbers: range, *, bounded: bool = True, timed: bool = False
) -> Iterator[tuple[int, Failure | None]]:
    """Try these inputs of ``seed``; if they are bounded, tracemalloc must be on."""
    corpus = list(messages())
    homes = {sample.topic: targets_of(sample) for sample in corpus}
    everywhere = list(TARGETS)
    for number in numbers:
        rng = Random((seed << 40) + number)  # noqa: S311 (to be repeated, not to be secret)
        sample, payload = mutated(rng, corpus)
        choice = homes[sample.topic] if rng.random() < _HOME else everywhere
        target = rng.choice(choice)
        if target.startswith("client ") and rng.random() > _CLIENTS:
            target = rng.choice(choice)
        try:
            examine(target, payload, bounded=bounded, timed=timed)
        except BrokenPromiseError as error:
            yield number, Failure(target, payload, str(error))
        else:
            yield number, None


def targets_of(sample: Sample) -> list[str]:
    """Where such a message is read in earnest."""
    name = sample.topic.removeprefix(f"{TOPICS.root}/")
    found = [target for target in TARGETS if target.endswith(f" {name}")]
    if name.endswith("/updates"):
        found += ["federator checked chunked", "federator believed chunked"]
    kind = sample.envelope["kind"]
    found += [f"device {kind}"]
    orders = dict.fromkeys((*ORDER_TYPES, "ask_newest"), "reader order")
    statement = {"roster": "reader roster", "enrolment": "reader enrolment", "federator_key": "reader key"} | orders
    return found + [statement[kind]] * 3 if kind in statement else found


def _work(seed: int, numbers: range) -> list[Failure]:
    logging.getLogger("foltr").setLevel(logging.CRITICAL)  # of the clients
    if not tracemalloc.is_tracing():
        tracemalloc.start()
    return [failure for _, failure in failures(seed, numbers, timed=True) if failure is not None]


def run(seed: int, n_inputs: int, n_processes: int, *, keep_in: Path | None = FOUND) -> tuple[int, Counter[str]]:
    """Try ``n_inputs``; how many were tried and how many failed, by cause. Says after each block how far it is."""
    blocks = [range(first, min(first + _BLOCK, n_inputs)) for first in range(0, n_inputs, _BLOCK)]
    n_tried, causes = 0, Counter[str]()
    with ProcessPoolExecutor(n_processes, get_context("spawn")) as pool:
        for work in as_completed(waiting := {pool.submit(_work, seed, numbers): len(numbers) for numbers in blocks}):
            try:
                failed = work.result()
            except BrokenProcessPool:
                causes["a process died"] += 1
                break
            n_tried += waiting[work]
            for failure in failed:
                causes[failure.cause] += 1
                if keep_in is not None and causes[failure.cause] <= _KEPT_PER_CAUSE:
                    _say(f"\n{failure.target}: {failure.reason}\n  kept as {failure.keep(keep_in)}\n")
            _say(f"\r{n_tried:,} of {n_inputs:,} inputs, {causes.total()} failed  ")
    _say(f"\r{n_tried:,} inputs of seed {seed}: ")
    _say(", ".join(f"{n} x {cause}" for cause, n in causes.items()) + "\n" if causes else "no promise was broken\n")
    return n_tried, causes


def _say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=int(os.environ.get(INPUTS_VARIABLE) or 1_000_000))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("FOLTR_TEST_SEED") or 1))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    _, causes = run(options.seed, options.inputs, options.processes)
    return 1 if causes else 0


if __name__ == "__main__":
    sys.exit(main())
