"""A federation with secure sums as docs/privacy.md sets it up: every process a command, with a real Mosquitto."""

import contextlib
import getpass
import json
import shlex
import shutil
import sqlite3
import subprocess

import pytest
from cli.commands import LATE_RECEIPTS, foltr_process, start, stop
from cli.snippets import blocks
from support.servers import accepts, free_port
from support.waiting import PATIENCE_S, wait_until

ROUNDS, CLIENTS = 3, 4


def commands():
    """Those of the section, in order."""
    block = next(one for one in blocks("docs/privacy.md", "sh") if "foltr federator run" in one)
    return [shlex.split(line) for line in block.splitlines()]


@contextlib.contextmanager
def mosquitto(folder, port):
    """The broker that was configured in ``folder``."""
    program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        pytest.skip("no mosquitto")
    process = subprocess.Popen([program, "-c", "mosquitto/mosquitto.conf"], cwd=folder)
    try:
        wait_until(lambda: accepts(port))
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def test_the_federation_of_the_document_sees_sums_only(tmp_path):
    """All rounds make models that follow from what is stored, which is no update; devices have paid for it."""
    # Changed are the port, the user, who may read the test's folder, and the data set, which needs no network.
    (_, *configure), (program, *_), *rest = commands()
    port = free_port()
    foltr_process(*configure, "--port", str(port), "--user", getpass.getuser(), cwd=tmp_path, code=0)
    assert program == "mosquitto"
    with mosquitto(tmp_path, port):
        assert "equal" in run_in_order([words for _, *words in rest], tmp_path)
    with sqlite3.connect(tmp_path / "mail.sqlite") as database:
        states = database.execute("select state from rounds order by number").fetchall()
        updates = database.execute("select count(*) from update_bodies").fetchone()
    assert states == [("completed",)] * ROUNDS
    assert updates == (0,)
    for number in range(1, CLIENTS + 1):
        store = tmp_path / f"mail-device-{number:04}.sqlite"
        spent = json.loads(foltr_process("privacy", "budget", "--store", store, "--json", cwd=tmp_path).stdout)
        assert spent["participations"] == ROUNDS


def run_in_order(all_words, folder) -> str:
    """Run commands, the lasting ones in the background; returns what the last one printed."""
    helpers, others = [], []
    try:
        for words in all_words:
            if words[:2] == ["rounds", "replay"]:
                for process in others:
                    process.wait(PATIENCE_S)
            if "run" in words[:2]:
                lasting = helpers if words[0] == "helper" else others
                lasting.append(start(*words, cwd=folder, FOLTR_DATASET="synthetic", **LATE_RECEIPTS))
            else:
                done = foltr_process(*words, cwd=folder, code=0)
    finally:
        ended = [stop(process) for process in (*others, *helpers)]
    assert [code for code, _ in ended] == [0] * len(ended), ended
    return done.stdout
