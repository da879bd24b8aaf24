"""``foltr doctor`` finds what is wrong and says what to do."""

import json

from cli.commands import foltr
from cli.test_main import free_port


def test_all_is_well_with_a_broker_and_an_upgraded_database(mosquitto_server, tmp_path):
    """A message goes through the broker and back, the tables are there: exit code 0."""
    options = ("--broker", mosquitto_server.url, "--db", f"sqlite:///{tmp_path}/f.sqlite")
    assert foltr("db", "upgrade", *options[2:]).returncode == 0
    done = foltr("doctor", *options, "--json")
    assert done.returncode == 0, done.stdout
    findings = {finding["what"]: finding for finding in json.loads(done.stdout)}
    assert findings["broker"]["state"] == "ok"
    assert findings["database"]["state"] == "ok"


def test_what_is_missing_is_named_with_the_next_step(tmp_path):
    """No broker, and a database without tables: exit code 1 and a command for each."""
    done = foltr("doctor", "--broker", f"mqtt://127.0.0.1:{free_port()}", "--db", f"sqlite:///{tmp_path}/f.sqlite")
    assert done.returncode == 1
    assert "foltr broker run" in done.stdout
    assert "foltr db upgrade" in done.stdout
