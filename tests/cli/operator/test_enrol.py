"""``foltr device enrol`` and ``revoke``, and ``foltr operator``."""

import asyncio
import base64
import json
import stat

import pytest
from cli.commands import foltr
from support.answering_federator import answering
from support.broker_folders import ME
from support.message_publisher import publish_once
from support.servers import free_port
from support.waiting import PATIENCE_S

from foltr.broker.address import BrokerAddress
from foltr.broker.link import MqttLink
from foltr.core.errors import UnavailableError
from foltr.core.operator.credentials import BrokerAccess, read_credentials
from foltr.core.protocol.enrolment import read_enrolment, read_roster
from foltr.core.protocol.policies import NEW_POLICY
from foltr.core.protocol.signing import SigningKey, key_from_text, key_to_text
from foltr.core.protocol.topics import ClientTopic, Topics


def device(path):
    return read_credentials(path, "device")


def enrolled(folder, *arguments):
    """The commands that need an enrolled device-7, in a folder of their own."""
    foltr("device", "enrol", "device-7", "--federation", "mail", *arguments, cwd=folder, code=0)
    return read_credentials(folder / "foltr-operator" / "operator.json", "operator")


async def heard(access, topics, client_id="listener"):
    """The first message on one of the topics; UnavailableError if there is none."""
    arrived = asyncio.get_running_loop().create_future()
    link = MqttLink(
        BrokerAddress.of(access),
        client_id=client_id,
        subscriptions=topics,
        on_message=lambda message: arrived.done() or arrived.set_result(message),
        persistent=False,
        give_up_after_s=0.0,
    )
    async with link:
        await link.wait_connected(PATIENCE_S)
        async with asyncio.timeout(PATIENCE_S):
            return await arrived


def test_the_first_enrolment_makes_the_operator_and_the_devices_file(tmp_path):
    """One command from nothing to a device's credentials, closed to others, and two short lines about it."""
    done = foltr(
        *("device", "enrol", "device-7", "--federation", "mail", "--broker", "mqtt://broker.example:1884"),
        cwd=tmp_path,
        code=0,
    )
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 2
    assert "device-7.json" in done.stdout
    credentials = device(tmp_path / "device-7.json")
    assert (credentials.name, credentials.federation) == ("device-7", "mail")
    assert credentials.broker == BrokerAccess(broker_url="mqtt://broker.example:1884")
    payload, key = credentials.enrolment_bytes, credentials.enrolment_public_key
    assert read_enrolment(payload, key, "mail", "device-7").public_key == credentials.key.public
    assert stat.S_IMODE((tmp_path / "foltr-operator").stat().st_mode) == 0o700
    federator = read_credentials(tmp_path / "foltr-operator" / "federator.json", "federator")
    assert federator.broker.broker_url == "mqtt://broker.example:1884"
    assert federator.key.public == credentials.federator_public_key


def test_later_enrolments_know_the_federation_and_the_broker(tmp_path):
    """They are named once; contradicting the federation is an error, and a device may have another address."""
    enrolled(tmp_path, "--broker", "mqtt://broker.example:1884")
    foltr("device", "enrol", "device-8", cwd=tmp_path, code=0)
    assert device(tmp_path / "device-8.json").federation == "mail"
    assert device(tmp_path / "device-8.json").broker.broker_url == "mqtt://broker.example:1884"
    foltr("device", "enrol", "device-9", "--broker", "mqtt://outside.example:1", cwd=tmp_path, code=0)
    assert device(tmp_path / "device-9.json").broker.broker_url == "mqtt://outside.example:1"
    done = foltr("device", "enrol", "device-10", "--federation", "post", cwd=tmp_path, code=2)
    assert "'mail', not of 'post'" in done.stderr
    assert not (tmp_path / "device-10.json").exists()


def test_a_user_in_the_address_is_kept_out_of_it(tmp_path):
    """A broker with one password for all: it is in a field that no text form shows."""
    enrolled(tmp_path, "--broker", "mqtt://user:s3cret@broker.example:1884")
    access = device(tmp_path / "device-7.json").broker
    assert (access.broker_url, access.username, access.password) == ("mqtt://broker.example:1884", "user", "s3cret")


def test_several_devices_at_once(tmp_path):
    """By name or by number, named as ``foltr client run --count`` names them, in a folder that is made."""
    done = foltr("device", "enrol", "a", "b", "--out-dir", str(tmp_path / "named"), cwd=tmp_path, code=0)
    assert sorted(path.name for path in (tmp_path / "named").iterdir()) == ["a.json", "b.json"]
    done = foltr("device", "enrol", "device", "--count", "12", "--out-dir", "all", "--json", cwd=tmp_path, code=0)
    report = json.loads(done.stdout)
    assert report["federation"] == "default"
    assert [row["client_id"] for row in report["clients"]] == [f"device-{i:04d}" for i in range(1, 13)]
    assert [row["serial"] for row in report["clients"]] == list(range(3, 15))
    for row in report["clients"]:
        assert device(tmp_path / row["file"]).name == row["client_id"]
    keys = {device(path).key.public for path in (tmp_path / "all").iterdir()}
    assert len(keys) == 12


def test_the_file_can_be_named(tmp_path):
    """For one device; several need a folder."""
    enrolled(tmp_path, "--out", "here/credentials.json")
    assert device(tmp_path / "here" / "credentials.json").name == "device-7"


def test_a_wrong_name_or_number_enrols_nobody(tmp_path):
    """Exit code 2, one line, and no file."""
    out, key = ("--out", "x.json"), ("--public-key", "ab" * 32)
    for arguments, named in (
        (("../a",), "client"),
        (("a", "a"), "twice"),
        (("a", "b", "--count", "3"), "count"),
        (("a" * 62, "--count", "10"), "client"),
        (("a", "--federation", "x/y"), "federation"),
        (("a", "--broker", "http://x"), "mqtt://"),
        (("a", "b", *out), "--out-dir"),
        (("a", "--count", "2", *out), "--out-dir"),
        (("a", "--out-dir", ".", *out), "--out-dir"),
        (("device-7", "--public-key", "nonsense"), "public_key: 'nonsense' is not a key"),
        (("device-7", "device-8", *key), "public_key: it belongs to one device, but 2 are named"),
        (("device", "--count", "3", *key), "public_key: it belongs to one device, but 3 are named"),
    ):
        done = foltr("device", "enrol", *arguments, cwd=tmp_path)
        assert (done.returncode, named in " ".join(done.stderr.split())) == (2, True), arguments
        assert not list(tmp_path.rglob("*.json"))


def test_no_command_shows_a_private_key(tmp_path):
    """Whatever is printed, with --json or without, may be kept in a log."""
    operator = enrolled(tmp_path)
    said = (
        "device enrol device-8 --json",
        "operator roster --json",
        "operator roster",
        "device revoke device-8 --offline",
    )
    texts = [foltr(*words.split(), cwd=tmp_path, code=0) for words in said]
    secrets = [device(path).signing_key for path in tmp_path.glob("device-*.json")]
    secrets += [operator.signing_key, (tmp_path / "foltr-operator" / "enrolment.key").read_text().strip()]
    assert not any(secret in done.stdout + done.stderr for done in texts for secret in secrets)


def test_a_device_that_keeps_its_key_is_enrolled_by_the_public_one(tmp_path):
    """As text or in a file; its credentials hold no private key."""
    own, newer = SigningKey.generate(), SigningKey.generate()
    (tmp_path / "newer.pub").write_text(key_to_text(newer.public))
    for key, public, serial in ((own, own.public.hex(), 1), (newer, "newer.pub", 2)):
        enrolled(tmp_path, "--public-key", public, "--replace")
        written = json.loads((tmp_path / "device-7.json").read_text())
        assert written["signing_key"] is None
        enrolment_key = key_from_text("enrolment_key", written["enrolment_key"])
        enrolment = read_enrolment(base64.b64decode(written["enrolment"]), enrolment_key, "mail", "device-7")
        assert (enrolment.public_key, enrolment.serial) == (key.public, serial)


def test_the_roster_shows_who_is_enrolled_and_who_is_void(tmp_path):
    """As a table and as JSON, without a broker."""
    enrolled(tmp_path)
    foltr("device", "enrol", "device-8", "device-9", cwd=tmp_path)
    foltr("device", "enrol", "device-8", "--replace", cwd=tmp_path)
    foltr("device", "revoke", "device-9", "--offline", cwd=tmp_path)
    done = foltr("operator", "roster", "--json", cwd=tmp_path, code=0)
    shown = json.loads(done.stdout)
    assert shown["federation"] == "mail"
    rows = [(row["client_id"], row["state"], row["serial"], row["void_below"]) for row in shown["clients"]]
    assert rows == [("device-7", "enrolled", 1, None), ("device-8", "enrolled", 4, 3), ("device-9", "revoked", None, 4)]
    table = foltr("operator", "roster", cwd=tmp_path).stdout
    assert f"Roster {shown['version']} of mail: 2 enrolled" in table
    assert "device-9" in table


def test_a_folder_that_is_no_operators_is_said(tmp_path):
    """Exit code 2 and the command that makes one; nothing is made."""
    for command in ("operator roster", "operator publish", "device revoke a", "rounds deadline 1 --max-time 9"):
        assert "foltr device enrol" in foltr(*command.split(), cwd=tmp_path, code=2).stderr, command
        assert list(tmp_path.iterdir()) == []


async def test_a_revocation_is_published_for_those_who_come_later(mqtt_broker, tmp_path):
    """The roster is retained at the broker, signed; what was recorded offline is published with --broker."""
    operator = enrolled(tmp_path, "--broker", mqtt_broker)
    foltr("device", "enrol", "device-8", cwd=tmp_path, code=0)
    with answering(tmp_path / "foltr-operator").serve() as federator:
        await asyncio.to_thread(foltr, "device", "revoke", "device-7", cwd=tmp_path, code=0)
    assert [(order.kind, order.client_id) for order in federator.orders.values()] == [("revoke_client", "device-7")]
    foltr("device", "revoke", "device-8", "--offline", cwd=tmp_path, code=0)
    for _ in range(2):
        foltr(
            "operator", "publish", "--broker", mqtt_broker, cwd=tmp_path, FOLTR_BROKER_URL="mqtt://127.0.0.1:1", code=0
        )
    message = await heard(operator.broker, [Topics("mail").roster])
    assert message.retained
    roster = read_roster(message.payload, operator.enrolment_public_key, "mail")
    assert [(revoked.client_id, revoked.void_below) for revoked in roster.revoked] == [("device-7", 2), ("device-8", 3)]


def test_a_revocation_without_a_broker_is_recorded(tmp_path):
    """Exit code 3, the command that sends it, and a register that has it; saying so again is no error."""
    enrolled(tmp_path, "--broker", f"mqtt://127.0.0.1:{free_port()}")
    for _ in range(2):
        done = foltr("device", "revoke", "device-7", cwd=tmp_path, code=3)
        assert "device-7 is revoked" in done.stderr
        assert "foltr operator send" in done.stderr
    rows = json.loads(foltr("operator", "roster", "--json", cwd=tmp_path).stdout)["clients"]
    assert [row["state"] for row in rows] == ["revoked"]


async def test_an_enrolled_device_gets_in_and_a_revoked_one_is_void(guarded_broker, tmp_path):
    """Enrolled at the running broker, the device reads its inbox; revoked, its password is worthless."""
    operator = ("--operator", str(guarded_broker.operator_dir))
    assert "SIGHUP" not in foltr("device", "enrol", "device-7", "device-8", *operator, cwd=tmp_path, code=0).stdout
    one, other = device(tmp_path / "device-7.json"), device(tmp_path / "device-8.json")
    assert one.federation == "mail"
    assert one.broker.broker_url.startswith("mqtts://")
    assert one.broker != other.broker
    done = foltr("operator", "publish", *operator, code=0)
    topics = [Topics("mail").roster, Topics("mail").client("device-7", ClientTopic.INBOX)]
    message = await heard(one.broker, topics, "device-7")
    assert read_roster(message.payload, one.enrolment_public_key, "mail").revoked == []
    with answering(guarded_broker.operator_dir).serve():
        done = await asyncio.to_thread(foltr, "rounds", "deadline", "1", "--max-time", "90", *operator, code=0)
        done = await asyncio.to_thread(foltr, "device", "revoke", "device-7", *operator, code=0)
    message = await heard(other.broker, [Topics("mail").roster], "device-8")
    assert len(read_roster(message.payload, other.enrolment_public_key, "mail").revoked) == 1
    assert "still connects" not in done.stdout
    with pytest.raises(UnavailableError):
        await heard(one.broker, topics, "device-7")


def test_a_device_may_reach_the_broker_at_another_address(guarded_broker, tmp_path):
    """--broker changes where, not who; an address without TLS is refused, where the password would be read."""
    operator = ("--operator", str(guarded_broker.operator_dir))
    address = f"mqtts://127.0.0.1:{guarded_broker.port}"
    foltr("device", "enrol", "device-7", "--broker", address, *operator, cwd=tmp_path, code=0)
    broker = device(tmp_path / "device-7.json").broker
    assert (broker.broker_url, broker.username) == (address, "device-7")
    done = foltr("device", "enrol", "device-8", "--broker", "mqtt://127.0.0.1:1883", *operator, cwd=tmp_path, code=2)
    assert "mqtts://" in done.stderr
    assert not (tmp_path / "device-8.json").exists()
    if broker.password is not None:
        assert "device-8" not in (guarded_broker.broker_dir / "passwords").read_text()
    # A broker acknowledges what its list forbids; that it does not come back is what gives it away.
    for topic in (Topics("mail").roster, Topics("mail").federator_key):
        assert not publish_once(broker, "device-7", topic, b"forged", retain=True)
    # A stopped broker reads its users when it starts, and one elsewhere must be told; certificates are no such list.
    guarded_broker.stop()
    done = foltr("device", "enrol", "device-9", *operator, cwd=tmp_path, code=0)
    assert ("SIGHUP" in done.stdout) == (guarded_broker.service("operator").password is not None)


def test_a_broker_configured_later_is_made_known_to_the_services(tmp_path):
    """By the next enrolment; without its record nobody is enrolled."""
    enrolled(tmp_path)
    folder = tmp_path / "foltr-operator"
    config = ("broker", "config", "--tls", "--out", "broker", "--federation", "mail", "--user", ME)
    foltr(*config, cwd=tmp_path, code=0)
    foltr("device", "enrol", "device-8", cwd=tmp_path, code=0)
    for role in ("federator", "operator"):
        assert read_credentials(folder / f"{role}.json", role).broker.username == f"@{role}"
    (folder / "broker.json").unlink()
    assert "foltr broker config" in foltr("device", "enrol", "device-9", cwd=tmp_path, code=2).stderr


def test_the_command_that_is_named_next_is_about_the_same_folder(tmp_path):
    """Copied as it stands it makes no other folder, nor looks for one."""
    access = ("--federation", "mail", "--broker", f"mqtt://127.0.0.1:{free_port()}")
    foltr("device", "enrol", "device-7", "--operator", "op", *access, cwd=tmp_path, code=0)
    for command, hint in (
        ("device enrol device-8 --token", "foltr operator desk"),
        ("device enrol device-7 --replace", "foltr operator publish"),
        ("device revoke device-7 --offline", "foltr operator send"),
        ("device revoke device-7", "foltr operator send"),
        ("device revoke device-77 --offline", "foltr operator roster"),
        ("device tokens --revoke device-7", "foltr device tokens"),
        ("policy show", NEW_POLICY),
        ("policy publish", NEW_POLICY),
        ("broker authority begin", "foltr broker config --tls"),
    ):
        done = foltr(*command.split(), "--operator", "op", cwd=tmp_path)
        assert f"{hint} --operator op" in done.stdout + done.stderr, command
