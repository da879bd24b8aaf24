"""docs/brokers.md: its commands find out whether workers can be used."""

import shlex

import pytest
from cli.commands import foltr
from cli.snippets import blocks
from own_servers import provisioned


@pytest.mark.slow
def test_the_commands_of_the_page_try_a_broker(tmp_path):
    """Two workers are let in at a Mosquitto with users, and share."""
    server = provisioned(tmp_path, "passwords")
    (tmp_path / "foltr-operator").symlink_to(server.operator_dir)
    assert foltr("device", "enrol", "device-1", cwd=tmp_path).returncode == 0
    assert foltr("db", "upgrade", cwd=tmp_path).returncode == 0
    server.start()
    said = []
    try:
        for line in "".join(blocks("docs/brokers.md", "sh")).splitlines():
            done = foltr(*shlex.split(line)[1:], cwd=tmp_path)
            assert done.returncode == 0, (line, done.stdout, done.stderr)
            said.append(done.stdout)
    finally:
        server.stop()
    assert "messages to one worker arrived once each" in said[2]
    assert "2 workers (20, 20) arrived once" in said[3]
