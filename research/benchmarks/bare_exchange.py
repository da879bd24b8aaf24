"""The lower bound: n payloads to a peer over Mosquitto with an answer to each, QoS 1, paho on both ends.

As a program it is the answering end: ``python bare_exchange.py ACCESS_FILE``. It sends as many bytes as an update and
its receipt, on one device's topics, through one connection. It does not parse, check, store or sign anything.
"""

import contextlib
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import paho.mqtt.client as paho
from servers import FEDERATION, Servers, stop

from foltr.broker.address import BrokerAddress
from foltr.broker.broker_records import read_access, to_json
from foltr.broker.tls import client_context
from foltr.core.operator.credentials import BrokerAccess, write_secret
from foltr.core.protocol.topics import ClientTopic, Topics

PEER = "bare"
# Bytes that encoding adds to the numbers of an update, and the size of a receipt.
_UPDATE_OVERHEAD, _RECEIPT_BYTES, _SIGNATURE_BYTES = 170, 150, 64
_TOPICS = Topics(FEDERATION)
_UPDATES, _INBOX = (_TOPICS.client(PEER, topic) for topic in (ClientTopic.UPDATES, ClientTopic.INBOX))


def run_bare(servers: Servers, access: BrokerAccess, dim: int, n_updates: int, n_rounds: int) -> float:
    """Return the median seconds for ``n_updates`` and their answers. No federator may run: this takes its place."""
    file = servers.folder / "bare.json"
    write_secret(file, to_json(servers.service("federator")), replace=True)
    server = servers.start([sys.executable, __file__, str(file)])
    answered = threading.Semaphore(0)
    payload = bytes(4 * dim + _UPDATE_OVERHEAD + (_SIGNATURE_BYTES if servers.signed else 0))
    try:
        with connected(access, PEER, [_INBOX], lambda _message: answered.release()) as client:
            for attempt in range(300):  # until the server has subscribed
                client.publish(_UPDATES, b"", qos=1)
                if answered.acquire(timeout=0.1):
                    break
                assert attempt < 299
            time.sleep(0.3)
            while answered.acquire(blocking=False):
                pass
            seconds = []
            for _ in range(n_rounds):
                started = time.perf_counter()
                for _ in range(n_updates):
                    client.publish(_UPDATES, payload, qos=1)
                for _ in range(n_updates):
                    assert answered.acquire(timeout=30)
                seconds.append(time.perf_counter() - started)
            return statistics.median(seconds)
    finally:
        stop(server)


@contextlib.contextmanager
def connected(
    access: BrokerAccess, client_id: str, topics: list[str], on_message: Callable[[paho.MQTTMessage], None]
) -> Iterator[paho.Client]:
    """Yield a paho client in its own thread, subscribed to ``topics``."""
    subscribed = threading.Event()
    client = _new_client(access, client_id, on_message)
    client.on_subscribe = lambda *_: subscribed.set()
    address = BrokerAddress.of(access)
    client.connect(address.host, address.port)
    _set_nodelay(client)
    client.loop_start()
    try:
        client.subscribe([(topic, 1) for topic in topics])
        if not subscribed.wait(timeout=30):
            sys.exit("the broker did not answer a subscription")
        yield client
    finally:
        client.disconnect()
        client.loop_stop()


def serve_bare(access: BrokerAccess) -> None:
    """Answer until ended."""
    answer = bytes(_RECEIPT_BYTES)
    client = _new_client(access, "bare-server", lambda _message: client.publish(_INBOX, answer, qos=1))
    address = BrokerAddress.of(access)
    client.connect(address.host, address.port)
    _set_nodelay(client)
    client.subscribe(_UPDATES, qos=1)
    client.loop_forever()


def _new_client(access: BrokerAccess, client_id: str, on_message: Callable[[paho.MQTTMessage], object]) -> paho.Client:
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id)
    client.on_message = lambda _client, _data, message: on_message(message)
    client.max_inflight_messages_set(1000)
    if access.username is not None:
        client.username_pw_set(access.username, access.password)
    address = BrokerAddress.of(access)
    if address.tls:
        client.tls_set_context(client_context(address.tls_material))
    return client


def _set_nodelay(client: paho.Client) -> None:
    client.socket().setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


if __name__ == "__main__":
    serve_bare(read_access(Path(sys.argv[1])))
