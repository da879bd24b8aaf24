"""The program ``foltr`` that scripts call in tests is to them what the real one is."""

import signal
import subprocess

import pytest
from cli.commands import FOLTR, environment, foltr
from cli.test_main import free_port
from support.foltr_program import prepared_foltr
from support.waiting import PATIENCE_S


@pytest.fixture
def program(tmp_path):
    with prepared_foltr(tmp_path / "bin/foltr"):
        yield tmp_path / "bin/foltr"


def test_its_arguments_streams_and_exit_code_are_those_of_a_command(program, tmp_path):
    """Standard input too; what is wrong is on standard error."""
    options = {"env": environment(), "cwd": tmp_path, "capture_output": True, "text": True}
    told = subprocess.run([program, "--version"], check=False, **options)
    assert (told.returncode, told.stdout, told.stderr) == (0, foltr("--version").stdout, "")
    (tmp_path / "key").write_text("A" * 43 + "=")
    words = ("erasure", "verify", "-", "--key", "key")
    read = subprocess.run([program, *words], input="not a receipt", check=False, **options)
    fresh = subprocess.run([*FOLTR, *words], input="not a receipt", check=False, **options)
    assert (read.returncode, read.stdout, read.stderr) == (fresh.returncode, fresh.stdout, fresh.stderr)
    assert "not a receipt" in read.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_signal_ends_what_it_has_started(program, tmp_path, number, code):
    """In good order, or at once: nobody is left who could print more."""
    db = f"sqlite:///{tmp_path}/f.sqlite"
    assert foltr("db", "upgrade", "--db", db).returncode == 0
    process = subprocess.Popen(
        [program, "federator", "run", "--allow-unsigned", "--db", db, "--broker", f"mqtt://127.0.0.1:{free_port()}"],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert "signatures_disabled" in process.stdout.readline()
    assert "broker_unreachable" in process.stdout.readline()
    process.send_signal(number)
    printed, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code, printed
