"""The embedded broker: rumqttd inside the wheel `iotcore`, in a child process that ends with its parent.

For one machine only: it has no access control, so it listens only on the loopback interface.
"""

import contextlib
import socket
from collections.abc import Iterator

from foltr.broker.address import BrokerAddress
from foltr.core.errors import SettingsError, UnavailableError
from foltr.core.extras import install_command
from foltr.core.protocol.fields import MAX_MESSAGE_BYTES

LOOPBACK = "127.0.0.1"


@contextlib.contextmanager
def embedded_broker(port: int = 0) -> Iterator[BrokerAddress]:
    """Run the embedded broker on ``port`` of the loopback interface; 0 picks a free one.

    Raises:
        UnavailableError: the port is taken, or the broker did not come up.
        SettingsError: the package `iotcore` is not installed.
    """
    try:
        from iotcore import Broker
    except ImportError as error:
        raise SettingsError(
            f"the embedded broker needs the package iotcore: {install_command('simulation')}, "
            "or use Mosquitto (`foltr broker config`)"
        ) from error
    port = port or _free_port()
    broker = Broker(
        port=port,
        listen=LOOPBACK,  # its own default is every interface
        max_payload_size=2 * MAX_MESSAGE_BYTES,  # its own default, 20 KB, drops the connection of larger ones
    )
    try:
        broker.start(timeout=10.0)
    except (OSError, RuntimeError) as error:
        raise UnavailableError(
            f"embedded broker on {LOOPBACK}:{port}: {error}. Choose another port with --port."
        ) from error
    try:
        yield BrokerAddress(host=LOOPBACK, port=port)
    finally:
        broker.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])
