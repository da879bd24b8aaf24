"""The private authority: certificates that TLS libraries take, for the use they were made for and no other."""

import contextlib
import socket
import ssl
import tempfile
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from support.waiting import PATIENCE_S

from foltr.broker.certificates import (
    KeyPair,
    create_authority,
    is_still_valid,
    issue_client,
    issue_server,
    load_authority,
)
from foltr.broker.tls import TlsMaterial, client_context
from foltr.core.errors import SettingsError

AUTHORITY = create_authority("foltr test")
HOSTS = ["localhost", "127.0.0.1", "::1", "Broker.example"]


def loaded(pair):
    return x509.load_pem_x509_certificate(pair.certificate_pem.encode())


def extension(pair, kind):
    return loaded(pair).extensions.get_extension_for_class(kind)


def days_left(pair):
    return (loaded(pair).not_valid_after_utc - datetime.now(UTC)) / timedelta(days=1)


def test_the_authority_signs_certificates_and_nothing_else():
    """Ten years, P-256, and no authority below it."""
    basic, usage = extension(AUTHORITY, x509.BasicConstraints), extension(AUTHORITY, x509.KeyUsage)
    assert (basic.value.ca, basic.value.path_length, basic.critical) == (True, 0, True)
    assert usage.critical
    assert usage.value.key_cert_sign
    assert not usage.value.digital_signature
    assert days_left(AUTHORITY) == pytest.approx(3650, abs=1)
    assert isinstance(loaded(AUTHORITY).public_key().curve, ec.SECP256R1)
    assert loaded(AUTHORITY).not_valid_before_utc < datetime.now(UTC) - timedelta(minutes=30)
    loaded(AUTHORITY).verify_directly_issued_by(loaded(AUTHORITY))
    assert "PRIVATE" not in repr(AUTHORITY)  # tracebacks and logs show what an object says of itself


def test_a_certificate_is_for_one_use():
    """A server's is no client's; neither signs others; each names its issuer's key, and is valid for a slow clock."""
    issuer = extension(AUTHORITY, x509.SubjectKeyIdentifier).value.digest
    for pair, usage in (
        (issue_server(AUTHORITY, HOSTS), ExtendedKeyUsageOID.SERVER_AUTH),
        (issue_client(AUTHORITY, "device-1"), ExtendedKeyUsageOID.CLIENT_AUTH),
    ):
        assert list(extension(pair, x509.ExtendedKeyUsage).value) == [usage]
        assert not extension(pair, x509.BasicConstraints).value.ca
        assert extension(pair, x509.KeyUsage).value.digital_signature
        assert not extension(pair, x509.KeyUsage).value.key_cert_sign
        assert extension(pair, x509.AuthorityKeyIdentifier).value.key_identifier == issuer
        assert extension(pair, x509.SubjectKeyIdentifier).value.digest != issuer
        assert days_left(pair) == pytest.approx(825, abs=1)
        assert loaded(pair).not_valid_before_utc < datetime.now(UTC) - timedelta(minutes=30)
        loaded(pair).verify_directly_issued_by(loaded(AUTHORITY))


def test_a_client_is_named_in_its_certificate():
    """The name is all that is in the subject; the longest name of the protocol fits."""
    for name in ("device-1", "@federator", "d" * 64):
        (attribute,) = loaded(issue_client(AUTHORITY, name)).subject
        assert (attribute.oid, attribute.value) == (NameOID.COMMON_NAME, name)


def test_no_two_certificates_share_a_serial_number_or_a_key():
    """Made from chance, not counted."""
    pairs = [issue_client(AUTHORITY, "device-1") for _ in range(20)]
    assert len({loaded(pair).serial_number for pair in pairs}) == len({pair.key_pem for pair in pairs}) == 20


def test_a_certificate_does_not_outlive_its_authority():
    """It would fail on that day without saying why."""
    young = create_authority("young", days=10)
    assert loaded(issue_client(young, "device-1")).not_valid_after_utc == loaded(young).not_valid_after_utc


def test_what_is_no_host_is_refused():
    """With the name of the option; a certificate for nothing would be refused by everybody."""
    no_hosts = ("", "a b", "mqtts://broker", "broker:8883", "*.example", "-x", "a\nb", "bücher.example")
    for hosts in ([], *(["localhost", host] for host in no_hosts)):
        with pytest.raises(SettingsError, match=r"^host: "):
            pytest.fail(f"{hosts}: {issue_server(AUTHORITY, hosts)}")


def test_a_strict_client_takes_it_for_its_hosts_and_no_others():
    """A real handshake, with the checks that newer versions of Python make by default."""
    for host in HOSTS:
        assert handshake(issue_server(AUTHORITY, HOSTS), host) == "TLSv1.3", host
    with pytest.raises(ssl.SSLCertVerificationError, match=r"[Hh]ostname mismatch"):
        handshake(issue_server(AUTHORITY, HOSTS), "elsewhere.example")
    with pytest.raises(ssl.SSLCertVerificationError):  # an enrolled device cannot play the broker
        handshake(issue_client(AUTHORITY, "localhost"), "localhost")


def handshake(server: KeyPair, host: str) -> str | None:
    """The TLS version that a client of the authority and a server with ``server`` agree on."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_pair(serving, server)
    context = client_context(TlsMaterial(ca=AUTHORITY.certificate_pem))
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    near, far = socket.socketpair()
    with near, far:
        far.settimeout(PATIENCE_S)

        def serve() -> None:
            # What counts is what the client sees.
            with contextlib.suppress(OSError), serving.wrap_socket(far, server_side=True) as tls:
                tls.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with context.wrap_socket(near, server_hostname=host) as tls:
                return tls.version()
        finally:
            near.close()
            thread.join()


def load_pair(context: ssl.SSLContext, pair: KeyPair) -> None:
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = Path(folder, "c"), Path(folder, "k")
        certificate.write_text(pair.certificate_pem)
        key.write_text(pair.key_pem)
        context.load_cert_chain(certificate, key)


def test_a_good_certificate_is_kept():
    """It is for exactly these hosts, in any order and case, of this authority, and has a month left."""
    server = issue_server(AUTHORITY, ["localhost", "127.0.0.1"]).certificate_pem
    ca = AUTHORITY.certificate_pem
    assert is_still_valid(server, ca)
    assert is_still_valid(server, ca, ["127.0.0.1", "LOCALHOST"])
    assert not is_still_valid(server, ca, ["localhost"])
    assert not is_still_valid(server, ca, ["localhost", "127.0.0.1", "more.example"])
    assert not is_still_valid(server, create_authority("foltr test").certificate_pem)
    assert not is_still_valid(issue_server(AUTHORITY, ["localhost"], days=29).certificate_pem, ca)
    assert is_still_valid(issue_server(AUTHORITY, ["localhost"], days=31).certificate_pem, ca)
    assert not is_still_valid("nothing", ca)


def test_an_authority_is_read_from_its_files(tmp_path):
    """A key that is not its own, or no key at all, is named."""
    certificate, key = tmp_path / "ca.crt", tmp_path / "ca.key"
    certificate.write_text(AUTHORITY.certificate_pem)
    with pytest.raises(SettingsError, match=r"ca\.key"):
        load_authority(certificate, key)
    key.write_text(AUTHORITY.key_pem)
    assert load_authority(certificate, key) == AUTHORITY
    for wrong in (create_authority("another").key_pem, "no key", ""):
        key.write_text(wrong)
        with pytest.raises(SettingsError, match=r"ca\.key"):
            load_authority(certificate, key)
