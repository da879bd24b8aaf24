"""A federation with secure sums as docs/privacy.md sets it up: every process a command, with a real Mosquitto."""

import asyncio
import json
import shlex
import sqlite3

import pytest
from cli.commands import foltr_process, start, stop
from cli.test_readme import blocks

pytestmark = pytest.mark.slow

ROUNDS, CLIENTS = 3, 4


def commands():
    """Those of the section, in order."""
    block = next(one for one in blocks("docs/privacy.md", "sh") if "foltr federator run" in one)
    return [shlex.split(line)[1:] for line in block.splitlines()]


async def test_the_federation_of_the_document_sees_sums_only(mosquitto_server, tmp_path):
    """All rounds make models that follow from what is stored, which is no update; devices have paid for it."""
    known = {"FOLTR_BROKER_URL": mosquitto_server.url, "FOLTR_DATASET": "synthetic"}
    helpers, others = [], []
    try:
        for words in commands():
            if words[0] == "replay":
                await asyncio.to_thread(wait_for, others)
            if words[:2] == ["helper", "run"]:
                helpers.append(start(*words, cwd=tmp_path, **known))
            elif words[1] == "run":
                others.append(start(*words, cwd=tmp_path, **known))
            else:
                done = await asyncio.to_thread(foltr_process, *words, cwd=tmp_path, **known)
                assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        assert "equal" in done.stdout
    finally:
        ended = [stop(process) for process in (*others, *helpers)]
    assert [code for code, _ in ended] == [0] * len(ended), ended
    with sqlite3.connect(tmp_path / "mail.sqlite") as database:
        states = database.execute("select state from rounds order by number").fetchall()
        updates = database.execute("select count(*) from updates where body is not null").fetchone()
    assert states == [("completed",)] * ROUNDS
    assert updates == (0,)
    for number in range(1, CLIENTS + 1):
        store = tmp_path / f"mail-device-{number:04}.sqlite"
        spent = json.loads(foltr_process("privacy", "budget", "--store", store, "--json", cwd=tmp_path).stdout)
        assert spent["participations"] == ROUNDS


def wait_for(processes):
    """All end by themselves, after as many rounds as they were asked for."""
    for process in processes:
        process.wait(100)
