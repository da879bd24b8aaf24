"""Time of a whole secure round over MQTT, beside a trusted round of the same devices in the same run.

Run: python research/benchmarks/secure_round.py [--clients N] [--rounds N] [--turns N] [--cohorts G] [--fleets K]
     [--norm-proof l2|none]

Measured: federator (a process, SQLite with synchronous=FULL), two helpers (`foltr helper run`, each with its own SQLite
file), Mosquitto, and all n devices with a connection each, in K processes. A device masks what it learned, seals the
seeds to both helpers, proves the norm, signs ticket and update and charges its ledger. Only its learning is a constant,
and its store is in memory. A round goes from the end of the one before to its own end: announcements, an update from
each device, in a secure round both helpers' checks and sums, the next model. Connecting and joining end before.

The two kinds take turns, each with a fresh federation, so that other load on the machine affects both. Medians and
minima are over the rounds of all turns except the first of each. CPU seconds per round are those of each process
between the end of the first round and the end of the last.
"""

import argparse
import base64
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from command_line import parser_of, write_json
from round_overhead import round_ends
from servers import FEDERATION, FOLTR, HERE, Servers, Watch, describe_machine, write_devices

from foltr.core.operator.credentials import BrokerAccess, Credentials, device_identity, write_credentials
from foltr.core.operator.policy_terms import PolicyTerms, policy_of
from foltr.core.protocol.signed_policies import issue_policy
from foltr.core.protocol.signing import SigningKey, key_to_text
from foltr.core.secure.sealing import SealingKey
from foltr_research.cli.demos.helper_process import HelperProcess

DIM = 136
_TIMEOUT_S = 600.0
_HELPERS = ("north", "south")


@dataclass
class Turns:
    """Measurements of one kind of round: seconds, and CPU seconds per round by process, one a turn."""

    seconds: list[float] = field(default_factory=list)
    cpu_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def summary(self) -> dict[str, object]:
        cpu = {name: round(1e3 * statistics.median(values), 1) for name, values in self.cpu_s.items()}
        return {"median_s": statistics.median(self.seconds), "least_s": min(self.seconds), "cpu_ms": cpu}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=6, help="rounds of a turn; the first one is left out")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--cohorts", type=int, default=1)
    parser.add_argument("--fleets", type=int, default=1, metavar="K", help="processes that share the devices")
    parser.add_argument("--norm-proof", choices=["l2", "none"], default="l2", help="what each message proves")
    options = parser.parse_args()
    if options.rounds < 3:
        parser.error("--rounds: the first one is left out and two more make a median")
    print(describe_machine())
    print(f"n = {options.clients}, d = {DIM}, {len(_HELPERS)} helpers, {options.cohorts} cohort(s); ", end="")
    print(f"{options.turns} turns of {options.rounds} rounds of each kind")
    measured = {"trusted": Turns(), "secure": Turns()}
    for _ in range(options.turns):
        for kind, turns in measured.items():
            measure(turns, options, secure=kind == "secure")
            print(f"{kind:8}{turns.summary()}", flush=True)
    trusted, secure = (turns.summary() for turns in measured.values())
    bar = 1.5 * float(str(trusted["median_s"])) + 0.5
    print(f"a secure round may take 1.5 trusted ones and 0.5 s: {bar:.2f} s; it takes {secure['median_s']:.2f} s")
    document = {"machine": describe_machine(), "n": options.clients, "dim": DIM, "cohorts": options.cohorts}
    write_json(options.json, {**document, "trusted": trusted, "secure": secure})


def measure(turns: Turns, options: argparse.Namespace, *, secure: bool) -> None:
    """Run a fresh federation for some rounds."""
    with tempfile.TemporaryDirectory() as name, Servers(Path(name)) as servers:
        helpers = enrol(servers, options, secure=secure)
        processes = {"broker": servers.start_broker()}
        for helper in helpers:
            files = ["--credentials", str(helper.credentials), "--store", str(helper.store)]
            processes[f"helper {helper.name}"] = servers.start([*FOLTR, "helper", "run", *files])
        n = str(options.clients)
        processes["federator"] = federator = servers.start(
            [
                *(*FOLTR, "federator", "run", "--credentials", str(servers.folder / "federator.json")),
                *("--features", str(DIM), "--min-clients", n, "--max-clients", n, "--interactions", "1"),
                *("--rounds", str(options.rounds), "--min-time", "0", "--max-time", "600"),
                *("--privacy", "secure" if secure else "trusted"),
                *("--aggregation", "median" if secure and options.cohorts > 1 else "mean"),
            ]
        )
        for i in range(options.fleets):
            words = [str(servers.folder / "devices"), str(DIM), str(i), str(options.fleets)]
            processes[f"devices {i}"] = servers.start([sys.executable, str(HERE / "constant_devices.py"), *words])
        with Watch(processes) as watch:
            assert federator.wait(timeout=_TIMEOUT_S) == 0
        ends = round_ends(servers, options.clients)
        assert len(ends) == options.rounds, f"{len(ends)} rounds were completed"
        turns.seconds += [float(seconds) for seconds in np.diff(ends)]
        cpu: dict[str, float] = defaultdict(float)
        for name in processes:
            cpu[name if name.startswith("helper") else name.split()[0]] += watch.cpu_seconds(
                name, ends[0], ends[-1]
            ) / (options.rounds - 1)
        for name, seconds in cpu.items():
            turns.cpu_s[name].append(seconds)


def enrol(servers: Servers, options: argparse.Namespace, *, secure: bool) -> list[HelperProcess]:
    """Write all credentials, with a policy for secure sums. Return the helpers, if any."""
    operator, federator, sealing_key = SigningKey.generate(), SigningKey.generate(), SealingKey.generate()
    access = BrokerAccess(broker_url=servers.broker_url)
    helpers, known = [], {}
    if secure:
        helpers = [
            HelperProcess.prepare(servers.folder, name, FEDERATION, access, operator.public, federator.public)
            for name in _HELPERS
        ]
        known = {"policy": policy_text(operator, helpers, sealing_key.public, options)}
        for helper in helpers:
            helper.tell(known)
    service = Credentials(
        role="federator",
        federation=FEDERATION,
        name="@federator",
        broker=access,
        signing_key=federator.to_text(),
        enrolment_key=key_to_text(operator.public),
        federator_key=key_to_text(federator.public),
        sealing_keys=(key_to_text(sealing_key.private),),
        **known,
    )
    write_credentials(servers.folder / "federator.json", service)
    made = [
        device_identity(operator, federator.public, FEDERATION, f"device-{i:04d}", i + 1, access)
        for i in range(options.clients)
    ]
    devices = [{"credentials": credentials.model_copy(update=known)} for credentials in made]
    write_devices(servers.folder / "devices", devices)
    return helpers


def policy_text(
    operator: SigningKey, helpers: list[HelperProcess], federator_key: bytes, options: argparse.Namespace
) -> str:
    """Sign a policy by which every device takes part in every round."""
    terms = PolicyTerms(
        tuple(helper.keys for helper in helpers),
        participations=options.rounds,
        clients=options.clients,
        rounds=options.rounds,
        dim=DIM,
        interactions=1,
        norm_proof=options.norm_proof,
        cohorts=options.cohorts,
        n_min=max(2, options.clients // (10 * options.cohorts)),
    )
    policy = issue_policy(operator, policy_of(terms, FEDERATION, 1, time.time(), federator_key))
    return base64.b64encode(policy.signed).decode()


if __name__ == "__main__":
    main()
