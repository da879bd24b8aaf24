"""What ``foltr doctor --sharing`` says of workers at a broker, and as whom it looks."""

import json

import pytest
from cli.commands import foltr
from own_servers import provisioned

from foltr.broker.sharing import Sharing, SharingTrial
from foltr.cli.doctor.checks import State
from foltr.cli.doctor.checks_sharing import told


@pytest.fixture
def guarded(tmp_path):
    """A Mosquitto with users, two workers' files and a device's beside it."""
    server = provisioned(tmp_path, "passwords")
    server.start()
    commands = [("device", "enrol", "device-1"), ("broker", "worker", "1"), ("broker", "worker", "2")]
    for command in commands:
        done = foltr(*command, "--operator", str(server.operator_dir), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    yield server
    server.stop()


def found(*options, **more):
    """State and words about workers."""
    done = foltr("doctor", "--sharing", "--json", *options, **more)
    about = {each["what"]: (each["state"], each["detail"]) for each in json.loads(done.stdout)}
    return about["ingest workers"]


@pytest.mark.parametrize(
    ("trial", "state", "words"),
    [
        (
            SharingTrial(Sharing.SHARED, 40, (20, 20)),
            State.OK,
            "each of 40 messages to a group of 2 workers (20, 20)",
        ),
        (SharingTrial(Sharing.SHARED, 40, (40,)), State.WARNING, "that several share is not shown"),
        (SharingTrial(Sharing.ONE_TAKES_ALL, 40, (40, 0)), State.WARNING, "all at one"),
        (SharingTrial(Sharing.COPIED, 40, (40, 40), 0, 40), State.WARNING, "arrived more than once"),
        (SharingTrial(Sharing.LOST, 40, (20, 10), 10), State.PROBLEM, "10 of 40 messages"),
        (SharingTrial(Sharing.NONE, 40, (0, 0), 40), State.PROBLEM, "of 40 messages delivers none"),
        (SharingTrial(Sharing.REFUSED), State.PROBLEM, "refuses the subscription of a group"),
        (SharingTrial(Sharing.UNHEARD), State.PROBLEM, "by a plain subscription either"),
    ],
)
def test_what_was_found_is_said(trial, state, words):
    """Each kind in words that say whether workers may be used, and what to do; a problem where they may not."""
    finding = told(trial)
    assert finding.state is state
    assert words in finding.detail
    assert trial.sharing.may_be_used == (state is not State.PROBLEM)


def test_a_broker_without_users_is_tried_by_two(mqtt_broker):
    """Whoever looks."""
    state, detail = found("--broker", mqtt_broker)
    assert (state, "2 workers (20, 20)" in detail) == ("ok", True)


def test_it_is_tried_unasked_where_workers_are_to_be(mosquitto_server):
    """A leader's settings, or a worker's, say so; with others nothing is sent."""
    for role, is_tried in (("leader", True), ("ingest", True), ("all", False)):
        done = foltr("doctor", "--json", "--broker", mosquitto_server.url, FOLTR_ROLE=role)
        whats = [each["what"] for each in json.loads(done.stdout)]
        assert ("ingest workers" in whats) == is_tried


def test_workers_files_are_whom_it_is_tried_as(guarded):
    """The leader's session is left alone; a worker alone, or two; another part has no say in it."""
    home = guarded.folder
    leader = ("--credentials", str(guarded.operator_dir / "federator.json"))
    both = ("--worker", str(home / "worker-1.json"), "--worker", str(home / "worker-2.json"))
    for who in (leader, ("--credentials", str(home / "device-1.json"))):
        state, detail = found(*who)
        assert (state, "not tried" in detail) == ("warning", True)
    state, detail = found("--credentials", str(home / "worker-1.json"))
    assert (state, "messages to one worker" in detail) == ("warning", True)
    assert found(*leader, *both)[0] == "ok"
    assert found("--credentials", str(home / "worker-1.json"), *both)[0] == "ok"


def test_a_worker_is_not_asked_for_the_anchor(guarded):
    """The leader announces it: that a worker may not is no sign of an old access list."""
    federator, worker = guarded.operator_dir / "federator.json", guarded.folder / "worker-1.json"
    about = {}
    for credentials in (federator, worker):
        done = foltr("doctor", "--json", "--credentials", str(credentials))
        about[credentials] = {each["what"]: each["state"] for each in json.loads(done.stdout)}
    assert about[federator]["access list"] == "ok"
    assert about[worker]["access list"] == "ok"


def test_what_cannot_be_tried_is_one_line(guarded):
    """The leader's own file as a worker's, more servers than workers, or a worker without --sharing."""
    home = guarded.folder
    worker, another = str(home / "worker-1.json"), f"mqtts://127.0.0.1:{guarded.port}"
    look = ("doctor", "--credentials", worker, "--sharing")
    cases = [
        ((*look, "--worker", str(guarded.operator_dir / "federator.json")), "session at the broker would be taken"),
        ((*look, "--server", another), "name more: --worker FILE"),
    ]
    for command, words in cases:
        done = foltr(*command)
        assert (done.returncode, words in done.stdout) == (1, True), done.stdout
    done = foltr("doctor", "--worker", worker)
    assert (done.returncode, "they belong to --sharing" in done.stderr) == (2, True)
