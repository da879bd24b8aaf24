"""The operator's guide does what it says: its commands, run in order with a real Mosquitto; no list is incomplete."""

import contextlib
import getpass
import json
import re
import shlex
import shutil
import sqlite3
import subprocess
import tracemalloc
from typing import get_args, get_type_hints

import pytest
from cli.commands import IS_NIGHT, LATE_RECEIPTS, LONG_LEASES, PROJECT, foltr_process, start, stop
from cli.snippets import blocks
from support.history_database import made_history
from support.servers import accepts, free_port
from support.waiting import PATIENCE_S, wait_until

from foltr.cli.method import choose_rule
from foltr.cli.settings import load_settings
from foltr.core.aggregation.rule_spec import read_rule
from foltr.core.protocol.events import FINDINGS, EventKind
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.states import AbandonReason
from foltr.federator.deciding.members import MemberChange

# The pages that go on with one federation, in the order of their commands: whole, or what is below one heading.
WALK_THROUGH = (
    "docs/setup.md",
    "docs/keys.md",
    "docs/backup.md",
    "docs/monitoring.md",
    "docs/robustness.md#quarantine",
    "docs/history.md#replay",
    "docs/erasure.md#forget-a-client",
)


def commands() -> list[list[str]]:
    """Every command of the guide's shell blocks, in order."""
    lines = "\n".join(block for page in WALK_THROUGH for block in blocks(page, "sh")).splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.strip()]


_JOINS = "events WHERE kind = 'client_joined'"
_AWAITING_UPDATES = (
    "rounds WHERE state = 'collecting' AND number = (SELECT max(number) FROM rounds) "
    "AND number NOT IN (SELECT round FROM updates)"
)


class Terminal:
    """Runs the document's commands; only port, user and data set differ, and a certificate may replace a password."""

    def __init__(self, folder, access: str) -> None:
        self._folder = folder
        self._access = access
        self._mosquitto = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
        if self._mosquitto is None:
            pytest.skip("no mosquitto")
        self._port = free_port()
        self._background: list[subprocess.Popen] = []
        self._devices: list[subprocess.Popen] = []
        self.outputs: dict[str, list[str]] = {}

    def run(self, words: list[str]) -> None:
        match words:
            case ["foltr", "broker", "config", *rest]:
                rest = ["--mtls" if word == "--tls" and self._access == "mtls" else word for word in rest]
                more = ("--port", str(self._port), "--user", getpass.getuser())
                self._finished(words, foltr_process("broker", "config", *rest, *more, cwd=self._folder))
            case ["mosquitto", *rest]:
                self._background.append(subprocess.Popen([self._mosquitto, *rest], cwd=self._folder))
                wait_until(lambda: accepts(self._port))
            case ["foltr", "federator", "run", *rest]:
                self._background.append(
                    start("federator", "run", *rest, cwd=self._folder, FOLTR_LOG_LEVEL="warning", **LONG_LEASES)
                )
            case ["foltr", "operator", "desk", *rest]:
                self._background.append(start("operator", "desk", *rest, cwd=self._folder, FOLTR_LOG_LEVEL="warning"))
            case ["foltr", "client", "run", *rest]:
                self._devices.append(
                    start("client", "run", *rest, cwd=self._folder, FOLTR_DATASET="synthetic", **LATE_RECEIPTS)
                )
            case ["foltr", "erasure", "request", "--credentials", file]:
                self._asks_to_be_forgotten(file)
            case ["foltr", *rest]:
                self.wait_for_devices()
                self._finished(words, foltr_process(*rest, cwd=self._folder, **LONG_LEASES))
            case ["tar", *_]:
                subprocess.run(words, cwd=self._folder, check=True, timeout=PATIENCE_S)
            case _:
                pytest.fail(f"nobody knows how to run: {shlex.join(words)}")

    def wait_for_devices(self) -> None:
        """Each device takes part in so many rounds and ends; they need one another."""
        if not self._devices:
            return
        while self._devices:
            device = self._devices.pop(0)
            output, _ = device.communicate(timeout=PATIENCE_S)
            assert device.returncode == 0, output
            assert "accepted" in output
        # Their receipts come before the round's model: what follows is about the next round.
        wait_until(lambda: self._count(_AWAITING_UPDATES) == 1)

    def close(self) -> list[int]:
        """The exit codes of what ran in the background, newest first."""
        for device in self._devices:
            stop(device)
        return [stop(process)[0] for process in reversed(self._background)]

    def _asks_to_be_forgotten(self, file: str) -> None:
        """A device that was enrolled anew joins with its new key, and asks; a model without it takes up to a day."""
        self.wait_for_devices()
        n_before = self._count(_JOINS)
        device = start("client", "run", "--credentials", file, cwd=self._folder, FOLTR_DATASET="synthetic")
        wait_until(lambda: self._count(_JOINS) > n_before)
        stop(device)
        asking = start("erasure", "request", "--credentials", file, "--timeout", "200", cwd=self._folder)
        try:
            assert any("its data is erased" in line for line in asking.stdout)
        finally:
            stop(asking)

    def _count(self, rows: str) -> int:
        with contextlib.closing(sqlite3.connect(self._folder / "foltr.sqlite")) as db:
            return db.execute(f"SELECT count(*) FROM {rows}").fetchone()[0]  # noqa: S608 (the words of this test)

    def _finished(self, words, done) -> None:
        # Some of the guide's federation is off, and its status says so.
        expected = (0, 1) if words[1] == "status" else (0,)
        assert done.returncode in expected, f"{shlex.join(words)}\n{done.stdout}\n{done.stderr}"
        self.outputs.setdefault(" ".join(words[1:3]), []).append(done.stdout)


@pytest.mark.parametrize("access", ["tls", pytest.param("mtls", marks=pytest.mark.nightly)])
def test_the_commands_of_the_guide_run_in_order(tmp_path, access):
    """From nothing to a running federation with TLS and identities, to a revocation, to a backup."""
    terminal = Terminal(tmp_path, access)
    try:
        for words in commands():
            terminal.run(words)
        revoked = foltr_process("doctor", "--credentials", "devices/device-1.json", "--json", cwd=tmp_path)
    finally:
        codes = terminal.close()
    assert codes == [0, 0, 0]
    outputs = terminal.outputs
    assert outputs["rounds list"][0].count("completed") >= 2
    assert "Round 3 has no update" in outputs["rounds why"][0]
    assert all("problem" not in text for text in outputs["doctor --credentials"])
    assert "revoked" in outputs["operator roster"][0]
    assert revoked.returncode == 0, revoked.stdout
    assert {"ok", "absent"} >= {finding["state"] for finding in json.loads(revoked.stdout)}
    (copy, _) = sorted((tmp_path / "backups").glob("*/foltr.sqlite"))
    events = sqlite3.connect(copy)
    try:
        kinds = {kind for (kind,) in events.execute("SELECT kind FROM events")}
    finally:
        events.close()
    assert {"client_joined", "deadline_set", "roster_adopted", "client_revoked"} <= kinds
    # What the table of files says is there, is there.
    for name in ("enrolment.key", "register.json", "federator.json", "operator.json", "ca.key"):
        assert (tmp_path / "foltr-operator" / name).stat().st_mode & 0o077 == 0
    assert (tmp_path / "operator-backup.tar").stat().st_size > 0


def test_the_settings_files_of_the_guide_are_read(tmp_path, monkeypatch):
    """Every key in them exists and has a value that is allowed, a rule's parameters too."""
    (first,) = blocks("docs/settings.md", "toml")
    (second,) = blocks("docs/robustness.md", "toml")
    path = tmp_path / "foltr.toml"
    path.write_text(first + second)
    monkeypatch.setenv("FOLTR_CONFIG", str(path))
    settings = load_settings()
    assert (settings.federation, settings.rounds.min_clients) == ("mail", 10)
    assert choose_rule(settings.defence) == read_rule("nnm+trimmed-mean", parameters={"beta": 0.25})


async def test_the_queries_of_the_history_run(tmp_path):
    """On a database as the migrations make it, and they answer what the text above them says."""
    queries = [query for block in blocks("docs/history.md", "sql") for query in block.split(";") if query.strip()]
    assert len(queries) == 4
    await made_history(f"sqlite:///{tmp_path}/history.sqlite", "default")
    connection = sqlite3.connect(tmp_path / "history.sqlite")
    try:
        dropped, fallbacks, curve, taken_back = (connection.execute(query).fetchall() for query in queries)
    finally:
        connection.close()
    assert dropped == [("c", 1, 1, 0.0), ("a", 1, 0, 0.75), ("b", 1, 0, 0.25)]
    assert fallbacks == [(1, "krum", "median", "krum needs 5 updates, 3 arrived")]
    assert (curve, taken_back) == ([], [])


def test_every_kind_and_code_is_documented():
    """What the code writes is what core/protocol/events.py lists, each with a meaning; each code has its row."""
    files = [*(PROJECT / "federator").rglob("*.py"), *(PROJECT / "storage").rglob("*.py")]
    source = "\n".join(path.read_text() for path in files)
    literal = set(re.findall(r'\bNewEvent\(\s*(?:[\w.]+|to_datetime\(\w+\)),\s*"(\w+)"', source))
    assert len(literal) > 5
    assert literal <= {str(kind) for kind in EventKind}
    elsewhere = {*FINDINGS, *(f"client_{kind}" for kind in get_args(get_type_hints(MemberChange)["kind"]))}
    written = [f'"{kind}"' in source or f"EventKind.{kind.name}" in source or kind in elsewhere for kind in EventKind]
    assert [kind for kind, is_written in zip(EventKind, written, strict=True) if not is_written] == []
    assert all(kind.meaning for kind in EventKind)
    text = (PROJECT / "docs/errors.md").read_text()
    assert [code for code in [*ReceiptCode, *EventKind, *AbandonReason] if f"| `{code}` |" not in text] == []


def test_events_carry_the_codes_that_are_documented(monkeypatch):
    """Of thousands of messages, most of them wrong, no event has a code that its kind is not listed with."""
    from fuzz import targets
    from fuzz.run import failures

    seen: set[tuple[str, str]] = set()
    check = targets.check_decisions

    def note(decisions):
        assert {str(event.kind) for event in decisions.events} <= {str(kind) for kind in EventKind}
        seen.update((str(event.code), str(event.kind)) for event in decisions.events if event.code is not None)
        check(decisions)

    monkeypatch.setattr(targets, "check_decisions", note)
    tracemalloc.start()
    try:
        for _ in failures(3, range(4_000 if IS_NIGHT else 1_000), bounded=False):
            pass
    finally:
        tracemalloc.stop()
    listed = {(str(code), str(kind)) for code in ReceiptCode for kind in code.events}
    assert seen <= listed, seen - listed
    assert len(seen) > 10
