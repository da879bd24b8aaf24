"""The address of a broker: what is understood, and that a password is never shown."""

import pytest

from foltr.broker.address import BrokerAddress
from foltr.broker.tls import TlsMaterial
from foltr.core.errors import SettingsError
from foltr.core.operator.credentials import BrokerAccess


def test_an_address_is_read():
    """Host, port, user and password, with percent escapes."""
    for url, address in (
        ("mqtt://127.0.0.1:1884", BrokerAddress("127.0.0.1", 1884)),
        ("mqtt://localhost", BrokerAddress("localhost", 1883)),
        ("mqtt://localhost/", BrokerAddress("localhost", 1883)),
        ("mqtt://[::1]:1884", BrokerAddress("::1", 1884)),
        ("mqtt://ann@broker", BrokerAddress("broker", 1883, "ann")),
        ("mqtt://ann:s3cret@broker:1", BrokerAddress("broker", 1, "ann", "s3cret")),
        ("mqtt://a%40b:p%2F%3A%23@broker", BrokerAddress("broker", 1883, "a@b", "p/:#")),
        ("mqtt://ann:p@ss@broker", BrokerAddress("broker", 1883, "ann", "p@ss")),
        ("mqtts://broker", BrokerAddress("broker", 8883, tls=True)),
        ("mqtts://ann:s3cret@[::1]:1", BrokerAddress("::1", 1, "ann", "s3cret", tls=True)),
        ("MQTTS://broker", BrokerAddress("broker", 8883, tls=True)),
    ):
        assert BrokerAddress.parse(url) == address, url


NO_ADDRESSES = """
    broker broker:1883 127.0.0.1:1883 mqttss://broker mqtts:// mqtts://broker:0 ssl://broker:8883 tcp://broker
    http://broker:1883 mqtt:// mqtt://:1883 mqtt://ann:s3cret@ mqtt://broker:port mqtt://broker:65536 mqtt://broker:-1
    mqtt://ann:1234#x@broker mqtt://broker:0 mqtt://broker/topic mqtt://broker?x=1 mqtt://broker#x mqtt://[::1
"""
WITH_PASSWORDS = """
    ssl://ann:s3cret@broker mqtts://ann:s3cret@broker/topic mqtt://ann:s3cret@broker/topic mqtt://ann:s3cret@broker:port
    mqtt://ann:s3cret@broker:65536 mqtt://ann:s3cret/x@broker mqtt://ann:s3cret#x@broker mqtt://ann:s3cret?x@broker
    ann:s3cret@broker mqtt://ann:s3cret@ mqtt://ann:s3cret@[::1
"""


def test_anything_else_is_refused_with_an_example():
    """The setting is named and the form is shown; no part of an address is silently ignored."""
    for url in ("", *NO_ADDRESSES.split()):
        with pytest.raises(SettingsError, match=r"^broker_url: .*mqtt://127\.0\.0\.1:1883"):
            pytest.fail(f"{url}: {BrokerAddress.parse(url)}")


def test_a_refusal_does_not_show_the_password():
    """The message goes to a terminal and to logs; a password often holds characters that break the address."""
    for url in WITH_PASSWORDS.split():
        with pytest.raises(SettingsError) as caught:
            BrokerAddress.parse(url)
        error = caught.value
        while error is not None:
            assert "s3cret" not in str(error)
            error = error.__cause__


def test_secrets_are_in_no_text():
    """Logs and tracebacks show the address, and not what is given beside it."""
    address = BrokerAddress.parse("mqtt://ann:s3cret@broker:1884")
    assert str(address) == "mqtt://broker:1884"
    material = TlsMaterial("ca", "certificate", "s3cret")
    with_key = BrokerAddress("broker", 8883, tls=True, tls_material=material)
    assert "s3cret" not in repr(address) + repr(with_key) + str(with_key) + repr(material)


def test_the_text_can_be_used_as_an_address():
    """What a message shows can be pasted back."""
    for url in ("mqtt://broker:1884", "mqtt://127.0.0.1:1883", "mqtt://[::1]:1884", "mqtts://broker:8883"):
        assert str(BrokerAddress.parse(url)) == url


def test_certificates_are_not_silently_left_unused():
    """Who gives an authority to check against does not want to talk in the clear."""
    with pytest.raises(SettingsError, match="mqtts://"):
        BrokerAddress("broker", tls_material=TlsMaterial(ca="ca"))
    with pytest.raises(SettingsError, match="mqtts://"):
        BrokerAddress.of(BrokerAccess(broker_url="mqtt://h", ca="CA"))
    assert BrokerAddress("broker", tls_material=TlsMaterial()).port == 1883


def test_an_address_takes_all_of_the_access():
    """User, password and certificates come from the fields; else those in the address count."""
    access = BrokerAccess(
        broker_url="mqtts://broker.example",
        username="u",
        password="p",  # noqa: S106 (made up)
        ca="CA",
        certificate="CERT",
        key="KEY",
    )
    assert BrokerAddress.of(access) == BrokerAddress(
        "broker.example", 8883, "u", "p", tls=True, tls_material=TlsMaterial("CA", "CERT", "KEY")
    )
    assert BrokerAddress.of(BrokerAccess(broker_url="mqtt://u:p@h")) == BrokerAddress(
        "h", 1883, "u", "p", tls_material=TlsMaterial()
    )
    mixed = BrokerAddress.of(BrokerAccess(broker_url="mqtt://u:p@h", username="v", password="q"))  # noqa: S106
    assert (mixed.username, mixed.password) == ("v", "q")
