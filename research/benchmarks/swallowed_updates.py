"""Whether one device takes the updates of all others where ingest workers run: rounds a second while it tries.

Run: python research/benchmarks/swallowed_updates.py [--plugin off on] [--workers 1] [--guess] [--seconds 20] [--json
    FILE]

A device subscribes to the group of the workers, so that the broker gives it a share of the updates of all, which it may
not even read. What the group is called follows from the federator's private key; here the device knows it all the same,
as it would if it had learned it, or has to guess (``--guess``: the fixed name that the group had before). Without the
plugin the broker is as it was before there was one. Everything is on loopback and ended with the attack.

The JSON file has a list, an object for each attack:

    plugin, knows_name            whether subscriptions are judged; whether the device knows what the group is called
    n_workers                     ingest workers
    granted                       whether the broker has let it into the group
    before_per_s, during_per_s    rounds a second of the other devices, before the attack and while it lasts
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from attacked import AttackedFederation, add_options
from servers import FEDERATION, describe_machine
from subscriber import Subscriber

from foltr.core.operator.credentials import read_credentials
from foltr.core.protocol.topics import Topics
from foltr.federator.ingest.service import shared_filter

_LONGEST_S = 60.0


@dataclass(frozen=True)
class Attack:
    """One line of the result; its fields are explained on top of this file."""

    plugin: str
    knows_name: bool
    n_workers: int
    granted: bool
    before_per_s: float
    during_per_s: float

    def __str__(self) -> str:
        name = "knows" if self.knows_name else "guesses"
        kept = f"{100 * self.during_per_s / self.before_per_s:.0f} %" if self.before_per_s else "-"
        return (
            f"plugin {self.plugin}, {self.n_workers} workers, it {name} the group's name: "
            f"{'granted' if self.granted else 'refused'}; rounds a second {self.before_per_s:.2f} before, "
            f"{self.during_per_s:.2f} during ({kept})"
        )


def attack(plugin: str, n_workers: int, seconds: float, *, knows_name: bool) -> Attack:
    """Start a federation with workers, let it work, and join their group for so long."""
    with (
        tempfile.TemporaryDirectory(prefix="foltr-swallow-") as name,
        AttackedFederation(Path(name), has_plugin=plugin == "on", n_workers=n_workers) as federation,
    ):
        key = read_credentials(federation.folder / "operator" / "federator.json", "federator").key
        group = shared_filter(Topics(FEDERATION), key if knows_name else None)
        before = federation.rounds_a_second(min(seconds, 10.0))
        with Subscriber(federation.attacker()) as subscriber:
            (granted,) = subscriber.granted(group)
            return Attack(plugin, knows_name, n_workers, granted, before, federation.rounds_a_second(seconds))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--guess", action="store_true", help="the device does not know what the group is called")
    add_options(parser)
    options = parser.parse_args(arguments)
    print(describe_machine())
    results = []
    for plugin in options.plugin:
        seconds = min(options.seconds, _LONGEST_S)
        results.append(attack(plugin, options.workers, seconds, knows_name=not options.guess))
        print(results[-1], flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(each) for each in results], indent=1) + "\n")


if __name__ == "__main__":
    main()
