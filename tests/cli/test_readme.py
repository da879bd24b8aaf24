"""The documents do what they say: the README's commands, run as they stand there."""

import shlex
import subprocess
import sys

from cli.commands import PROJECT, environment, foltr, foltr_fresh, start, stop
from cli.snippets import blocks, n_recorded, run_python
from docs.markdown_files import markdown_files, snippets
from support.waiting import PATIENCE_S


def commands_by_hand() -> list[list[str]]:
    """The block that starts a federation by hand, a command a line."""
    block = next(block for block in blocks("README.md", "sh") if "foltr broker run" in block)
    return [shlex.split(line)[1:] for line in block.strip().splitlines()]


def test_a_federation_by_hand_as_in_the_readme(tmp_path, unused_tcp_port):
    """Broker, database, federator, devices and a look at the rounds, each its own process; real loopback ports."""
    commands = commands_by_hand()
    assert [command[:2] for command in commands] == [
        ["broker", "run"],
        ["db", "upgrade"],
        ["device", "enrol"],
        ["federator", "run"],
        ["client", "run"],
        ["rounds", "list"],
    ]
    # The only change to what the README says: a free port, and a data set that needs no network.
    variables = {
        "FOLTR_BROKER_URL": f"mqtt://127.0.0.1:{unused_tcp_port}",
        "FOLTR_DATASET": "synthetic",
        "FOLTR_LOG_LEVEL": "warning",
    }
    broker = start(*commands[0], "--port", str(unused_tcp_port), cwd=tmp_path, **variables)
    federator = None
    try:
        assert foltr_fresh(*commands[1], cwd=tmp_path, **variables).returncode == 0
        assert foltr_fresh(*commands[2], cwd=tmp_path, **variables).returncode == 0
        federator = start(*commands[3], cwd=tmp_path, **variables)
        devices = foltr_fresh(*commands[4], cwd=tmp_path, **variables)
        assert devices.returncode == 0, devices.stderr
        assert "accepted" in devices.stdout
        # All of them: a list has the newest 20, one of which is open.
        listed = foltr_fresh(*commands[5], "--limit", "1000", cwd=tmp_path, **variables)
        assert listed.stdout.count("completed") >= 20
        database = str(tmp_path / "foltr.sqlite")
        for block in blocks("README.md", "sh"):
            for line in block.splitlines():
                if line.startswith("sqlite3"):
                    rows = query(database, shlex.split(line)[2])
                    assert rows, line
    finally:
        codes = [stop(process)[0] for process in (federator, broker) if process is not None]
    assert codes == [0, 0]


def test_the_python_of_the_readme_runs(tmp_path):
    """As it stands, also where no broker is to be had: the click is on disk when it ends."""
    foltr("device", "enrol", "device-7", cwd=tmp_path, code=0)
    (code,) = blocks("README.md", "python")
    run_python(code, tmp_path)
    assert n_recorded(tmp_path / "clicks.sqlite") == 1


def query(database: str, sql: str) -> list[tuple]:
    import sqlite3

    connection = sqlite3.connect(database)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


# The other commands have two words.
SINGLE_WORDS = ("demo", "demo-forget", "demo-secure", "doctor", "methods", "reproduce", "simulate", "status", "sweep")
THREE_WORDS = [["api", "token"]]


def test_every_foltr_command_in_the_documents_exists():
    """Each ``foltr …`` in a code block is a command, and each of its flags is in that command's help."""
    helps: dict[tuple[str, ...], str] = {}
    files = [file for file in markdown_files() if not file.startswith("research/results/")]
    for file in files:
        lines = [line.strip() for snippet in snippets(file) for line in snippet.splitlines()]
        for line in (one.partition(" | ")[0] for one in lines if one.startswith("foltr ")):
            words = shlex.split(line, comments=True)[1:]
            n_words = 3 if words[:2] in THREE_WORDS else 2
            command = tuple(words[:1] if words[0] in SINGLE_WORDS else words[:n_words])
            if command not in helps:
                helps[command] = foltr(*command, "--help").stdout
            assert "Usage" in helps[command], line
            for flag in (word for word in words if word.startswith("--")):
                assert flag in helps[command], line


def test_the_generated_parts_of_the_documents_are_up_to_date():
    """Settings, receipts, transitions and columns in the documents are those of the code."""
    done = subprocess.run(
        [sys.executable, PROJECT / "docs" / "generate.py", "--check"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_device_imports_no_more_than_it_needs():
    """The device SDK brings no SQLAlchemy, numba, SciPy or web framework along, and few modules in all."""
    code = [sys.executable, "-c", "import sys; import foltr.edge_client.client; print(*sys.modules)"]
    done = subprocess.run(code, env=environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    imported = set(done.stdout.split())
    assert imported.isdisjoint({"sqlalchemy", "alembic", "numba", "scipy", "sklearn", "iotcore", "fastapi", "uvicorn"})
    # 739 when this was written, each a file that a device has to find and read before its first list.
    assert len(imported) < 800
