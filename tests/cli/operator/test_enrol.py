"""``foltr device enrol`` and ``revoke``, ``foltr operator`` and the commands that give orders."""

import asyncio
import base64
import json
import shutil
import stat

import pytest
from cli.commands import foltr
from cli.silence import give_up_once
from support.answering_federator import answering
from support.broker_folders import ME
from support.message_publisher import publish_once
from support.servers import free_port
from support.waiting import PATIENCE_S

from foltr.broker.address import BrokerAddress
from foltr.broker.link import MqttLink
from foltr.broker.tls import TlsMaterial
from foltr.core.errors import SettingsError, UnavailableError
from foltr.core.operator.credentials import BrokerAccess, read_credentials
from foltr.core.protocol.enrolment import read_enrolment, read_roster
from foltr.core.protocol.signing import SigningKey, key_from_text, key_to_text
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.operations.operator_access import access_to, redirect


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


# --- enrol ----------------------------------------------------------------------------------------------------


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
    assert device(tmp_path / "device-7.json").broker == BrokerAccess(
        broker_url="mqtt://broker.example:1884",
        username="user",
        password="s3cret",  # noqa: S106 (made up)
    )


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
    for arguments in (("a", "b"), ("a", "--count", "2"), ("a", "--out-dir", ".")):
        done = foltr("device", "enrol", *arguments, "--out", "x.json", cwd=tmp_path, code=2)
        assert "--out-dir" in done.stderr
    assert not (tmp_path / "x.json").exists()


def test_a_wrong_name_or_number_enrols_nobody(tmp_path):
    """Exit code 2, one line, and no file."""
    for arguments, named in (
        (("a/b",), "client"),
        (("../a",), "client"),
        (("a", "a"), "twice"),
        (("a", "b", "--count", "3"), "count"),
        (("a", "--count", "0"), "count"),
        (("a", "--federation", "x/y"), "federation"),
        (("a", "--broker", "http://x"), "mqtt://"),
        (("a" * 62, "--count", "10"), "client"),
        (("device-7", "--public-key", "nonsense"), "public_key: 'nonsense' is not a key"),
        (("device-7", "device-8", "--public-key", "ab" * 32), "public_key: it belongs to one device, but 2 are named"),
        (
            ("device", "--count", "3", "--public-key", "ab" * 32),
            "public_key: it belongs to one device, but 3 are named",
        ),
    ):
        done = foltr("device", "enrol", *arguments, cwd=tmp_path)
        assert (done.returncode, named in " ".join(done.stderr.split())) == (2, True), arguments
        assert "Traceback" not in done.stderr
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
    """Its file holds no private key; with --replace another takes its place, and the old one is void."""
    own, newer = SigningKey.generate(), SigningKey.generate()
    enrolled(tmp_path, "--public-key", own.public.hex())
    first = json.loads((tmp_path / "device-7.json").read_text())
    (tmp_path / "newer.pub").write_text(key_to_text(newer.public))
    foltr("device", "enrol", "device-7", "--public-key", "newer.pub", "--replace", cwd=tmp_path, code=0)
    second = json.loads((tmp_path / "device-7.json").read_text())
    for written, key, serial in ((first, own, 1), (second, newer, 2)):
        assert written["signing_key"] is None
        enrolment_key = key_from_text("enrolment_key", written["enrolment_key"])
        enrolment = read_enrolment(base64.b64decode(written["enrolment"]), enrolment_key, "mail", "device-7")
        assert (enrolment.public_key, enrolment.serial) == (key.public, serial)


# --- roster and revoke ----------------------------------------------------------------------------------------


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
    assert rows == [
        ("device-7", "enrolled", 1, None),
        ("device-8", "enrolled", 4, 3),
        ("device-9", "revoked", None, 4),
    ]
    table = foltr("operator", "roster", cwd=tmp_path).stdout
    assert f"Roster {shown['version']} of mail: 2 enrolled" in table
    assert "device-9" in table


def test_a_folder_that_is_no_operators_is_said(tmp_path):
    """Exit code 2 and the command that makes one; nothing is made."""
    for command in ("operator roster", "operator publish", "device revoke a", "rounds deadline 1 --max-time 9"):
        done = foltr(*command.split(), cwd=tmp_path)
        assert (done.returncode, "foltr device enrol" in done.stderr) == (2, True), command
        assert list(tmp_path.iterdir()) == []


async def test_a_revocation_is_published_for_those_who_come_later(mqtt_broker, tmp_path):
    """The roster is retained at the broker, signed, with the version the register has."""
    operator = enrolled(tmp_path, "--broker", mqtt_broker)
    with answering(tmp_path / "foltr-operator").serve() as federator:
        await asyncio.to_thread(foltr, "device", "revoke", "device-7", cwd=tmp_path, code=0)
    message = await heard(operator.broker, [Topics("mail").roster])
    assert message.retained
    roster = read_roster(message.payload, operator.enrolment_public_key, "mail")
    assert [(revoked.client_id, revoked.void_below) for revoked in roster.revoked] == [("device-7", 2)]
    assert [(order.kind, order.client_id) for order in federator.orders.values()] == [("revoke_client", "device-7")]


def test_a_revocation_without_a_broker_is_recorded(tmp_path):
    """Exit code 3, the command that sends it, and a register that has it; saying so again is no error."""
    enrolled(tmp_path, "--broker", f"mqtt://127.0.0.1:{free_port()}")
    for _ in range(2):
        done = foltr("device", "revoke", "device-7", cwd=tmp_path, code=3)
        assert "device-7 is revoked" in done.stderr
        assert "foltr operator send" in done.stderr
        assert "Traceback" not in done.stderr
    rows = json.loads(foltr("operator", "roster", "--json", cwd=tmp_path).stdout)["clients"]
    assert [row["state"] for row in rows] == ["revoked"]


async def test_what_was_recorded_offline_is_published_later(mqtt_broker, tmp_path):
    """With --broker in place of the address that was wrong; publishing twice is the same as once."""
    operator = enrolled(tmp_path, "--broker", f"mqtt://127.0.0.1:{free_port()}")
    foltr("device", "revoke", "device-7", "--offline", cwd=tmp_path, code=0)
    for _ in range(2):
        done = foltr("operator", "publish", "--broker", mqtt_broker, cwd=tmp_path, code=0)
        assert "0 enrolled" in done.stdout
    message = await heard(access_to(mqtt_broker), [Topics("mail").roster])
    assert len(read_roster(message.payload, operator.enrolment_public_key, "mail").revoked) == 1


# --- orders ---------------------------------------------------------------------------------------------------


def ordered(folder, *command):
    """The command, where a federator answers that device-7 has joined."""
    with answering(folder / "foltr-operator", folder / "device-7.json").serve() as federator:
        return foltr(*command, cwd=folder), federator


def test_orders_are_obeyed_and_answered(mqtt_broker, tmp_path):
    """A quarantine, what lifts it, what closes a proposal, and a deadline for the round that is open."""
    enrolled(tmp_path, "--broker", mqtt_broker)
    quarantine = ("device", "quarantine", "device-7")
    orders = (
        ((*quarantine, "--reason", "flips signs"), "quarantine_client", "device-7 of mail is in quarantine"),
        ((*quarantine, "--lift"), "lift_quarantine", "device-7 of mail is out of quarantine"),
        ((*quarantine, "--dismiss"), "dismiss_proposals", "device-7 of mail is no longer proposed for quarantine"),
        (
            ("rounds", "deadline", "1", "--max-time", "90"),
            "set_deadline",
            "round 1 of mail lasts 90 s from its opening",
        ),
    )
    with answering(tmp_path / "foltr-operator", tmp_path / "device-7.json").serve() as federator:
        for number, (words, _, said) in enumerate(orders, 1):
            assert f"Order {number} is obeyed: {said}" in foltr(*words, cwd=tmp_path, code=0).stdout
    assert [order.kind for order in federator.orders.values()] == [kind for _, kind, _ in orders]
    assert [order.client_id for order in federator.orders.values()] == ["device-7"] * 3 + [None]
    assert federator.state.round.closes_at == 1_090.0


def test_a_refused_order_is_an_error_that_says_why(mqtt_broker, tmp_path):
    """Exit code 1; its number is used up, and it is not sent again."""
    enrolled(tmp_path, "--broker", mqtt_broker)
    done, federator = ordered(tmp_path, "device", "quarantine", "device-77", "--lift")
    assert done.returncode == 1
    assert "refuses order 1: unknown_client, no client of this name has ever joined" in done.stderr
    assert [(order.outcome, order.client_id) for order in federator.orders.values()] == [("refused", None)]
    shown = json.loads(foltr("operator", "orders", "--json", cwd=tmp_path).stdout)["orders"]
    assert [(order["number"], order["state"], order["code"]) for order in shown] == [(1, "refused", "unknown_client")]
    assert "No order waits" in foltr("operator", "send", cwd=tmp_path).stdout


def test_an_order_without_an_answer_is_kept_and_goes_with_the_next(mqtt_broker, tmp_path, monkeypatch):
    """The federator is away: exit code 3, with what is the matter; then all are obeyed, in their order."""
    enrolled(tmp_path, "--broker", mqtt_broker)
    with monkeypatch.context() as away:
        give_up_once(away)
        away = foltr("device", "quarantine", "device-7", "--reason", "flips signs", cwd=tmp_path, code=3)
    told, error = away.stderr.splitlines()
    assert told == "waiting for the federator's answer; the broker has the order; check that the federator runs"
    assert "Order 1 is kept in foltr-operator and sent with the next order" in error
    table = foltr("operator", "orders", cwd=tmp_path).stdout
    assert "quarantine_client" in table
    assert "unanswered" in table
    done, federator = ordered(tmp_path, "device", "quarantine", "device-7", "--lift")
    assert done.returncode == 0, done.stderr
    assert [order.kind for order in federator.orders.values()] == ["quarantine_client", "lift_quarantine"]
    assert all(order.outcome == "obeyed" for order in federator.orders.values())


def test_a_restored_folder_goes_on_above_what_the_federator_knows(mqtt_broker, tmp_path):
    """And says which numbers it has lost; also where the federator is a restored one that has lost them, too."""
    enrolled(tmp_path, "--broker", mqtt_broker)
    folder = tmp_path / "foltr-operator"
    shutil.copytree(folder, tmp_path / "backup")
    deadline = ("rounds", "deadline", "1", "--max-time")
    with answering(folder).serve() as federator:
        for seconds in ("50", "60"):
            foltr(*deadline, seconds, cwd=tmp_path, code=0)
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "backup", folder)
        done = foltr(*deadline, "70", cwd=tmp_path, code=0)
    assert "does not have orders 1 to 2, which the federator knows: was it restored from a backup?" in done.stdout
    assert "Order 3 is obeyed" in done.stdout
    assert (sorted(federator.orders), federator.state.round.closes_at) == ([1, 2, 3], 1_070.0)
    shown = json.loads(foltr("operator", "orders", "--json", cwd=tmp_path).stdout)["orders"]
    assert [(order["number"], order["state"]) for order in shown] == [(1, "lost"), (2, "lost"), (3, "obeyed")]
    with answering(folder).serve() as restored:
        done = foltr(*deadline, "80", cwd=tmp_path, code=0)
    assert "The federator had lost 1 orders" in done.stdout
    assert [order.kind for order in restored.orders.values()] == ["void_order", "void_order", *["set_deadline"] * 2]


def test_a_forgotten_name_is_nowhere_in_the_folder(mqtt_broker, tmp_path):
    """Not in the register, nor in the roster, nor in any order; and it is not enrolled again."""
    enrolled(tmp_path, "--broker", mqtt_broker)
    folder = tmp_path / "foltr-operator"
    foltr("device", "enrol", "another-1", cwd=tmp_path, code=0)
    with answering(folder, tmp_path / "device-7.json", tmp_path / "another-1.json").serve() as federator:
        for command in (
            ("device", "quarantine", "device-7", "--reason", "flips signs"),
            ("device", "revoke", "another-1"),
            ("erasure", "request", "device-7"),
        ):
            done = foltr(*command, cwd=tmp_path, code=0)
        assert "Order 3 is obeyed: device-7 is out of mail. It is erasing" in done.stdout
        again = foltr("device", "enrol", "device-7", "--out", "other.json", cwd=tmp_path)
        assert (again.returncode, "was forgotten, and its name is not used again" in again.stderr) == (2, True)
        named = [path.name for path in folder.rglob("*") if path.is_file() and b"device-7" in path.read_bytes()]
        assert named == []
        # What stands in the place of the orders is taken for them, and forgets in a database that was restored.
        foltr("rounds", "deadline", "1", "--max-time", "50", cwd=tmp_path, code=0)
    assert [order.kind for order in federator.orders.values()][:3] == [
        "quarantine_client",
        "revoke_client",
        "forget_client",
    ]
    with answering(folder, tmp_path / "device-7.json").serve() as restored:
        foltr("rounds", "deadline", "1", "--max-time", "60", cwd=tmp_path, code=0)
    assert [order.kind for order in restored.orders.values()][:3] == ["void_order", "revoke_client", "forget_tombstone"]
    assert not restored.state.members.is_known("device-7")


def test_a_deadline_that_cannot_be_is_refused(tmp_path):
    """It is more than nothing, and at most thirty days; a broker that is away is another exit code."""
    enrolled(tmp_path, "--broker", f"mqtt://127.0.0.1:{free_port()}")
    for seconds in ("0", "-1", "nan", "inf", "2592001"):
        done = foltr("rounds", "deadline", "4", "--max-time", seconds, cwd=tmp_path)
        assert (done.returncode, "max" in done.stderr) == (2, True), seconds
    foltr("rounds", "deadline", "4", "--max-time", "90", cwd=tmp_path, code=3)


# --- a broker that lets in only who was enrolled --------------------------------------------------------------


async def test_an_enrolled_device_gets_in_and_a_revoked_one_is_void(guarded_broker, tmp_path):
    """Enrolled at the running broker, the device reads its inbox; revoked, its password is worthless."""
    operator = ("--operator", str(guarded_broker.operator_dir))
    done = foltr("device", "enrol", "device-7", "device-8", *operator, cwd=tmp_path, code=0)
    assert "SIGHUP" not in done.stdout
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
    assert broker.broker_url == address
    assert broker.username == "device-7"
    done = foltr("device", "enrol", "device-8", "--broker", "mqtt://127.0.0.1:1883", *operator, cwd=tmp_path, code=2)
    assert "mqtts://" in done.stderr
    assert not (tmp_path / "device-8.json").exists()
    if broker.password is not None:
        assert "device-8" not in (guarded_broker.broker_dir / "passwords").read_text()


def test_a_broker_that_is_not_told_is_said(guarded_broker, tmp_path):
    """A stopped broker reads its users when it starts; one elsewhere must be told by somebody."""
    guarded_broker.stop()
    done = foltr("device", "enrol", "device-7", "--operator", str(guarded_broker.operator_dir), cwd=tmp_path, code=0)
    # Certificates are no list that the broker reads.
    assert ("SIGHUP" in done.stdout) == (guarded_broker.service("operator").password is not None)


def test_a_message_the_access_list_forbids_is_no_success(guarded_broker, tmp_path):
    """A broker acknowledges it all the same; that it does not come back is what gives it away."""
    operator = ("--operator", str(guarded_broker.operator_dir))
    foltr("device", "enrol", "device-7", *operator, cwd=tmp_path, code=0)
    broker = device(tmp_path / "device-7.json").broker
    for topic in (Topics("mail").roster, Topics("mail").federator_key):
        assert not publish_once(broker, "device-7", topic, b"forged", retain=True)


def test_a_broker_configured_later_is_made_known_to_the_services(tmp_path):
    """The federator's and the operator's files learn of it at the next enrolment, with the keys they had."""
    enrolled(tmp_path)
    folder = tmp_path / "foltr-operator"
    before = read_credentials(folder / "federator.json", "federator")
    config = ("broker", "config", "--tls", "--out", "broker", "--federation", "mail", "--user", ME)
    done = foltr(*config, cwd=tmp_path, code=0)
    foltr("device", "enrol", "device-8", cwd=tmp_path, code=0)
    after = read_credentials(folder / "federator.json", "federator")
    assert after.broker.username == "@federator"
    assert after.broker.ca is not None
    assert after == before.model_copy(update={"broker": after.broker})
    assert read_credentials(folder / "operator.json", "operator").broker.username == "@operator"
    done = foltr("device", "enrol", "device-9", "--federation", "post", cwd=tmp_path, code=2)
    (folder / "broker.json").unlink()
    done = foltr("device", "enrol", "device-9", cwd=tmp_path, code=2)
    assert "foltr broker config" in done.stderr


# --- how commands reach the broker ----------------------------------------------------------------------------


def test_an_address_takes_all_of_the_access():
    """User, password and certificates come from the fields; those in an address count where there are none."""
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


def test_certificates_for_an_address_without_tls_are_refused():
    """They would protect nothing."""
    with pytest.raises(SettingsError, match="mqtts://"):
        BrokerAddress.of(BrokerAccess(broker_url="mqtt://h", ca="CA"))
    with pytest.raises(SettingsError, match="mqtts://"):
        redirect(BrokerAccess(broker_url="mqtts://h", ca="CA"), "mqtt://h")


def test_another_address_keeps_the_user_unless_it_names_one():
    """With its own user it takes no password of another."""
    access = BrokerAccess(broker_url="mqtt://h", username="u", password="p")  # noqa: S106 (made up)
    assert redirect(access, None) == access
    assert redirect(access, "mqtt://i:5") == access.model_copy(update={"broker_url": "mqtt://i:5"})
    assert redirect(access, "mqtt://v@i") == BrokerAccess(broker_url="mqtt://i:1883", username="v")


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
        ("policy show", "foltr policy new"),
        ("policy publish", "foltr policy new"),
        ("broker authority begin", "foltr broker config --tls"),
    ):
        done = foltr(*command.split(), "--operator", "op", cwd=tmp_path)
        assert f"{hint} --operator op" in done.stdout + done.stderr, command
