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

import pytest
from cli.commands import foltr, start, stop
from support.answering_federator import answering
from support.databases import migrated_sqlite, open_migrated
from support.servers import free_port
from support.waiting import PATIENCE_S

from foltr.broker.address import BrokerAddress
from foltr.broker.link import MqttLink
from foltr.cli.doctor import checks_database
from foltr.cli.doctor.checks import Finding, State, days_left
from foltr.core.operator.credentials import read_credentials
from foltr.core.protocol.announcements import RoundAnnouncement
from foltr.core.protocol.codec import encode
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.topics import Topics
from foltr.core.protocol.trainings import PdgdTraining
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
        assert connection.execute("SELECT count(*) FROM federations").fetchone() == (1,)
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


def test_every_role_is_looked_at_as_itself(guarded, tmp_path):
    """Device, helper, operator, federator and worker get in, write what they must, and not what is another's."""
    db, operator = migrated_sqlite(tmp_path / "f.sqlite"), ("--operator", str(guarded.operator_dir))
    foltr("helper", "enrol", "north", *operator, cwd=tmp_path, code=0)
    foltr("broker", "worker", "1", *operator, cwd=tmp_path, code=0)
    for user, role, path in (
        (DEVICE, "device", tmp_path / f"{DEVICE}.json"),
        ("@helper.north", "helper", tmp_path / "north.json"),
        ("@operator", "operator", guarded.operator_dir / "operator.json"),
        ("@federator", "federator", guarded.operator_dir / "federator.json"),
        # The leader announces the anchor: that a worker may not is no sign of an old access list.
        ("@ingest.1", "federator", tmp_path / "worker-1.json"),
    ):
        found = doctor("--credentials", str(path), "--db", db)
        assert found["broker"] == ("ok", found["broker"][1])
        assert f"as {user}" in found["broker"][1]
        assert found["access list"][0] == "ok", found["access list"]
        assert found["subscriptions"][0] == "ok", found["subscriptions"]
        assert "TLSv1" in found["tls"][1]
        assert "issued by 'foltr mail'" in found["tls"][1]
        assert found["authority"][0] == "ok"
        assert ("client certificate" in found) == (read_credentials(path, role).broker.certificate is not None)
        if role == "device":
            assert "serial 1" in found["enrolment"][1]
    # A device needs no database, so the default one is not missed.
    assert doctor("--credentials", f"{DEVICE}.json", cwd=tmp_path)["database"][0] == "absent"


def test_another_federators_announcement_and_a_revocation_are_problems(guarded, tmp_path):
    """Devices ignore the first; the broker lets in neither the password nor the certificate of who was revoked."""
    credentials, topic = ("--credentials", str(tmp_path / f"{DEVICE}.json")), Topics("mail").round
    _publish(guarded, topic, encode(announcement(3, time.time()), topic, 1, SigningKey.generate()))
    assert "not signed by the federator" in doctor(*credentials, expected=1)["federation"][1]
    with answering(guarded.operator_dir).serve():
        foltr("device", "revoke", DEVICE, "--operator", str(guarded.operator_dir), code=0)
    found = doctor(*credentials, expected=1)
    refused = "our client certificate" if "client certificate" in found else "this user"
    assert f"refuses {refused}" in found["broker"][1]


def _publish(guarded, topic: str, payload: bytes) -> None:
    """As the broker would retain it from the federator, who may not read it back."""

    async def publish() -> None:
        address = BrokerAddress.of(guarded.service("federator"))
        link = MqttLink(address, client_id="@federator", subscriptions=[], on_message=print, persistent=False)
        async with link:
            await link.wait_connected(PATIENCE_S)
            await link.publish(topic, payload, retain=True)

    asyncio.run(publish())


def test_what_the_brokers_files_lack_is_a_problem(guarded, tmp_path):
    """An access list of another federation or an older foltr, and any subscription granted: what mends it is named."""
    db, operator = migrated_sqlite(tmp_path / "f.sqlite"), guarded.operator_dir
    acl, config, device = guarded.broker_dir / "acl", guarded.broker_dir / "mosquitto.conf", tmp_path / f"{DEVICE}.json"
    for file, spoiled, credentials, what, said in (
        (acl, acl.read_text().replace("mail/clients", "post/clients"), device, "access list", "foltr/v1/mail"),
        (acl, lines_without(acl, "/anchor"), operator / "federator.json", "access list", "@federator may not write "),
        (acl, lines_without(acl, "/operator-key"), operator / "operator.json", "access list", "mail/operator-key"),
        (config, lines_without(config, "plugin"), device, "subscriptions", ""),
    ):
        whole = file.read_text()
        file.write_text(spoiled)
        guarded.stop()
        guarded.start()
        state, detail = doctor("--credentials", str(credentials), "--db", db, expected=1)[what]
        assert (state, said in detail) == ("problem", True), detail
        assert "foltr broker config" in detail
        file.write_text(whole)


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
    path.chmod(0o600)
    assert "'post'" in doctor("--credentials", str(path), "--federation", "post", expected=1)["credentials"][1]


def _change(path: Path, **fields) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def lines_without(acl, part: str) -> str:
    return "".join(line for line in acl.read_text().splitlines(keepends=True) if part not in line)


def test_the_days_a_certificate_has_left():
    """A month is time enough to make another."""
    for days, state in ((-1, "problem"), (29, "warning"), (31, "ok")):
        assert days_left("CN=x", time.time() + (days + 0.01) * 86_400).state == state


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
