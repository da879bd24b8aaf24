"""The broker gets another key and certificate at any time, without anybody being enrolled anew."""

import asyncio
import socket
import ssl
from datetime import timedelta

import pytest
from cryptography.x509 import load_der_x509_certificate
from support.broker_links import connected
from support.waiting import until

from foltr.broker.address import BrokerAddress
from foltr.broker.authorities import issuing_authority
from foltr.broker.certificates import KeyPair, expiry_of, hosts_of, is_key_pair
from foltr.broker.provision import reload_broker
from foltr.broker.renewal import renew_server
from foltr.core.errors import SettingsError, UnavailableError


def renew(server, **changes):
    return renew_server(server.operator_dir, issuing_authority(server.operator_dir), **changes)


def pair_of(server):
    return KeyPair(*((server.broker_dir / name).read_text() for name in ("server.crt", "server.key")))


async def until_shown(server, ca, pem):
    """Wait until a connection is shown this certificate."""

    def shown():
        context = ssl.create_default_context(cadata=ca)
        with (
            socket.create_connection(("127.0.0.1", server.port)) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as tls,
        ):
            return tls.getpeercert(binary_form=True)

    async def is_shown():
        return await asyncio.to_thread(shown) == ssl.PEM_cert_to_DER_cert(pem)

    await until(is_shown)


async def test_a_running_broker_shows_another_key_at_once(server):
    """Long before the last 30 days; those who are connected stay, and the same credentials connect."""
    server.start()
    (device,) = server.enrol("device-1")
    before, mode = pair_of(server), (server.broker_dir / "server.key").stat().st_mode
    async with connected(BrokerAddress.of(device)) as link:
        done = renew(server)
        assert reload_broker(server.operator_dir)
        after = pair_of(server)
        await until_shown(server, device.ca, after.certificate_pem)
        assert link.connected
    assert before.key_pem != after.key_pem
    assert (set(done.hosts), set(hosts_of(after.certificate_pem))) == ({"localhost", "127.0.0.1"},) * 2
    assert (server.broker_dir / "server.key").stat().st_mode == mode
    async with connected(BrokerAddress.of(device)):
        pass


def test_other_hosts_and_a_shorter_life_may_be_chosen(server):
    """A stolen key is of use for as long as its certificate lasts."""
    done = renew(server, hosts=["broker.example"], days=30)
    assert done.hosts == hosts_of(pair_of(server).certificate_pem) == ("broker.example",)
    assert done.ends == expiry_of(pair_of(server).certificate_pem) < done.old_ends - timedelta(days=700)
    with pytest.raises(SettingsError, match="host"):
        renew(server, hosts=["mqtts://broker.example"])
    assert load_der_x509_certificate(ssl.PEM_cert_to_DER_cert(pair_of(server).certificate_pem))


def test_interrupted_between_key_and_certificate_it_is_mended(server):
    """By doing it again, or by `foltr broker config`: a key that is not the certificate's would stop the broker."""
    other = pair_of(server).key_pem
    renew(server)
    for mend in (lambda: renew(server), server.provision):
        (server.broker_dir / "server.key").write_text(other)
        assert not is_key_pair(pair_of(server))
        mend()
        assert is_key_pair(pair_of(server))


def test_elsewhere_it_says_where_to_run_it(server):
    """The broker's folder is on another machine, or has no certificate to take the hosts from."""
    (server.broker_dir / "server.crt").unlink()
    with pytest.raises(SettingsError, match="--host"):
        renew(server)
    server.broker_dir.rename(server.broker_dir.with_name("elsewhere"))
    with pytest.raises(UnavailableError, match="machine"):
        renew(server)
