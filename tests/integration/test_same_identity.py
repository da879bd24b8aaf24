"""One identity in two processes: MQTT has each throw the other out. Both say so, and neither comes back at once."""

import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.deployment import logged_process
from support.prepared_processes import with_defaults
from support.servers import MosquittoServer, ProvisionedMosquitto
from support.waiting import wait_until

from foltr.core.operator.credentials import BrokerAccess, device_identity, write_secret
from foltr.core.protocol.signing import SigningKey

PROGRAM = Path(__file__).with_name("twin.py")
NAME = "device-7"
# What Mosquitto writes for each session that is taken over.
TAKEN_OVER = "already connected, closing old connection"
SAID = "session_taken_over"
# How long a process stays away after another one had its session.
AWAY_S = 3.0
BACKOFF = {"foltr.broker.backoff.FIRST_S": 0.02, "foltr.broker.backoff.TAKEN_OVER_FIRST_S": AWAY_S}


@pytest.fixture(params=["open", "passwords"])
def server(request, tmp_path):
    """A Mosquitto where the client's id names the session, and one where the user does."""
    server = MosquittoServer(tmp_path) if request.param == "open" else ProvisionedMosquitto(tmp_path, "passwords")
    # Its log is where it says how often a session was taken over.
    quiet = server.config.read_text()
    server.config.write_text(quiet.replace("connection_messages false", "connection_messages true"))
    server.start()
    yield server
    server.stop()


def access_to(server: MosquittoServer) -> BrokerAccess:
    if not isinstance(server, ProvisionedMosquitto):
        return BrokerAccess(broker_url=server.url)
    (given,) = server.enrol(NAME)
    return BrokerAccess(broker_url=given.broker_url, username=given.username, password=given.password, ca=given.ca)


@contextlib.contextmanager
def twins(server: MosquittoServer, folder: Path) -> Iterator[list[Path]]:
    """Two devices with the same credentials, each with a store of its own; what each of them writes."""
    operator, federator = SigningKey.generate(), SigningKey.generate()
    credentials = device_identity(operator, federator.public, "fed", NAME, 1, access_to(server))
    write_secret(folder / "device-7.json", credentials.model_dump_json())
    said, processes = [folder / f"{i}.log" for i in range(2)], []
    try:
        for i, path in enumerate(said):
            words = [str(folder / "device-7.json"), str(folder / f"{i}.sqlite")]
            processes.append(logged_process(words, path, program=PROGRAM, **with_defaults(BACKOFF)))
        yield said
        assert [process.poll() for process in processes] == [None, None], [path.read_text() for path in said]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_both_say_so_and_neither_comes_back_at_once(server, tmp_path):
    """Though this broker says nothing: after eight times each says once which identity it is, and few follow."""
    with twins(server, tmp_path) as said:
        wait_until(lambda: all(SAID in path.read_text() for path in said), "they do not see each other")
        time.sleep(1)  # clock: silence
        n_thrown_out = server.log.read_text().count(TAKEN_OVER)
        words = [path.read_text() for path in said]
    # Of two who came back at once there would be many more.
    assert 8 <= n_thrown_out <= 30, server.log.read_text()
    for text in words:
        assert text.count(SAID) == 1, text
        pause = re.search(rf"{SAID} .*pause_s=([\d.]+)", text)
        assert pause is not None, text
        assert float(pause[1]) >= AWAY_S / 2
        assert NAME in text
        assert "another process connects as this user" in text
        assert "Future exception was never retrieved" not in text
        assert "Traceback" not in text
