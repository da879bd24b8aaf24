"""How many updates a second the federator accepts, and how long their receipts take, at rising rates.

Run: python research/benchmarks/load.py [--rates 100 200 ...] [--seconds 5] [--unsigned] [--json FILE]

The load is open: updates of many enrolled clients are published at a fixed rate, whether or not earlier ones are
answered. Latency counts from the moment an update was due, so a federator that stalls also pays for the updates that it
would have got meanwhile. The updates are made and signed before (fresh clients, ids and signatures, d = 136). One
connection sends them all and receives all receipts, which the broker allows without an access list. The federator runs
buffered rounds of 100 updates, which accept updates of any earlier round, on SQLite with synchronous=FULL. It is a
separate process, like Mosquitto.

Measured: receipts by code, and the latency from due to the receipt's arrival, over all updates of a step. A step
saturates the federator if less than 95 % of the offered updates are accepted within the step and one second more; its
accepted/s then cover the time that this took. Not measured: devices and their connections (see round_overhead.py), and
TLS. Sender, broker and federator share the machine. If the sender cannot keep a rate, the output says so, and the step
says nothing about the federator.
"""

import argparse
import sys
import tempfile
import time
import uuid
from collections import Counter
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import paho.mqtt.client as paho
from bare_exchange import connected
from command_line import parser_of, write_json
from servers import FEDERATION, Servers, describe_machine, paced

from foltr.core.operator.credentials import OPERATOR_USER
from foltr.core.protocol.codec import Signer, open_envelope
from foltr.core.protocol.fields import model_hash, pack_vector
from foltr.core.protocol.membership import Join
from foltr.core.protocol.receipts import MembershipReceipt, UpdateReceipt
from foltr.core.protocol.signing import SessionSequence
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.core.protocol.updates import DenseDelta, ModelUpdate

DIM = 136
BUFFER = 100
RATES = [100, 200, 400, 800, 1600, 3200, 6400]
_TOPICS = Topics(FEDERATION)
_SATURATED_BELOW = 0.95
_DRAIN_S, _GRACE_S = 10.0, 1.0


@dataclass(frozen=True)
class Step:
    """One rate. Latencies in milliseconds; ``n_busy`` counts receipts, each of which may stand for several updates."""

    offered_per_s: float
    sent_per_s: float
    accepted_per_s: float
    saturated: bool
    n_sent: int
    n_accepted: int
    n_busy: int
    n_other: int
    n_unanswered: int
    latency_ms: dict[str, float]

    @property
    def sender_kept_up(self) -> bool:
        return self.sent_per_s > _SATURATED_BELOW * self.offered_per_s

    def __str__(self) -> str:
        latency = "".join(f"{self.latency_ms.get(name, float('nan')):9.1f}" for name in ("p50", "p90", "p99", "max"))
        counts = f"{self.n_busy:7} {self.n_other:7} {self.n_unanswered:11}"
        note = "" if self.sender_kept_up else f"   the sender managed {self.sent_per_s:.0f}/s"
        return f"{self.offered_per_s:9.0f} {self.accepted_per_s:11.0f}{latency}{counts}{note}"


class Load:
    """A connection that speaks for all clients.

    Args:
        identities: from `Servers.enrol`.
    """

    def __init__(self, client: paho.Client, identities: list[dict[str, Any]], inbox: list[tuple[float, bytes]]) -> None:
        self._client = client
        self._inbox = inbox
        # An update begins at the end of the client's last one.
        self._n_made: Counter[str] = Counter()
        self._senders = []
        for identity in identities:
            credentials = identity.get("credentials")
            sequence = SessionSequence()
            sequence.begin_session()
            key, enrolment = (None, None) if credentials is None else (credentials.key, credentials.enrolment_bytes)
            name = identity["client_id"] if credentials is None else credentials.name
            self._senders.append((name, Signer(key, sequence), enrolment))
        self._turns = cycle(self._senders)

    def join(self) -> None:
        """Make every client a member. This also shows that the federator runs."""
        for attempt in range(10):
            for name, signer, enrolment in self._senders:
                join = Join(federation=FEDERATION, client_id=name, sdk_version="load", enrolment=enrolment)
                topic = _TOPICS.client(name, ClientTopic.JOIN)
                self._client.publish(topic, signer.sign(join, topic), qos=1)
            give_up_at = time.monotonic() + 3.0 + attempt
            while len(self._inbox) < len(self._senders) and time.monotonic() < give_up_at:
                time.sleep(0.05)
            joined = {envelope.read(MembershipReceipt).client_id for _, envelope in self._take_inbox()}
            if len(joined) == len(self._senders):
                return
        sys.exit(f"{len(self._senders) - len(joined)} clients could not join")

    def run(self, rate_per_s: float, seconds: float) -> Step:
        """Send for this time at this rate, wait for outstanding answers, and count."""
        n = max(1, int(rate_per_s * seconds))
        updates = [self._make_update(*sender[:2]) for sender in islice(self._turns, n)]
        due_at, started = {}, time.perf_counter() + 0.05
        for i, due in paced(rate_per_s, n, started):
            update_id, topic, payload = updates[i]
            due_at[update_id] = due
            self._client.publish(topic, payload, qos=1)
        sent_s = max(time.perf_counter() - started, seconds)
        give_up_at = time.perf_counter() + _DRAIN_S
        while len(self._inbox) < n and time.perf_counter() < give_up_at:
            time.sleep(0.02)
        codes: Counter[str] = Counter()
        arrivals, latencies = [], []
        for at, envelope in self._take_inbox():
            receipt = envelope.read(UpdateReceipt)
            codes[str(receipt.code)] += 1
            if receipt.update_id is not None:
                latencies.append(1e3 * (at - due_at.pop(receipt.update_id)))
            if receipt.code == "accepted":
                arrivals.append(at - started)
        n_in_time = sum(at <= seconds + _GRACE_S for at in arrivals)
        saturated = n_in_time < _SATURATED_BELOW * n
        return Step(
            offered_per_s=rate_per_s,
            sent_per_s=n / sent_s,
            accepted_per_s=len(arrivals) / max([seconds, *arrivals]) if saturated else n_in_time / seconds,
            saturated=saturated,
            n_sent=n,
            n_accepted=len(arrivals),
            n_busy=codes["busy"],
            n_other=codes.total() - codes["busy"] - len(arrivals),
            n_unanswered=len(due_at),
            latency_ms=_percentiles(latencies),
        )

    def _make_update(self, name: str, signer: Signer) -> tuple[str, str, bytes]:
        after = self._n_made[name]
        self._n_made[name] += 1
        update = ModelUpdate(
            federation=FEDERATION,
            client_id=name,
            update_id=uuid.uuid4().hex,
            # The oldest round and model, valid as long as the federation runs.
            round=1,
            base_version=0,
            after=after,
            through=after + 1,
            base_hash=model_hash(pack_vector(np.zeros(DIM))),
            n_interactions=1,
            body=DenseDelta(dim=DIM, values=pack_vector(np.full(DIM, 1e-3))),
        )
        topic = _TOPICS.client(name, ClientTopic.UPDATES)
        return update.update_id, topic, signer.sign(update, topic)

    def _take_inbox(self) -> list[tuple[float, Any]]:
        taken = self._inbox[:]
        del self._inbox[: len(taken)]
        return [(at, open_envelope(payload)) for at, payload in taken]


def main() -> None:
    options = parse_arguments()
    print(describe_machine())
    # A client counts once in a buffer, so its next turn comes several buffers later.
    n_clients = 10 * BUFFER
    with tempfile.TemporaryDirectory() as name, Servers(Path(name), signed=options.signed) as servers:
        identities = servers.enrol([f"device-{i:04d}" for i in range(n_clients)])
        servers.start_broker()
        servers.start_federator(
            *("--features", str(DIM), "--interactions", "1", "--min-time", "0", "--max-time", "3600"),
            *("--min-clients", str(BUFFER), "--max-clients", str(BUFFER)),
            FOLTR_PACING="buffered",
            FOLTR_STALENESS_LIMIT="100000",
        )
        inbox: list[tuple[float, bytes]] = []
        inboxes = _TOPICS.client("+", ClientTopic.INBOX)

        def hear(message: paho.MQTTMessage) -> None:
            inbox.append((time.perf_counter(), message.payload))

        with connected(servers.service("operator"), OPERATOR_USER, [inboxes], hear) as client:
            load = Load(client, identities, inbox)
            load.join()
            print(
                f"{'signed' if options.signed else 'unsigned'}, d = {DIM}; {options.seconds:g} s a step; latency in ms"
            )
            print("offered/s  accepted/s      p50      p90      p99      max   busy   other  unanswered")
            steps = climb(load, options.rates, options.seconds)
    print(conclusion(steps))
    document = {"machine": describe_machine(), "signed": options.signed, "steps": [asdict(step) for step in steps]}
    write_json(options.json, document)


def parse_arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--rates", type=float, nargs="+", default=RATES, help="rising rates, in updates a second")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each rate is kept")
    parser.add_argument("--unsigned", dest="signed", action="store_false")
    return parser.parse_args()


def climb(load: Load, rates: list[float], seconds: float) -> list[Step]:
    """Increase the rate to the first that saturates, then measure one between it and the last that did not."""
    steps: list[Step] = []
    for rate in rates:
        steps.append(_show(load.run(rate, seconds)))
        if steps[-1].saturated:
            if len(steps) > 1:
                steps.append(_show(load.run((rate * steps[-2].offered_per_s) ** 0.5, seconds)))
            break
    return steps


def conclusion(steps: list[Step]) -> str:
    kept = [step for step in steps if not step.saturated]
    over = [step for step in steps if step.saturated and step.sender_kept_up]
    if not over:
        limit = "the sender" if any(step.saturated for step in steps) else "the highest rate asked for"
        return f"not saturated: the limit was {limit}"
    held = f"{max(step.offered_per_s for step in kept):.0f}/s was kept up with" if kept else "no rate was kept up with"
    lowest = min(over, key=lambda step: step.offered_per_s)
    return f"saturates: {held}, {lowest.offered_per_s:.0f}/s was not ({lowest.accepted_per_s:.0f}/s accepted)"


def _show(step: Step) -> Step:
    print(step, flush=True)
    return step


def _percentiles(latencies: list[float]) -> dict[str, float]:
    if not latencies:
        return {}
    p50, p90, p99 = np.percentile(latencies, (50, 90, 99))
    return {"p50": float(p50), "p90": float(p90), "p99": float(p99), "max": max(latencies)}


if __name__ == "__main__":
    main()
