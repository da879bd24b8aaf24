"""What a broker says of a user's rights, and that asking leaves nothing behind."""

import asyncio
from dataclasses import replace
from functools import partial

import pytest
from support.broker_links import Inbox, connected
from support.waiting import PATIENCE_S

from foltr.broker.address import BrokerAddress
from foltr.broker.authorities import issuing_authority
from foltr.broker.broker_records import SERVER_CERTIFICATE_NAME
from foltr.broker.certificates import create_authority, expiry_of, issue_server
from foltr.broker.probe import LoginRefusedError, TakenOverError, inspect_tls, look_at_certificate
from foltr.broker.probe import Probe as ImpatientProbe
from foltr.core.errors import UnavailableError
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.core.protocol.verdicts import Reason

TOPICS = Topics("fed")
NOBODY = TOPICS.client("nobody", ClientTopic.STATUS)
Probe = partial(ImpatientProbe, timeout_s=PATIENCE_S)


def test_the_broker_says_what_it_refuses(guarded):
    """In MQTT 5, where 3.1.1 acknowledges and drops."""
    (device,) = guarded.enrol("device-7")
    with Probe(BrokerAddress.of(device), "device-7") as probe:
        assert probe.may_publish(TOPICS.client("device-7", ClientTopic.STATUS))
        assert not probe.may_publish(NOBODY)
        assert not probe.may_publish(TOPICS.round)
    with Probe(BrokerAddress.of(guarded.service("federator")), "@federator") as probe:
        assert probe.may_publish(NOBODY)
        assert not probe.may_publish(TOPICS.roster)


def test_the_certificate_is_named(guarded):
    """Whose it is, by whom, and until when."""
    (device,) = guarded.enrol("device-7")
    shown = inspect_tls(BrokerAddress.of(device))
    assert (shown.subject, shown.issuer) == ("foltr broker", "foltr fed")
    assert shown.protocol == "TLSv1.3"
    certificate = (guarded.broker_dir / SERVER_CERTIFICATE_NAME).read_text()
    assert shown.not_after == expiry_of(certificate).timestamp()


def test_a_certificate_that_new_connections_refuse(guarded):
    """It expired, or another authority issued it; the broker of a look says nothing of it in its log."""
    (device,) = guarded.enrol("device-7")
    address = BrokerAddress.of(device)
    shown = inspect_tls(address)
    # By now it has noted the connection without a handshake by which the fixture saw it start.
    before = len(guarded.log.read_text())
    assert look_at_certificate(address) == shown
    assert "rror" not in guarded.log.read_text()[before:]
    old = issue_server(issuing_authority(guarded.operator_dir), ["localhost", "127.0.0.1"], -0.02)
    foreign = issue_server(create_authority("foltr other"), ["localhost", "127.0.0.1"])
    for pair, why in ((old, "certificate has expired"), (foreign, "not one we trust")):
        guarded.stop()
        (guarded.broker_dir / "server.crt").write_text(pair.certificate_pem)
        (guarded.broker_dir / "server.key").write_text(pair.key_pem)
        guarded.start()
        found = look_at_certificate(address)
        assert (found.reason, found.culprit) == (Reason.CERTIFICATE_REFUSED, f"broker {address}")
        assert why in found.detail
    guarded.stop()
    assert look_at_certificate(address) is None
    assert look_at_certificate(replace(address, tls=False, tls_material=None)) is None


async def test_a_session_that_waits_for_its_owner_keeps_what_is_in_it(guarded):
    """A federator that is away finds the updates that came meanwhile, although somebody has looked."""
    (device,) = guarded.enrol("device-7")
    address = BrokerAddress.of(guarded.service("federator"))
    topic = TOPICS.client("device-7", ClientTopic.UPDATES)
    inbox = Inbox()
    async with connected(address, "x", inbox, [topic], persistent=True):
        pass
    async with connected(BrokerAddress.of(device), "y") as link:
        await link.publish(topic, b"an update")

    def look() -> None:
        with Probe(address, "@federator") as probe:
            assert probe.may_publish(NOBODY)

    await asyncio.to_thread(look)
    assert inbox.empty
    async with connected(address, "x", inbox, [topic], persistent=True):
        assert await inbox.payloads(1) == [b"an update"]


def test_a_session_made_for_looking_goes(mosquitto_server):
    """Who was not there before is not there afterwards."""
    address = BrokerAddress.parse(mosquitto_server.url)
    for _ in range(2):
        with Probe(address, "passing-by") as probe:
            assert not probe.resumed
            assert probe.may_publish(NOBODY)


def test_another_of_the_same_name_takes_over(mosquitto_server):
    """It is said, and no connection is made again."""
    address = BrokerAddress.parse(mosquitto_server.url)
    with Probe(address, "twin") as first:
        with Probe(address, "twin") as second:
            assert second.may_publish(NOBODY)
        with pytest.raises(TakenOverError):
            first.may_publish(NOBODY)


def test_who_is_not_let_in_is_told_so(guarded):
    """With a wrong password; one without a certificate does not get as far."""
    good = BrokerAddress.of(guarded.service("operator"))
    wrong = BrokerAddress(good.host, good.port, "@operator", "wrong", tls=True, tls_material=good.tls_material)
    if good.password is None:
        with Probe(wrong, "@operator") as probe:  # the certificate is what counts
            assert not probe.may_publish(NOBODY)
        return
    with pytest.raises(LoginRefusedError, match="enrolled"), Probe(wrong, "@operator"):
        pass


def test_a_broker_without_mqtt_5_is_unavailable_to_it(iotcore_broker):
    """Soon, and so the caller can look in another way."""
    with pytest.raises(UnavailableError), ImpatientProbe(BrokerAddress.parse(iotcore_broker.url), "x", 2.0):
        pass
