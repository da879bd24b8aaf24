"""``foltr broker worker``: a worker's file is the federator's, with a user of the broker of its own."""

import json

from cli.commands import foltr
from support.servers import ProvisionedMosquitto

from foltr.core.operator.credentials import read_credentials


def test_a_worker_has_the_federators_key_and_its_own_way_in(tmp_path):
    """Only its owner may read it; made again, it is of the federator's newest key, and its former password is none."""
    server = ProvisionedMosquitto(tmp_path, "passwords")
    operator = ("--operator", str(server.operator_dir))
    foltr("device", "enrol", "device-1", *operator, cwd=tmp_path, code=0)
    path = tmp_path / "worker-1.json"
    files = []
    for _ in range(2):
        done = foltr("broker", "worker", "1", *operator, "--json", cwd=tmp_path, code=0)
        told = {"federation": "fed", "worker": "1", "file": "worker-1.json", "broker_to_reload": True}
        assert json.loads(done.stdout) == told
        assert path.stat().st_mode & 0o777 == 0o600
        files.append(read_credentials(path, "federator"))
    federator = read_credentials(server.operator_dir / "federator.json", "federator")
    assert files[1].model_copy(update={"name": federator.name, "broker": federator.broker}) == federator
    assert (files[1].name, files[1].broker.username) == ("@ingest.1", "@ingest.1")
    assert files[0].broker.password != files[1].broker.password


def test_where_there_is_nothing_to_write_it_is_said(tmp_path):
    """A broker that lets everybody in, and a federator's file that was moved away."""
    foltr("device", "enrol", "device-1", cwd=tmp_path, code=0)
    assert "workers use federator.json itself" in foltr("broker", "worker", "1", cwd=tmp_path, code=2).stderr
    server = ProvisionedMosquitto(tmp_path, "passwords")
    operator = ("--operator", str(server.operator_dir))
    foltr("device", "enrol", "device-2", *operator, cwd=tmp_path, code=0)
    (server.operator_dir / "federator.json").rename(tmp_path / "moved.json")
    assert "copy federator.json" in foltr("broker", "worker", "1", *operator, cwd=tmp_path, code=2).stderr
    assert "@ingest" not in (server.broker_dir / "acl").read_text()


def test_a_worker_is_let_in_no_more(tmp_path):
    """Its user is gone from the broker's files; what is still to do is said, with the key that its file has."""
    server = ProvisionedMosquitto(tmp_path, "passwords")
    operator = ("--operator", str(server.operator_dir))
    worker = ("broker", "worker", "1", *operator)
    foltr("device", "enrol", "device-1", *operator, cwd=tmp_path, code=0)
    foltr(*worker, cwd=tmp_path, code=0)
    assert "out: " in foltr(*worker, "--remove", "--out", "w.json", cwd=tmp_path, code=2).stderr
    assert "@ingest.1" in (server.broker_dir / "acl").read_text()
    said = foltr(*worker, "--remove", cwd=tmp_path, code=0).stdout
    for words in ("has no access any longer", "foltr federator rotate-key", "SIGHUP"):
        assert words in said
    for file in ("acl", "passwords"):
        assert "@ingest.1" not in (server.broker_dir / file).read_text()
    again = foltr(*worker, "--remove", cwd=tmp_path, code=2)
    assert "has no access to this broker; workers with access: none" in again.stderr
    foltr(*worker, cwd=tmp_path, code=0)
    told = json.loads(foltr(*worker, "--remove", "--json", cwd=tmp_path).stdout)
    assert told == {"federation": "fed", "worker": "1", "is_out": True, "broker_to_reload": True}
