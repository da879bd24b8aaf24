"""Inputs that follow the code: a coverage-guided fuzzer finds what mutations of valid messages do not think of.

    python tests/fuzz/guided.py --inputs 1000000

It needs the package atheris (`pip install 'foltr[fuzz]'`). The first byte of an input chooses what reads the rest.
"""

import argparse
import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import atheris

sys.path[0] = str(Path(__file__).parents[1])  # as pytest is told: `fuzz` is below tests/

with atheris.instrument_imports(include=["foltr", "federator", "broker", "edge_client"]):
    from fuzz.corpus import messages
    from fuzz.run import FOUND, INPUTS_VARIABLE, Failure, targets_of
    from fuzz.targets import TARGETS, BrokenPromiseError, examine

_NAMES = sorted(name for name in TARGETS if not name.startswith("client "))


def try_one(data: bytes) -> None:
    """One input; a broken promise is kept, and ends the run."""
    if not data:
        return
    target, payload = _NAMES[data[0] % len(_NAMES)], data[1:]
    try:
        # Time and memory are the fuzzer's own here: instrumented code says nothing about either.
        examine(target, payload, bounded=False)
    except BrokenPromiseError as error:
        path = Failure(target, payload, str(error)).keep(FOUND)
        sys.stderr.write(f"\n{target}: {error}\n  kept as {path}\n")
        raise


def fuzz(inputs: int, seed: int, corpus: Path) -> None:
    """Fuzz until ``inputs`` were tried, or one failed; the process ends here."""
    logging.getLogger("foltr").setLevel(logging.CRITICAL)
    for number, sample in enumerate(messages()):
        for target in {name for name in targets_of(sample) if name in _NAMES}:
            index = _NAMES.index(target)
            (corpus / f"{number}-{index}").write_bytes(bytes([index]) + sample.payload)
    flags = [f"-runs={inputs}", f"-seed={seed}", "-max_len=4096", "-print_final_stats=1", f"-artifact_prefix={corpus}/"]
    atheris.Setup([sys.argv[0], *flags, str(corpus)], try_one)
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=int(os.environ.get(INPUTS_VARIABLE) or 1_000_000))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("FOLTR_TEST_SEED") or 1))
    parser.add_argument("--corpus", type=Path, help="An empty folder; default: a temporary one")
    options = parser.parse_args()
    if options.corpus is not None:
        fuzz(options.inputs, options.seed, options.corpus)
    with tempfile.TemporaryDirectory(prefix="foltr-fuzz-") as folder:
        # In a process of its own: the fuzzer ends the one it runs in, and nothing would be cleared away.
        arguments = ["--inputs", str(options.inputs), "--seed", str(options.seed), "--corpus", folder]
        return subprocess.run([sys.executable, __file__, *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
