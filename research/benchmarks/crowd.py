"""Many clients through one connection: rounds with more clients than this machine could run devices for.

Run: python research/benchmarks/crowd.py [--clients 10000] [--dim 136] [--rounds 5] [--json FILE]

Federator (SQLite with synchronous=FULL) and Mosquitto are separate processes, as in round_overhead.py. The clients are
enrolled, join, and send one signed update in each round. But one process speaks for all of them over one connection,
which the broker allows without an access list, and makes each update when it is due. The federator does the same work
as for connected devices. The broker is spared their connections, and a round takes as long as the slower one of
federator and sender.

The JSON file has one object. Times are in milliseconds, memory is resident, in 10^6 bytes and at its most:

    n, dim, n_rounds       clients, weights of the linear ranker, rounds
    round_ms               a whole round, the median
    federator_cpu_ms       the federator's CPU time per update, including its part of a round's fixed cost
    broker_cpu_ms          the CPU time of Mosquitto, which has one connection
    join_cpu_ms            the federator's CPU time for a client that joins for the first time
    federator_mb, broker_mb
    bytes_per_client       of the database per client that has joined; its data key is a separate file
    bytes_per_update       of the database per update, including models and events
    heard_messages         how many announcements each device receives in a round
    heard_bytes            how many bytes they are, including topics
"""

import argparse
import json
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import paho.mqtt.client as paho
from bare_exchange import connected
from command_line import parser_of, write_json
from round_overhead import round_ends
from servers import FEDERATION, HERE, Servers, Watch, describe_machine, read_devices, write_devices

from foltr.broker.broker_records import read_access, to_json
from foltr.core.operator.credentials import OPERATOR_USER, write_secret
from foltr.core.protocol.announcements import RoundAnnouncement
from foltr.core.protocol.codec import Signer, open_envelope
from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.membership import Join
from foltr.core.protocol.signing import SessionSequence
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.core.protocol.updates import DenseDelta, ModelUpdate

DIM = 136
_TOPICS = Topics(FEDERATION)
_HEARD = (
    *(_TOPICS.model, _TOPICS.anchor, _TOPICS.round, _TOPICS.pace, _TOPICS.evaluation),
    *(_TOPICS.unlearning_round, _TOPICS.federator_status, _TOPICS.audit_head),
)
# Limits of unanswered updates, below the federator's buffer, so that it refuses none.
_MAX_UNANSWERED, _MAX_UNANSWERED_BYTES = 1000, 32_000_000
_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Crowd:
    """One line of the result; its fields are explained at the top of this file."""

    n: int
    dim: int
    n_rounds: int
    round_ms: float
    federator_cpu_ms: float
    broker_cpu_ms: float
    join_cpu_ms: float
    federator_mb: float
    broker_mb: float
    bytes_per_client: float
    bytes_per_update: float
    heard_messages: float
    heard_bytes: float

    def __str__(self) -> str:
        return (
            f"n = {self.n:6,} d = {self.dim:6,}: round {self.round_ms:9.1f} ms; CPU ms an update: federator "
            f"{self.federator_cpu_ms:.3f}, broker {self.broker_cpu_ms:.3f}, a join {self.join_cpu_ms:.3f}; "
            f"federator {self.federator_mb:.0f} MB, {self.bytes_per_update:,.0f} bytes an update"
        )


class Speaker:
    """Speaks for all clients over one connection, until the federation's last round."""

    def __init__(self, client: paho.Client, devices: Sequence[dict[str, Any]], dim: int) -> None:
        self._client = client
        self._senders = []
        for device in devices:
            sequence = SessionSequence()
            sequence.begin_session()
            credentials = device["credentials"]
            self._senders.append((credentials.name, Signer(credentials.key, sequence), credentials.enrolment_bytes))
        self._body = DenseDelta(dim=dim, values=pack_vector(np.full(dim, 1e-3)))
        self._n_unanswered = 0
        self._most_unanswered = max(1, min(_MAX_UNANSWERED, _MAX_UNANSWERED_BYTES // (4 * dim)))
        self._answered = threading.Condition()

    def hear_answer(self) -> None:
        with self._answered:
            self._n_unanswered -= 1
            self._answered.notify()

    def join(self) -> None:
        for name, signer, enrolment in self._senders:
            join = Join(federation=FEDERATION, client_id=name, sdk_version="crowd", enrolment=enrolment)
            topic = _TOPICS.client(name, ClientTopic.JOIN)
            self._send(topic, signer.sign(join, topic))
        with self._answered:
            assert self._answered.wait_for(lambda: self._n_unanswered <= 0, _TIMEOUT_S), "a join was not answered"

    def contribute(self, round_: RoundAnnouncement) -> None:
        """Send an update of each client for this round."""
        for name, signer, _ in self._senders:
            update = ModelUpdate(
                federation=FEDERATION,
                client_id=name,
                update_id=uuid.uuid4().hex,
                round=round_.round,
                base_version=round_.base_version,
                after=round_.round - 1,
                through=round_.round,
                base_hash=round_.base_hash,
                n_interactions=1,
                body=self._body,
            )
            topic = _TOPICS.client(name, ClientTopic.UPDATES)
            self._send(topic, signer.sign(update, topic))

    def _send(self, topic: str, payload: bytes) -> None:
        with self._answered:
            room = self._answered.wait_for(lambda: self._n_unanswered < self._most_unanswered, _TIMEOUT_S)
            assert room, "nothing is answered"
            self._n_unanswered += 1
        self._client.publish(topic, payload, qos=1)


def speak(devices: Sequence[dict[str, Any]], access_file: Path, dim: int) -> dict[str, float]:
    """Run all clients to the last round. Return when they joined, and what each device receives in a round."""
    heard: SimpleQueue[tuple[str, bytes]] = SimpleQueue()
    speaker: Speaker | None = None

    def hear(message: paho.MQTTMessage) -> None:
        if message.topic in _HEARD:
            heard.put((message.topic, message.payload))
        elif speaker is not None:
            speaker.hear_answer()

    inboxes = _TOPICS.client("+", ClientTopic.INBOX)
    with connected(read_access(access_file), OPERATOR_USER, [*_HEARD, inboxes], hear) as client:
        speaker = Speaker(client, devices, dim)
        begins = _announced(heard)
        first, _ = next(begins)
        joining_at = time.time()
        speaker.join()
        joined_at, joined_bytes = time.time(), database_bytes(access_file.parent)
        n_messages = n_bytes = 0
        speaker.contribute(first)
        for round_, sizes in begins:
            # Retained messages come before the first round. The messages between it and the second belong to one round.
            n_messages, n_bytes = n_messages + len(sizes), n_bytes + sum(sizes)
            if round_.open:
                speaker.contribute(round_)
        n_rounds = round_.round
    return {
        "joining_at": joining_at,
        "joined_at": joined_at,
        "joined_bytes": joined_bytes,
        "heard_messages": n_messages / n_rounds,
        "heard_bytes": n_bytes / n_rounds,
    }


def _announced(heard: "SimpleQueue[tuple[str, bytes]]") -> Iterator[tuple[RoundAnnouncement, list[int]]]:
    """Yield each opened round, finally the last announcement, with the sizes of messages since."""
    sizes: list[int] = []
    newest = 0
    while True:
        topic, payload = heard.get(timeout=_TIMEOUT_S)
        sizes.append(len(topic) + len(payload))
        if topic != _TOPICS.round:
            continue
        round_ = open_envelope(payload).read(RoundAnnouncement)
        if round_.last or (round_.open and round_.round > newest):
            newest = round_.round
            yield round_, sizes
            sizes = []
        if round_.last:
            return


def measure(n_clients: int, dim: int, n_rounds: int) -> Crowd:
    """Run one federation, from an empty database to its last round."""
    with tempfile.TemporaryDirectory(prefix="foltr-crowd-") as name, Servers(Path(name)) as servers:
        write_devices(servers.folder / "devices", servers.enrol([f"device-{i:06}" for i in range(n_clients)]))
        access_file, told = servers.folder / "crowd.json", servers.folder / "told.json"
        write_secret(access_file, to_json(servers.service("operator")), replace=True)
        before = database_bytes(servers.folder)
        processes = {"broker": servers.start_broker()}
        processes["federator"] = servers.start_federator(
            *("--features", str(dim), "--min-clients", str(n_clients), "--max-clients", str(n_clients)),
            *("--interactions", "1", "--rounds", str(n_rounds), "--min-time", "0", "--max-time", "600"),
        )
        words = [str(HERE / "crowd.py"), "--speak", str(access_file), "--dim", str(dim), "--json", str(told)]
        crowd = servers.start([sys.executable, *words])
        with Watch(processes) as watch:
            assert processes["federator"].wait(timeout=_TIMEOUT_S) == 0
        assert crowd.wait(timeout=60) == 0
        ends = round_ends(servers, n_clients)
        assert len(ends) == n_rounds, f"{len(ends)} rounds were completed"
        found = json.loads(told.read_text())
        n_updates = n_clients * (n_rounds - 1)
        joins_s = watch.cpu_seconds("federator", found["joining_at"], found["joined_at"])
        return Crowd(
            n=n_clients,
            dim=dim,
            n_rounds=n_rounds,
            round_ms=1e3 * statistics.median(np.diff(ends)),
            federator_cpu_ms=1e3 * watch.cpu_seconds("federator", ends[0], ends[-1]) / n_updates,
            broker_cpu_ms=1e3 * watch.cpu_seconds("broker", ends[0], ends[-1]) / n_updates,
            join_cpu_ms=1e3 * joins_s / n_clients,
            federator_mb=float(watch.memory("federator")[1].max()),
            broker_mb=float(watch.memory("broker")[1].max()),
            bytes_per_client=(found["joined_bytes"] - before) / n_clients,
            bytes_per_update=(database_bytes(servers.folder) - found["joined_bytes"]) / (n_clients * n_rounds),
            heard_messages=found["heard_messages"],
            heard_bytes=found["heard_bytes"],
        )


def database_bytes(folder: Path) -> int:
    """Return the size of the federation's SQLite database, including its write-ahead log."""
    connection = sqlite3.connect(folder / "federator.sqlite")
    try:
        size = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
        return int(connection.execute(size).fetchone()[0])
    finally:
        connection.close()


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--dim", type=int, default=DIM, help="weights of the linear ranker")
    parser.add_argument("--rounds", type=int, default=5, help="at least 3")
    parser.add_argument("--speak", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.speak is not None:
        found = speak(read_devices(options.speak.parent / "devices"), options.speak, options.dim)
        options.json.write_text(json.dumps(found))
        return
    print(describe_machine())
    result = measure(options.clients, options.dim, options.rounds)
    print(result)
    write_json(options.json, asdict(result))


if __name__ == "__main__":
    main()
