"""``device enrol --token``, ``operator desk`` and ``client enrol``, with a real Mosquitto between them."""

import asyncio
import json
import shutil

import pytest
from cli.commands import foltr, foltr_process, start, stop
from cli.silence import give_up_once
from support.broker_links import link_to
from support.servers import ProvisionedMosquitto
from support.waiting import PATIENCE_S, wait_until

from foltr.broker.address import BrokerAddress
from foltr.core.errors import SettingsError
from foltr.core.operator.credentials import read_credentials
from foltr.core.operator.folder import open_authority
from foltr.core.operator.one_time_tokens import read_token
from foltr.core.protocol.enrolment import read_enrolment
from foltr.core.protocol.topics import Topics
from foltr.operations.issued_tokens import read_duration

pytestmark = pytest.mark.usefixtures("broker")


@pytest.fixture
def broker(request, tmp_path):
    """A Mosquitto that lets in only who was enrolled, or has a token; by passwords unless a test says otherwise."""
    server = ProvisionedMosquitto(tmp_path, getattr(request, "param", "passwords"), "mail")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def desks(tmp_path):
    """Start a desk in the folder; those that run are stopped."""
    running = []

    def started(folder="operator", **variables):
        running.append(start("operator", "desk", "--operator", folder, cwd=tmp_path, **variables))
        return running[-1]

    yield started
    for desk in running:
        ended(desk)


def ended(process):
    process.kill()
    if not process.stdout.closed:
        process.communicate()


def made(tmp_path, *names, arguments=()):
    options = ("--token", "--operator", "operator", "--out-dir", "tokens", *arguments)
    return foltr("device", "enrol", *names, *options, cwd=tmp_path, code=0)


def asked(tmp_path, name, *arguments, **options):
    """Run ``foltr client enrol`` with the token of this name."""
    token = ("--token", f"tokens/{name}.token")
    return foltr_process("client", "enrol", *token, *arguments, cwd=tmp_path, **options)


def gives_up(tmp_path, name, said):
    """Run it for two seconds, again where the machine was too busy to reach the broker within them."""
    tried = []

    def has_said():
        tried.append(asked(tmp_path, name, "--wait", "2"))
        return said in tried[-1].stderr

    wait_until(has_said, "it does not say what it waits for")
    assert tried[-1].returncode == 3


def states(tmp_path):
    done = foltr("device", "tokens", "--operator", "operator", "--json", cwd=tmp_path)
    return {row["client_id"]: row["state"] for row in json.loads(done.stdout)["tokens"]}


def serials(tmp_path):
    with open_authority(tmp_path / "operator") as authority:
        return {name: device.serial for name, device in authority.register.enrolled.items()}


async def write_beside(hostile):
    """The access list lets each user write below its own name."""
    async with link_to(BrokerAddress.of(hostile), "hostile") as link:
        await link.wait_connected(PATIENCE_S)
        await link.publish(f"{Topics('mail').root}/tokens/hostile/request", bytes(500), retain=True)


@pytest.mark.parametrize("broker", ["passwords", pytest.param("mtls", marks=pytest.mark.nightly)], indirect=True)
def test_a_device_enrols_itself_and_the_broker_lets_it_in(broker, desks, tmp_path):
    """Its private key is in its own file only; the desk's log names the token, and nobody, nor who writes beside it."""
    made(tmp_path, "till-1")
    (hostile,) = broker.enrol("hostile")
    desk = desks()
    asyncio.run(write_beside(hostile))
    done = asked(tmp_path, "till-1", "--out", "mine.json")
    assert done.returncode == 0, done.stderr
    mine = read_credentials(tmp_path / "mine.json", "device")
    assert (mine.name, mine.federation) == ("till-1", "mail")
    enrolment = read_enrolment(mine.enrolment_bytes, mine.enrolment_public_key, "mail", "till-1")
    assert enrolment.public_key == mine.key.public
    written = [path for folder in ("operator", "broker", "tokens") for path in (tmp_path / folder).rglob("*")]
    assert not any(mine.signing_key.encode() in path.read_bytes() for path in written if path.is_file())
    assert [path.name for path in tmp_path.glob(".*enrolling")] == []
    checked = foltr("doctor", "--credentials", "mine.json", cwd=tmp_path)
    assert "answers as till-1" in checked.stdout
    assert states(tmp_path) == {"till-1": "used"}
    # The device has its answer before the desk knows that it was delivered.
    said = ""
    for line in desk.stdout:
        said += line
        if "enrolment_answered" in line:
            break
    said += stop(desk)[1]
    assert "enrolment_answered" in said
    assert "till-1" not in said
    assert "hostile" not in said


def test_a_token_is_used_once_and_not_after_it_expired(desks, tmp_path):
    """With exit code 1, what it means and what to do, and no file; it expires by the operator's clock."""
    made(tmp_path, "till-1", "till-2")
    for path in (tmp_path / "operator" / "tokens").glob("*.json"):
        record = json.loads(path.read_text())
        if record["client_id"] == "till-2":
            path.write_text(json.dumps({**record, "expires_at": record["expires_at"] - 3601.0}))
    desks()
    assert asked(tmp_path, "till-1").returncode == 0
    for name, code, command in (
        ("till-1", "token_used", "foltr device revoke till-1"),
        ("till-2", "token_expired", "foltr device enrol till-2 --token --replace"),
    ):
        refused = asked(tmp_path, name, "--out", "second.json")
        assert (refused.returncode, code in refused.stderr, command in refused.stderr) == (1, True, True)
        assert not (tmp_path / "second.json").exists()
    assert states(tmp_path) == {"till-1": "used", "till-2": "expired"}
    assert serials(tmp_path) == {"till-1": 1}


def test_a_revoked_token_is_not_even_let_in(tmp_path):
    """The device hears why that may be."""
    made(tmp_path, "till-1")
    foltr("device", "tokens", "--revoke", "till-1", "--operator", "operator", cwd=tmp_path, code=0)
    gives_up(tmp_path, "till-1", "an expired or revoked one cannot connect")
    assert states(tmp_path) == {"till-1": "revoked"}


def test_without_a_desk_a_device_waits_and_says_what_is_missing(desks, tmp_path):
    """Exit code 3; the same command again goes on with the same key."""
    made(tmp_path, "till-1")
    gives_up(tmp_path, "till-1", "foltr operator desk")
    before = json.loads((tmp_path / ".till-1.json.enrolling").read_text())
    desks()
    assert asked(tmp_path, "till-1").returncode == 0
    assert read_credentials(tmp_path / "till-1.json", "device").signing_key == before["signing_key"]


@pytest.mark.parametrize("step", ["token_claimed", "token_enrolled", "token_used"])
def test_a_desk_that_is_killed_anywhere_enrols_the_device_when_it_is_back(desks, tmp_path, step):
    """The device asks on meanwhile; one serial is spent."""
    made(tmp_path, "till-1")
    dying = desks(FOLTR_TEST_FAILPOINTS=f"{step}=kill")
    device = start("client", "enrol", "--token", "tokens/till-1.token", cwd=tmp_path)
    try:
        assert dying.wait(PATIENCE_S) == -9
        desks()
        assert device.wait(PATIENCE_S) == 0
    finally:
        ended(device)
    mine = read_credentials(tmp_path / "till-1.json", "device")
    enrolment = read_enrolment(mine.enrolment_bytes, mine.enrolment_public_key, "mail", "till-1")
    assert enrolment.public_key == mine.key.public
    assert serials(tmp_path) == {"till-1": 1}
    assert "answers as till-1" in foltr("doctor", "--credentials", "till-1.json", cwd=tmp_path).stdout


@pytest.mark.parametrize("step", ["keys_made", "enrolment_answered"])
def test_a_device_that_is_killed_anywhere_is_enrolled_by_the_same_command_again(desks, tmp_path, step):
    """Whether it had asked or not: the key that it had made is the one that counts."""
    made(tmp_path, "till-1")
    desks()
    assert asked(tmp_path, "till-1", FOLTR_TEST_FAILPOINTS=f"{step}=kill").returncode == -9
    assert not (tmp_path / "till-1.json").exists()
    assert asked(tmp_path, "till-1").returncode == 0
    assert serials(tmp_path) == {"till-1": 1}


def test_one_folder_has_one_desk(desks, tmp_path):
    """The second one says who is there."""
    made(tmp_path, "till-1")
    desk = desks()
    assert asked(tmp_path, "till-1").returncode == 0
    second = foltr_process("operator", "desk", "--operator", "operator", cwd=tmp_path, code=1)
    assert "throw each other out" in second.stderr
    assert desk.poll() is None


def test_an_older_copy_of_the_folder_lets_nobody_use_a_token_again(desks, tmp_path):
    """The broker has what the desk retained; a token that is made afterwards is good."""
    made(tmp_path, "till-1")
    shutil.copytree(tmp_path / "operator", tmp_path / "copy")
    desk = desks()
    assert asked(tmp_path, "till-1").returncode == 0
    stop(desk)
    shutil.rmtree(tmp_path / "operator")
    (tmp_path / "copy").rename(tmp_path / "operator")
    restored = desks()
    again = asked(tmp_path, "till-1", "--out", "second.json")
    assert again.returncode == 1
    assert "token_revoked" in again.stderr
    made(tmp_path, "till-2")
    assert asked(tmp_path, "till-2").returncode == 0
    assert serials(tmp_path) == {"till-2": 2}
    assert "operator_folder_outdated" in stop(restored)[1]


def test_another_enrolment_key_revokes_tokens(desks, tmp_path, monkeypatch):
    """Who has one knows the former key, and would wait for an answer that it can believe: it is not let in."""
    give_up_once(monkeypatch)
    made(tmp_path, "till-1")
    foltr("operator", "rotate-key", "--operator", "operator", cwd=tmp_path, code=3)
    assert states(tmp_path) == {"till-1": "revoked"}
    gives_up(tmp_path, "till-1", "revoked one cannot connect")
    desks()
    made(tmp_path, "till-2")
    assert asked(tmp_path, "till-2").returncode == 0


@pytest.mark.parametrize("broker", ["passwords", pytest.param("mtls", marks=pytest.mark.nightly)], indirect=True)
def test_a_desk_goes_on_while_keys_and_authorities_are_replaced(broker, desks, tmp_path, monkeypatch):
    """It answers with the next enrolment key; a token outlives the broker's certificate."""
    give_up_once(monkeypatch)
    made(tmp_path, "till-1")
    foltr("broker", "renew", "--operator", "operator", cwd=tmp_path, code=0)
    desk = desks()
    assert asked(tmp_path, "till-1").returncode == 0
    for step in ("begin", "switch"):
        foltr("broker", "authority", step, "--operator", "operator", cwd=tmp_path, code=0)
    broker.stop()
    broker.start()
    made(tmp_path, "till-2")
    assert asked(tmp_path, "till-2", FOLTR_TEST_FAILPOINTS="enrolment_answered=kill").returncode == -9
    foltr("operator", "rotate-key", "--operator", "operator", cwd=tmp_path, code=3)
    # An answer that was lost is the same one, and good under the next key, too.
    assert asked(tmp_path, "till-2").returncode == 0
    mine = read_credentials(tmp_path / "till-2.json", "device")
    keys = read_credentials(tmp_path / "operator" / "federator.json", "federator").operator_keys
    assert read_enrolment(mine.enrolment_bytes, keys, "mail", "till-2").public_key == mine.key.public
    for name in ("till-3", "till-4"):
        made(tmp_path, name)
        assert asked(tmp_path, name).returncode == 0
    assert serials(tmp_path) == {"till-1": 1, "till-2": 2, "till-3": 3, "till-4": 4}
    assert "operator_folder_outdated" not in stop(desk)[1]


def test_replace_gives_a_device_another_key_by_a_token(desks, tmp_path):
    """Without it neither an enrolled name nor one with an open token gets another; the first token is void."""
    made(tmp_path, "till-1")
    again = ("device", "enrol", "till-1", "--token", "--operator", "operator", "--out-dir", "other")
    assert "has an open token" in foltr(*again, cwd=tmp_path, code=2).stderr
    desks()
    assert asked(tmp_path, "till-1").returncode == 0
    assert "--replace" in foltr(*again, cwd=tmp_path, code=2).stderr
    foltr(*again, "--replace", cwd=tmp_path, code=0)
    foltr_process("client", "enrol", "--token", "other/till-1.token", "--out", "newer.json", cwd=tmp_path, code=0)
    assert serials(tmp_path) == {"till-1": 2}


def test_replicas_enrol_themselves_each_with_a_token_that_no_other_has(desks, tmp_path):
    """Three start at once with two tokens: two are devices, the third says what the operator can do."""
    made(tmp_path, "till", arguments=("--count", "2"))
    desks()
    slots = tmp_path / "slots"
    arguments = ("client", "run", "--slots", "slots", "--tokens", "tokens", "--data", "synthetic")
    replicas = [start(*arguments, cwd=tmp_path) for _ in range(3)]
    try:
        wait_until(
            lambda: (
                sum(replica.poll() is None for replica in replicas) == 2
                and len([*slots.glob("*/credentials.json")]) == 2
            )
        )
        (left,) = [replica for replica in replicas if replica.poll() is not None]
        said, _ = left.communicate()
        assert left.returncode == 2
        assert "foltr device enrol CLIENT --token" in said
    finally:
        for replica in replicas:
            ended(replica)
    assert sorted(path.parent.name for path in slots.glob("*/credentials.json")) == ["till-0001", "till-0002"]


def test_a_token_file_that_others_can_read_is_refused(tmp_path):
    """And one that is none is named without showing what is in it."""
    made(tmp_path, "till-1")
    path = tmp_path / "tokens" / "till-1.token"
    assert (path.stat().st_mode & 0o777) == 0o600
    secret = read_token(path).token_key
    path.chmod(0o644)
    assert "chmod 600" in asked(tmp_path, "till-1").stderr
    path.chmod(0o600)
    path.write_text(path.read_text().replace('"federation"', '"federations"'))
    done = asked(tmp_path, "till-1")
    assert done.returncode == 2
    assert "is not what `foltr device enrol --token` writes" in done.stderr
    assert secret not in done.stderr


def test_wrong_words_make_no_token(tmp_path):
    """Exit code 2, and no file; durations are numbers with a unit, and nothing is guessed."""
    for option, value in (("expires", "soon"), ("expires", "31d"), ("public-key", "ab" * 32)):
        words = ("--token", "--federation", "mail", f"--{option}", value)
        said = foltr("device", "enrol", "till-1", *words, cwd=tmp_path, code=2).stderr
        assert option.replace("public-key", "token") in said, value
        assert list(tmp_path.rglob("*.token")) == []
    assert [read_duration(text) for text in ("90s", "30m", "1h", "7d")] == [90.0, 1800.0, 3600.0, 604_800.0]
    for text in ("1", "h", "-1h", "1.5h", "1w", "1h ", "9999999s"):
        with pytest.raises(SettingsError, match="expires"):
            read_duration(text)
