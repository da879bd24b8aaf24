"""TLS to the broker: what is trusted, what is refused with the name of the setting, and what a failure is called."""

import re
import ssl
import tempfile
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from support.broker_links import link_to
from support.servers import ProvisionedMosquitto
from support.waiting import until

from foltr.broker.address import BrokerAddress
from foltr.broker.certificates import create_authority, issue_client
from foltr.broker.tls import TlsMaterial, client_context, explain_failure
from foltr.core.errors import SettingsError, UnavailableError

AUTHORITY = create_authority("foltr test")
CA = AUTHORITY.certificate_pem
CLIENT = issue_client(AUTHORITY, "device-1")
ENCRYPTED_KEY = (
    serialization.load_pem_private_key(CLIENT.key_pem.encode(), None)
    .private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
    )
    .decode()
)


def test_certificate_and_host_are_checked():
    """There is no way to switch that off."""
    for material in (None, TlsMaterial(), TlsMaterial(ca=CA)):
        context = client_context(material)
        assert context.verify_mode == ssl.CERT_REQUIRED
        assert context.check_hostname
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_given_authority_is_the_only_one():
    """A certificate that some public authority issued for the broker's name is none of ours."""
    (only,) = client_context(TlsMaterial(ca=CA)).get_ca_certs()
    assert only["subject"] == ((("commonName", "foltr test"),),)


def test_what_is_no_pem_is_named():
    """By its setting, and without its text, which may be a secret. A password is never asked for."""
    for material, setting in (
        (TlsMaterial(ca=""), "broker_ca"),
        (TlsMaterial(ca="ca.crt"), "broker_ca"),
        (TlsMaterial(ca="é"), "broker_ca"),
        (TlsMaterial(ca=CLIENT.key_pem), "broker_ca"),
        (TlsMaterial(ca=CA.replace("MII", "MIX")), "broker_ca"),
        (TlsMaterial(CA, "x", CLIENT.key_pem), "broker_certificate"),
        (TlsMaterial(CA, "é", CLIENT.key_pem), "broker_certificate"),
        (TlsMaterial(CA, CLIENT.key_pem, CLIENT.key_pem), "broker_certificate"),
        (TlsMaterial(CA, None, CLIENT.key_pem), "broker_certificate"),
        (TlsMaterial(CA, CLIENT.certificate_pem, None), "broker_key"),
        (TlsMaterial(CA, CLIENT.certificate_pem, ""), "broker_key"),
        (TlsMaterial(CA, CLIENT.certificate_pem, "s3cret"), "broker_key"),
        (TlsMaterial(CA, CLIENT.certificate_pem, CLIENT.certificate_pem), "broker_key"),
        (TlsMaterial(CA, CLIENT.certificate_pem, ENCRYPTED_KEY), "broker_key"),
        (TlsMaterial(CA, CLIENT.certificate_pem, AUTHORITY.key_pem), "broker_key: it is not the key of"),
    ):
        with pytest.raises(SettingsError, match=rf"^{setting}") as caught:
            client_context(material)
        assert "s3cret" not in str(caught.value)
        assert "BEGIN PRIVATE KEY-----\n" not in str(caught.value)


def test_a_link_refuses_them_before_it_connects():
    """A typing error is told at once, not after a time without a connection."""
    address = BrokerAddress("localhost", 8883, tls=True, tls_material=TlsMaterial(ca="nothing"))
    with pytest.raises(SettingsError, match="broker_ca"):
        link_to(address)


def test_the_key_does_not_stay_on_disk(tmp_path, monkeypatch):
    """OpenSSL reads files; they are in a folder of our own and gone at once, also after an error."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    modes, load = [], ssl.SSLContext.load_cert_chain

    def spy(self, certificate, key, password=None):
        modes.append(Path(key).parent.stat().st_mode & 0o777)
        load(self, certificate, key, password)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", spy)
    client_context(TlsMaterial(CA, CLIENT.certificate_pem, CLIENT.key_pem))
    with pytest.raises(SettingsError):
        client_context(TlsMaterial(CA, CLIENT.certificate_pem, "nothing"))
    assert modes == [0o700, 0o700]
    assert list(tmp_path.iterdir()) == []


def test_what_does_not_come_from_tls_is_left_to_others():
    """A refused connection has an explanation of its own."""
    assert explain_failure(None) is None
    assert explain_failure(ConnectionRefusedError(111, "Connection refused")) is None


def test_an_unknown_failure_of_tls_is_still_called_one():
    """With what OpenSSL says, and where to look."""
    cause, next_step = explain_failure(ssl.SSLError(1, "[SSL: NO_CIPHERS_AVAILABLE] no ciphers available"))
    assert "TLS handshake failed" in cause
    assert "no ciphers available" in cause.lower().replace("_", " ")
    assert "log" in next_step


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A Mosquitto that asks for client certificates, reached under a name it was not made for as well."""
    server = ProvisionedMosquitto(tmp_path_factory.mktemp("mosquitto"), "mtls")
    server.provision("127.0.0.1")
    server.start()
    yield server
    server.stop()


async def fails(host, port, material, expected):
    """Wait until a link says this of why it does not connect; in TLS 1.3 an alert may come at its next attempt."""
    address = BrokerAddress(host, port, tls=True, tls_material=material)
    async with link_to(address) as link:
        await until(lambda: re.search(expected, str(link.outage)), f"it does not say {expected!r}")
        assert str(link.outage).startswith(f"MQTT broker {address}: no connection for ")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=str)
async def test_each_failure_says_what_to_do(server, version, mosquitto_server, monkeypatch):
    """The same in both versions of TLS, though the alerts and their moments differ."""

    def context_of_version(material):
        context = client_context(material)
        context.maximum_version = version
        return context

    monkeypatch.setattr("foltr.broker.link.client_context", context_of_version)
    device = server.enrol("device-1")[0]
    good = BrokerAddress.of(device).tls_material
    stranger = issue_client(AUTHORITY, "device-1")
    for host, port, material, expected in (
        ("127.0.0.1", server.port, TlsMaterial(good.ca), "asks for a client certificate.*broker_certificate"),
        (
            "127.0.0.1",
            server.port,
            TlsMaterial(good.ca, stranger.certificate_pem, stranger.key_pem),
            "refuses our client certificate.*Enrol",
        ),
        (
            "127.0.0.1",
            server.port,
            TlsMaterial(CA, good.certificate, good.key),
            "not one we trust.*these credentials did not",
        ),
        ("127.0.0.1", server.port, None, "not one we trust.*these credentials did not"),
        ("localhost", server.port, good, "for another host.*localhost.*--host"),
        ("127.0.0.1", mosquitto_server.port, good, "without an answer.*mqtt://"),
    ):
        await fails(host, port, material, expected)


async def test_the_reason_outlives_the_attempt(server):
    """A link that has given up says it too."""
    expected = r"not one we trust.*gave up after 0\.2 s.*these credentials did not"
    async with link_to(BrokerAddress("127.0.0.1", server.port, tls=True), give_up_after_s=0.2) as link:
        with pytest.raises(UnavailableError, match=expected):
            await link.wait_failed()
