"""Which parameters of attacks by who has read a rule do the most harm to it, by a small search.

Run: OPENBLAS_NUM_THREADS=1 python research/benchmarks/attack_parameters.py DATA [DATA ...] [--rule adaptive]
    [--attackers 4]
     [--tries 16] [--jobs 2] [--attack NAME ...] [--keep FOLDER] [--out FILE]

DATA is what `foltr simulate --data` takes; of data in folds the first is taken. Ten clients, 400 rounds, two click
models; the seeds are none of those that experiments report. Without ``--out`` the findings are printed; the file that
`foltr reproduce robustness-aware` reads is research/foltr_research/reproductions/robustness/chosen_parameters.json.
With ``--attack`` the findings about others that are in the file stay.
"""

import argparse
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from foltr_research.reproductions.harness import profile_data
from foltr_research.reproductions.robustness.aware_attacks import AWARE
from foltr_research.reproductions.robustness.parameter_search import SEEDS, search


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--rule", default="adaptive")
    parser.add_argument("--attackers", type=int, default=4)
    parser.add_argument("--tries", type=int, default=16)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--attack", action="append", choices=list(AWARE))
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    names = given.attack or list(AWARE)
    profiles = [profile_data(data, "quick") for data in given.data]
    n_done = 0

    def done(_: object) -> None:
        nonlocal n_done
        n_done += 1
        print(f"\r{n_done} runs", end="", file=sys.stderr, flush=True)

    found = search(
        names,
        given.rule,
        profiles,
        attackers=given.attackers,
        tries=given.tries,
        jobs=given.jobs,
        folder=given.keep,
        on_done=done,
    )
    print(file=sys.stderr)
    before = json.loads(given.out.read_text())["attacks"] if given.out and given.attack and given.out.is_file() else {}
    attacks = {
        name: {"parameters": dict(one.parameters), "kept": round(one.kept, 4), "tried": one.n_tried}
        for name, one in found.items()
    }
    document = {
        "command": f"python research/benchmarks/attack_parameters.py {' '.join(profile.name for profile in profiles)} "
        f"--rule {given.rule} --attackers {given.attackers} --tries {given.tries}",
        "seeds": list(SEEDS),
        "attacks": {name: one for name, one in (before | attacks).items() if name in AWARE},
    }
    text = json.dumps(document, indent=2) + "\n"
    if given.out is None:
        print(text, end="")
    else:
        given.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
