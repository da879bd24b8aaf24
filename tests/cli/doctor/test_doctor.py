"""``foltr doctor`` finds what is wrong and says what to do."""

import asyncio
import json
import socket
import sqlite3
import stat
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from cli.commands import foltr, start, stop
from support.answering_federator import answering
from support.databases import migrated_sqlite, open_migrated
from support.servers import ProvisionedMosquitto, free_port
from support.waiting import PATIENCE_S

from foltr.broker.address import BrokerAddress
from foltr.broker.link import MqttLink
from foltr.cli.doctor import checks_broker, checks_database
from foltr.cli.doctor.checks import Finding, State, days_left, run
from foltr.cli.doctor.checks_broker import ANNOUNCED
from foltr.core.operator.credentials import Credentials, read_credentials
from foltr.core.protocol.announcements import ModelAnnouncement, RoundAnnouncement
from foltr.core.protocol.codec import encode
from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.topics import Topics
from foltr.core.protocol.trainings import LinearRankerSpec, PdgdTraining
from foltr.storage.arrivals import commit_batch
from foltr.storage.federations import claim_federation, create_federation
from foltr.storage.keys import KeyStore
from foltr.storage.records import Batch, MembershipChange, NewUpdate, RoundOpening
from foltr.storage.rounds import open_round

DEVICE = "device-7"


@pytest.fixture
def guarded(guarded_broker, tmp_path):
    """A Mosquitto with TLS and access control, and device-7's credentials in ``tmp_path``."""
    operator = ("--operator", guarded_broker.operator_dir)
    foltr("device", "enrol", DEVICE, "--privacy", "secure", *operator, cwd=tmp_path, code=0)
    return guarded_broker


def doctor(*options: str, expected: int = 0, **more):
    """The findings by what was looked at, as (state, detail)."""
    done = foltr("doctor", *options, "--json", code=expected, **more)
    return {finding["what"]: (finding["state"], finding["detail"]) for finding in json.loads(done.stdout)}


def announcement(number: int, opened_at: float, *, open_: bool = True, federation: str = "mail") -> RoundAnnouncement:
    return RoundAnnouncement(
        federation=federation,
        round=number,
        open=open_,
        base_version=0,
        base_hash=bytes(16),
        withdraws_below=0,
        opened_at=opened_at,
        closes_at=opened_at + 600,
        training=PdgdTraining(),
    )


# --- without credentials --------------------------------------------------------------------------------------


def test_all_is_well_with_a_broker_and_an_upgraded_database(mqtt_broker, migrated_url):
    """A message goes through the broker and back, the tables are there and can be written: exit code 0."""
    options = ("--broker", mqtt_broker, "--db", migrated_url)
    found = doctor(*options)
    assert {found[what][0] for what in ("foltr", "broker", "database", "database writes")} == {"ok"}
    assert "schema version 1" in found["foltr"][1]
    assert found["access list"][0] == "warning"
    assert "anyone can write" in found["access list"][1]
    assert found["tls"][0] == "absent"
    if migrated_url.startswith("sqlite"):
        assert "are free" in found["disk"][1]
    else:
        assert found["bodies"] == ("ok", "each one is an update's")


def test_what_is_missing_is_named_with_the_next_step(tmp_path):
    """No broker, and a database without tables: exit code 1 and a command for each."""
    db = f"sqlite:///{tmp_path}/f.sqlite"
    done = foltr("doctor", "--broker", f"mqtt://127.0.0.1:{free_port()}", "--db", db, code=1)
    assert "foltr broker run" in done.stdout
    assert "foltr db upgrade" in done.stdout
    sqlite3.connect(tmp_path / "f.sqlite").close()
    assert "foltr db upgrade" in foltr("doctor", "--db", db).stdout


def test_looking_stores_nothing(tmp_path):
    """Neither the trial write nor the messages leave a row behind."""
    db = migrated_sqlite(tmp_path / "f.sqlite")
    foltr("doctor", "--db", db)
    connection = sqlite3.connect(tmp_path / "f.sqlite")
    try:
        assert connection.execute("SELECT count(*) FROM federations").fetchone() == (0,)
    finally:
        connection.close()


def test_a_federator_passes_over_what_the_doctor_sends(mosquitto_server, tmp_path):
    """A running federator of the same federation stores no event and no client for it."""
    db = migrated_sqlite(tmp_path / "f.sqlite")
    options = ("--broker", mosquitto_server.url, "--db", db)
    federator = start("federator", "run", *options, "--features", "4", "--allow-unsigned", cwd=tmp_path)
    try:
        found = eventually_announced(*options)
    finally:
        code, output = stop(federator)
    assert code == 0, output
    assert "round 1 of default is open" in found["federation"][1]
    assert found["federator"][0] == "ok", found["federator"]
    connection = sqlite3.connect(tmp_path / "f.sqlite")
    try:
        assert connection.execute("SELECT kind FROM events").fetchall() == [("federator_started",)]
        assert connection.execute("SELECT * FROM clients").fetchall() == []
    finally:
        connection.close()


def eventually_announced(*options: str):
    """The federator announces its round first and sends its first heartbeat after it: wait for both."""
    while "federator" not in (found := doctor(*options)) or "no heartbeat" in found["federator"][1]:
        pass
    return found


def test_a_password_in_the_clear_is_a_problem():
    """Except on this machine, which it does not leave."""
    found = doctor("--broker", "mqtt://u:secret@broker.invalid", expected=1)
    assert found["tls"][0] == "problem"
    assert "mqtts://" in found["tls"][1]
    assert not any("secret" in detail for _, detail in found.values())
    assert doctor("--broker", f"mqtt://u:secret@127.0.0.1:{free_port()}", expected=1)["tls"][0] == "absent"
    assert doctor("--broker", "mqtt://broker.invalid", expected=1)["tls"][0] == "warning"


# --- with credentials -----------------------------------------------------------------------------------------


def test_every_role_is_looked_at_as_itself(guarded, tmp_path):
    """Device, helper, operator and federator get in, write what they must, and not what is another's."""
    db = migrated_sqlite(tmp_path / "f.sqlite")
    foltr("helper", "enrol", "north", "--operator", str(guarded.operator_dir), cwd=tmp_path, code=0)
    files = {DEVICE: tmp_path / f"{DEVICE}.json", "@helper.north": tmp_path / "north.json"}
    files |= {f"@{role}": guarded.operator_dir / f"{role}.json" for role in ("operator", "federator")}
    for user, path in files.items():
        found = doctor("--credentials", str(path), "--db", db)
        assert found["broker"] == ("ok", found["broker"][1])
        assert f"as {user}" in found["broker"][1]
        assert found["access list"][0] == "ok", found["access list"]
        assert found["subscriptions"][0] == "ok", found["subscriptions"]
        assert "TLSv1" in found["tls"][1]
        assert "issued by 'foltr mail'" in found["tls"][1]
        assert found["authority"][0] == "ok"
        assert ("client certificate" in found) == (read_credentials(path, _role(user)).broker.certificate is not None)
    assert "serial 1" in doctor("--credentials", str(files[DEVICE]))["enrolment"][1]
    # A device needs no database, so the default one is not missed.
    assert doctor("--credentials", str(files[DEVICE]), cwd=tmp_path)["database"][0] == "absent"


def _role(user: str) -> str:
    return user.removeprefix("@").partition(".")[0] if user.startswith("@") else "device"


def test_a_revoked_device_is_told(guarded, tmp_path):
    """By the broker, which lets it in neither with its password nor with its certificate."""
    federator = read_credentials(guarded.operator_dir / "federator.json", "federator")
    topic = Topics("mail").round
    with_key = encode(announcement(3, time.time()), topic, 1, federator.key)
    _publish(guarded, topic, with_key)
    with answering(guarded.operator_dir).serve():
        foltr("device", "revoke", DEVICE, "--operator", str(guarded.operator_dir), code=0)
    found = doctor("--credentials", str(tmp_path / f"{DEVICE}.json"), expected=1)
    if "client certificate" in found:
        assert "refuses our client certificate" in found["broker"][1]
    else:
        assert "refuses this user" in found["broker"][1]


def _publish(guarded, topic: str, payload: bytes) -> None:
    """As the broker would retain it from the federator, who may not read it back."""

    async def publish() -> None:
        address = BrokerAddress.of(guarded.service("federator"))
        link = MqttLink(address, client_id="@federator", subscriptions=[], on_message=print, persistent=False)
        async with link:
            await link.wait_connected(PATIENCE_S)
            await link.publish(topic, payload, retain=True)

    asyncio.run(publish())


def test_an_announcement_of_another_federator_is_a_problem(guarded, tmp_path):
    """Devices would ignore it, so somebody should know."""
    topic = Topics("mail").round
    _publish(guarded, topic, encode(announcement(3, time.time()), topic, 1, SigningKey.generate()))
    found = doctor("--credentials", str(tmp_path / f"{DEVICE}.json"), expected=1)
    assert "not signed by the federator" in found["federation"][1]


def test_an_access_list_of_another_federation_is_a_problem(guarded, tmp_path):
    """What the device needs is refused, and the command that mends it is named."""
    acl = guarded.broker_dir / "acl"
    acl.write_text(acl.read_text().replace("foltr/v1/mail/clients", "foltr/v1/post/clients"))
    guarded.stop()
    guarded.start()
    found = doctor("--credentials", str(tmp_path / f"{DEVICE}.json"), expected=1)
    assert found["access list"][0] == "problem"
    assert "foltr broker config" in found["access list"][1]


def test_a_broker_that_grants_any_subscription_is_a_problem(guarded, tmp_path):
    """One device could end it; the command that mends that is named."""
    config = guarded.broker_dir / "mosquitto.conf"
    config.write_text(lines_without(config, "plugin"))
    guarded.stop()
    guarded.start()
    state, detail = doctor("--credentials", str(tmp_path / f"{DEVICE}.json"), expected=1)["subscriptions"]
    assert (state, "foltr broker config --force" in detail) == ("problem", True)


def test_an_access_list_that_lacks_a_topic_is_found(guarded, tmp_path):
    """By the federator, whom the broker refuses."""
    db, federator = migrated_sqlite(tmp_path / "f.sqlite"), str(guarded.operator_dir / "federator.json")
    assert doctor("--credentials", federator, "--db", db)["access list"][0] == "ok"
    acl = guarded.broker_dir / "acl"
    acl.write_text(lines_without(acl, "/anchor"))
    guarded.stop()
    guarded.start()
    state, detail = doctor("--credentials", federator, "--db", db, expected=1)["access list"]
    assert (state, "@federator may not write foltr/v1/mail/anchor" in detail) == ("problem", True)
    assert "foltr broker config --force" in detail


def test_a_worker_is_not_asked_for_the_anchor(guarded, tmp_path):
    """The leader announces it: that a worker may not is no sign of an old access list."""
    foltr("broker", "worker", "1", "--operator", str(guarded.operator_dir), cwd=tmp_path, code=0)
    db = migrated_sqlite(tmp_path / "f.sqlite")
    for credentials in (guarded.operator_dir / "federator.json", tmp_path / "worker-1.json"):
        assert doctor("--credentials", str(credentials), "--db", db)["access list"][0] == "ok"


def test_a_broker_with_another_certificate_is_a_problem(guarded, tmp_path):
    """Not trusted, and by another name: both before anything secret is sent."""
    path = tmp_path / f"{DEVICE}.json"
    guarded.provision("broker.example")
    guarded.stop()
    guarded.start()
    found = doctor("--credentials", str(path), expected=1)
    assert "another host" in found["tls"][1]
    assert found["broker"][0] == "problem"
    other = json.loads(path.read_text())
    other["broker"]["ca"] = None
    path.write_text(json.dumps(other))
    assert "not one we trust" in doctor("--credentials", str(path), expected=1)["tls"][1]


def test_what_is_wrong_with_a_credentials_file(tmp_path):
    """Each with what to do; the broker is not asked as somebody unknown."""
    broker = f"mqtt://127.0.0.1:{free_port()}"
    foltr("device", "enrol", DEVICE, "--broker", broker, cwd=tmp_path, code=0)
    path = tmp_path / f"{DEVICE}.json"
    text = path.read_text()
    for spoil, what, said in (
        (lambda: _change(path, enrolment=None), "enrolment", "foltr device enrol NAME --replace"),
        (lambda: _change(path, signing_key=SigningKey.generate().to_text()), "enrolment", "another key"),
        (lambda: _change(path, name="device-8"), "enrolment", "foltr device enrol NAME --replace"),
        (lambda: path.write_text("{}"), "credentials", "foltr device enrol"),
        (lambda: path.chmod(0o644), "credentials", "chmod 600"),
        (path.unlink, "credentials", "foltr device enrol"),
    ):
        spoil()
        found = doctor("--credentials", str(path), expected=1)
        assert (found[what][0], said in found[what][1]) == ("problem", True), found[what]
        assert ("broker" in found) == (what != "credentials")
        path.write_text(text)


def _change(path: Path, **fields) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_credentials_of_another_federation_are_a_problem(tmp_path):
    """Two names for one thing: which one was meant?"""
    foltr("device", "enrol", DEVICE, "--federation", "mail", cwd=tmp_path, code=0)
    found = doctor("--credentials", str(tmp_path / f"{DEVICE}.json"), "--federation", "post", expected=1)
    assert "'post'" in found["credentials"][1]


def lines_without(acl, part: str) -> str:
    return "".join(line for line in acl.read_text().splitlines(keepends=True) if part not in line)


def test_an_operator_elsewhere_is_told_by_the_broker_what_it_lacks(tmp_path):
    """Its folder need not know where the list is: the broker refuses what it does not have."""
    server = ProvisionedMosquitto(tmp_path, "passwords", "mail")
    acl, enrolled = server.broker_dir / "acl", ("--operator", server.operator_dir)
    foltr("device", "enrol", "device-7", *enrolled, "--out-dir", server.folder, code=0)
    operator = str(server.operator_dir / "operator.json")
    found = []
    for lacks, code in (("nothing", 0), ("/operator-key", 1)):
        acl.write_text(lines_without(acl, lacks))
        server.start()
        try:
            found.append(doctor("--credentials", operator, expected=code)["access list"])
        finally:
            server.stop()
    assert found[0][0] == "ok"
    state, detail = found[1]
    assert (state, "may not write foltr/v1/mail/operator-key" in detail) == ("problem", True)
    assert "foltr broker config --force" in detail


# --- single checks --------------------------------------------------------------------------------------------


def test_the_days_a_certificate_has_left():
    """A month is time enough to make another."""
    for days, state in ((-1, "problem"), (29, "warning"), (31, "ok")):
        assert days_left("CN=x", time.time() + (days + 0.01) * 86_400).state == state


def visit(credentials: Credentials | None = None, **heard: bytes) -> checks_broker.BrokerUnderCheck:
    from foltr.broker.address import BrokerAddress
    from foltr.broker.link import InboundMessage

    visited = checks_broker.BrokerUnderCheck(BrokerAddress.parse("mqtt://127.0.0.1"), "mail", credentials)
    for name, payload in heard.items():
        topic = getattr(visited.topics, name)
        visited.heard[topic] = InboundMessage(topic, payload, retained=True)
    return visited


async def test_another_schema_version_is_told_in_words():
    """Which side is older, and what to upgrade."""
    payload = encode(announcement(3, time.time()))
    for version, older in ((0, "upgrade the peer"), (2, "upgrade this side")):
        spoken = payload.replace(b"\xa1v\x01", b"\xa1v" + bytes([version]))
        (found,) = await run(ANNOUNCED, visit(round=spoken))
        assert found.state is State.PROBLEM
        assert older in found.detail


async def test_a_model_is_looked_at_even_where_it_is_large():
    """A model announcement of 60,000 features is nearly as large as a message may be."""
    n = 60_000
    model = ModelAnnouncement(
        federation="mail", version=1, ranker=LinearRankerSpec(n_features=n), weights=pack_vector(np.zeros(n))
    )
    heard = {"round": encode(announcement(3, time.time())), "model": encode(model)}
    assert (await run(ANNOUNCED, visit(**heard)))[0].state is State.OK


async def test_little_room_on_the_disk_is_a_warning(tmp_path, monkeypatch):
    """Less than a gibibyte, or than a twentieth."""
    db = migrated_sqlite(tmp_path / "f.sqlite")
    for total, free, state in ((2**40, 2**35, "warning"), (2**33, 2**29, "warning"), (2**34, 2**33, "ok")):
        monkeypatch.setattr(
            checks_database.shutil,
            "disk_usage",
            lambda _, t=total, f=free: SimpleNamespace(total=t, used=t - f, free=f),
        )
        found = {finding.what: finding for finding in await checks_database.check_database(db)}
        assert found["disk"].state == state, found["disk"]


async def test_clients_without_a_data_key_are_named(tmp_path):
    """A restored database has clients that were forgotten since; a folder that was moved away has nobody's key."""
    db, keys = f"sqlite:///{tmp_path}/f.sqlite", tmp_path / "f.sqlite.keys"
    now = datetime.now(UTC)
    async with await open_migrated(db, KeyStore(keys)) as database:
        await create_federation(database, "mail", 1, "linear", bytes(4), now)
        epoch = await claim_federation(database, "mail", 0.0)
        await open_round(database, "mail", epoch, RoundOpening(1, 0, 1, 9, 0.0, 60.0, now, now))
        joined = [MembershipChange(name, "joined", now) for name in "abc"]
        sent = [NewUpdate(1, name, f"u-{name}", 0, 0, 1, 1, "dense_f32", bytes(4), now) for name in "ab"]
        await commit_batch(database, "mail", epoch, Batch(membership=joined, updates=sent))

        async def found() -> Finding:
            return {finding.what: finding for finding in await checks_database.check_database(db)}["data keys"]

        assert (await found()).state is State.OK
        database.keys.destroy("mail", "b")
        finding = await found()
        assert finding.state is State.WARNING
        assert "1 clients have sealed updates and no key" in finding.detail
        assert finding.detail.partition(".keys: ")[2].startswith("b. ")
        keys.chmod(0o755)
        assert (await found()).state is State.PROBLEM
        keys.rename(tmp_path / "elsewhere")
        assert "2 clients have sealed updates and no key" in (await found()).detail


@pytest.mark.parametrize("migrated_url", ["postgresql"], indirect=True)
async def test_a_database_that_cannot_be_written_is_a_problem(migrated_url, postgres_server):
    """A user who may only read is found out without writing."""
    name = migrated_url.rsplit("/", 1)[1]
    postgres_server.sql("DROP ROLE IF EXISTS reader")
    postgres_server.sql("CREATE ROLE reader LOGIN")
    postgres_server.sql("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader", name)
    try:
        findings = await checks_database.check_database(migrated_url.replace("postgres@", "reader@"))
    finally:
        postgres_server.sql("DROP OWNED BY reader", name)
    found = {finding.what: finding for finding in findings}
    assert found["database writes"].state is State.PROBLEM
    assert "permission denied" in found["database writes"].detail


def test_peers_that_say_nothing_are_given_up_on(monkeypatch):
    """The broker and the database, each with what to do."""
    monkeypatch.setattr("foltr.cli.doctor.checks_broker._ANSWER_S", 0.2)
    monkeypatch.setattr("foltr.storage.engines.CONNECT_TIMEOUT_S", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(16)
        there = f"127.0.0.1:{silent.getsockname()[1]}"
        for scheme in ("mqtt", "mqtts"):
            found = doctor("--broker", f"{scheme}://{there}", "--db", f"postgresql://u@{there}/n", expected=1)
            assert found["broker"][0] == found["database"][0] == "problem"
            assert "Start PostgreSQL" in found["database"][1]
