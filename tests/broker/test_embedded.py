"""The embedded broker: it runs while it is used, on the loopback interface only."""

import asyncio
import contextlib
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.servers import accepts, free_port
from support.waiting import PATIENCE_S, wait_until

from foltr.broker.embedded import LOOPBACK, embedded_broker
from foltr.broker.link import MqttLink
from foltr.core.errors import SettingsError, UnavailableError
from foltr.core.protocol.fields import MAX_MESSAGE_BYTES

pytest.importorskip("iotcore")
REPOSITORY = Path(__file__).parents[2]


def test_it_runs_while_its_block_does():
    """On the port of its caller or a free one, beside others; the port is free again, also after an error inside."""
    port = free_port()
    with contextlib.suppress(KeyError), embedded_broker(port) as one, embedded_broker() as two:
        assert (one.host, one.port) == (LOOPBACK, port)
        assert accepts(port)
        assert accepts(two.port)
        raise KeyError
    assert not accepts(port)


@pytest.mark.parametrize(("of", "option"), [("port", "--port"), ("websocket_port", "--websocket-port")])
def test_a_taken_port_is_told(of, option):
    """The error names the address and the option that chooses another; the other process keeps its port."""
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        port = taken.getsockname()[1]
        told = pytest.raises(UnavailableError, match=rf"127\.0\.0\.1:{port}.*{option}")
        with told, embedded_broker(**{of: port}):
            pass


async def test_pages_reach_it_over_websockets():
    """A second port takes MQTT.js's handshake; the largest message passes, which 20 KB, its own default, would not."""
    arrived, web = asyncio.Queue(), free_port()
    with embedded_broker(websocket_port=web) as address:
        link = MqttLink(address, client_id="a", subscriptions=["t"], on_message=arrived.put_nowait)
        async with link, asyncio.timeout(PATIENCE_S):
            await link.wait_connected(PATIENCE_S)
            await link.publish("t", bytes(MAX_MESSAGE_BYTES))
            assert len((await arrived.get()).payload) == MAX_MESSAGE_BYTES
            assert b" 101 " in await asyncio.to_thread(handshake, web)
    assert not accepts(web)


def handshake(port):
    """The first line that a WebSocket server answers."""
    lines = (
        *("GET /mqtt HTTP/1.1", "Host: localhost", "Upgrade: websocket", "Connection: Upgrade"),
        *("Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Protocol: mqtt"),
    )
    with socket.create_connection((LOOPBACK, port), PATIENCE_S) as connection:
        connection.sendall("".join(f"{line}\r\n" for line in (*lines, "")).encode())
        return connection.makefile("rb").readline()


def test_it_does_not_listen_on_other_interfaces():
    """It has no access control, so no other machine may reach it."""
    with embedded_broker() as address, socket.socket() as probe:
        # Somebody else can still bind the same port on another loopback address: it is not on every interface.
        probe.bind(("127.0.0.2", address.port))


def test_a_missing_package_is_named(monkeypatch):
    """The base install has no broker; the message says what to install."""
    monkeypatch.setitem(sys.modules, "iotcore", None)
    with pytest.raises(SettingsError, match=r"pip install .*\[simulation\]'"), embedded_broker():
        pass


def test_it_does_not_outlive_a_killed_process():
    """After kill -9 of the process that runs it, nothing listens on its port."""
    code = (
        "import time\n"
        "from foltr.broker.embedded import embedded_broker\n"
        "with embedded_broker() as address:\n"
        "    print(address.port, flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=REPOSITORY) as process:
        port = int(process.stdout.readline())
        assert accepts(port)
        process.kill()
    wait_until(lambda: not accepts(port), f"port {port} still accepts")
