"""What speaks MQTT is tried with both brokers."""

import pytest


@pytest.fixture(params=["mosquitto_server", "iotcore_broker"])
def mqtt_broker(request: pytest.FixtureRequest) -> str:
    """The address of a real broker: Mosquitto, then iotcore."""
    return request.getfixturevalue(request.param).url
