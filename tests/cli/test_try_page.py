"""docs/try.md, the first ten minutes: its commands, as they stand there, from nothing to a receipt."""

import sqlite3
from contextlib import closing

from cli.commands import LONG_LEASES, foltr_process, start, stop
from cli.snippets import blocks, with_variables
from support.servers import free_port
from support.waiting import wait_until

LASTING = (["foltr", "broker"], ["foltr", "federator"], ["foltr", "client"])


def test_the_first_ten_minutes(tmp_path):
    """Rounds complete, somebody is forgotten, and the receipt is right; what ran in a terminal ends well."""
    port = free_port()
    access = {"FOLTR_BROKER_URL": f"mqtt://127.0.0.1:{port}", "FOLTR_LOG_LEVEL": "warning", **LONG_LEASES}
    running = []
    printed = {}
    try:
        for line in filter(None, "\n".join(blocks("docs/try.md", "sh")).splitlines()):
            words, variables = with_variables(line)
            if words[0] == "sqlite3":
                assert len(query(tmp_path / "foltr.sqlite", words[2])) == 5
            elif words[:2] in LASTING:
                there = ("--port", str(port)) if words[1] == "broker" else ()
                running.append(start(*words[1:], *there, cwd=tmp_path, **access, **variables))
                if words[1] == "client":
                    wait_for_rounds(tmp_path / "foltr.sqlite", 6)
            else:
                done = foltr_process(*words[1:], cwd=tmp_path, **access, code=0)
                printed[" ".join(words[1:3])] = done.stdout
    finally:
        ended = [stop(process) for process in reversed(running)]
    assert [code for code, _ in ended] == [0, 0, 0], ended
    assert "device-0002" not in printed["device list"]
    assert "done" in printed["erasure list"]


def wait_for_rounds(database, n_rounds):
    counted = "SELECT count(*) FROM rounds WHERE state = 'completed'"
    wait_until(lambda: query(database, counted)[0][0] >= n_rounds, "the devices do not learn")


def query(database, sql):
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(sql).fetchall()
