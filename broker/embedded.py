"""The embedded broker: rumqttd inside the wheel `iotcore`, in a child process that ends with its parent.

For one machine only: it has no access control, so it listens only on the loopback interface.
"""

import contextlib
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

from foltr.broker.address import BrokerAddress
from foltr.core.errors import SettingsError, UnavailableError
from foltr.core.extras import install_command
from foltr.core.protocol.fields import MAX_MESSAGE_BYTES

LOOPBACK = "127.0.0.1"

# rumqttd's file, which alone can name a second listener; the numbers are those that iotcore gives the first.
_ROUTER = """
id = 0
[router]
id = 0
max_connections = 10000
max_outgoing_packet_count = 200
max_segment_size = 104857600
max_segment_count = 10
"""
_LISTENER = """
[{kind}.1]
name = "{kind}"
listen = "{listen}:{port}"
next_connection_delay_ms = 1
[{kind}.1.connections]
connection_timeout_ms = 60000
max_payload_size = {largest}
max_inflight_count = 100
dynamic_filters = true
"""
# Its own default, 20 KB, drops the connection of larger messages.
_LARGEST = 2 * MAX_MESSAGE_BYTES


@contextlib.contextmanager
def embedded_broker(port: int = 0, websocket_port: int | None = None) -> Iterator[BrokerAddress]:
    """Run the embedded broker on ``port`` of the loopback interface; 0 picks a free one.

    Args:
        websocket_port: of a second listener, for MQTT over WebSockets; None: no such listener.

    Raises:
        UnavailableError: a port is taken, or the broker did not come up.
        SettingsError: the package `iotcore` is not installed.
    """
    try:
        from iotcore import Broker
    except ImportError as error:
        raise SettingsError(
            f"the embedded broker needs the package iotcore: {install_command('simulation')}, "
            "or use Mosquitto (`foltr broker config`)"
        ) from error
    port = port or free_port()
    with tempfile.TemporaryDirectory() as folder:
        if websocket_port is None:
            # The default of `listen` is every interface.
            broker = Broker(port=port, listen=LOOPBACK, max_payload_size=_LARGEST)
        else:
            ports = {"v4": port, "ws": websocket_port}
            listeners = (
                _LISTENER.format(kind=kind, listen=LOOPBACK, port=number, largest=_LARGEST)
                for kind, number in ports.items()
            )
            config = Path(folder, "rumqttd.toml")
            config.write_text(_ROUTER + "".join(listeners))
            broker = Broker(config_path=str(config))
        try:
            broker.start(timeout=10.0)
        except (OSError, RuntimeError) as error:
            more = "" if websocket_port is None else f" and {websocket_port}"
            flags = "--port" if websocket_port is None else "--port and --websocket-port"
            raise UnavailableError(
                f"embedded broker on {LOOPBACK}:{port}{more}: {error}. Choose another port with {flags}."
            ) from error
        try:
            yield BrokerAddress(host=LOOPBACK, port=port)
        finally:
            broker.stop()


def free_port() -> int:
    """Return a port of the loopback interface that nobody has now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])
