"""What every command has in common: help, exit codes, one clear line for what is wrong."""

import contextlib
import sqlite3

from cli.commands import foltr, foltr_process, start, stop
from support.databases import migrated_sqlite
from support.servers import free_port


def test_a_shell_completes_commands_and_options():
    """Also those of commands that are imported only once they are called."""
    for words, offered in (("foltr fed", "federator"), ("foltr rounds w", "why"), ("foltr status --wa", "--watch")):
        variables = {"_FOLTR_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        assert offered in foltr_process(**variables).stdout.split(), words


UNSIGNED = {"FOLTR_ALLOW_UNSIGNED": "true"}
_AT = "2026-01-01 00:00:00.000000"
PACED = {**UNSIGNED, "FOLTR_UPDATES_PER_ROUND": "5"}
RUN, QUARANTINE = ("federator", "run"), ("device", "quarantine")


def test_a_wrong_setting_is_one_clear_line_and_exit_code_2(tmp_path):
    """The line names the key and what is allowed, before anything is connected to; there is no traceback."""
    for arguments, variables, named in (
        (RUN, {"FOLTR_ELEPHANTS": "3"}, "known are FOLTR_AGGREGATION, "),
        (RUN, {"FOLTR_LOG_LEVEL": "loud"}, "'debug', 'info', 'warning' or 'error'"),
        (RUN, {}, "--allow-unsigned"),
        ((*RUN, "--credentials", "none.json"), {}, "foltr device enrol"),
        ((*RUN, "--aggregation", "crumb"), UNSIGNED, "known are mean, krum"),
        (RUN, {**UNSIGNED, "FOLTR_PACING": "buffered", "FOLTR_OVER_SELECTION": "1"}, "over_selection"),
        (RUN, {**UNSIGNED, "FOLTR_AGGREGATION_PARAMETERS": "beta"}, "'beta' is not name=value"),
        ((*RUN, "--max-clients", "9"), PACED, "leave max_clients out"),
        ((*RUN, "--min-clients", "9"), PACED, "updates_per_round: 5 is below min_clients (9)"),
        (RUN, {**PACED, "FOLTR_OVER_SELECTION": "0.3"}, "over_selection: it chooses among connected devices"),
        ((*QUARANTINE, "device-1"), {}, "--reason"),
        ((*QUARANTINE, "device-1", "--reason", "x", "--lift"), {}, "exactly one of"),
        ((*QUARANTINE, "--lift"), {}, "name the client"),
        ((*QUARANTINE, "device-1", "--lift"), {}, "foltr-operator is not an operator's folder"),
        (("db", "current", "--db", "mysql://x/y"), {}, "postgresql://"),
        (("client", "run", "--clicks", "wild"), {}, "navigational"),
        (("data", "get", "everything"), {}, "mslr-sample"),
        (("rounds", "list", "--limit", "0"), {}, "limit"),
    ):
        done = foltr(*arguments, cwd=tmp_path, **variables, code=2)
        assert named in done.stderr.replace("\n", " "), arguments
        assert "Traceback" not in done.stderr, arguments


def test_a_hostile_value_is_one_line_that_any_terminal_can_show(tmp_path):
    """It is named, with what to do; nothing of it reaches the terminal as it is."""
    for arguments, named in (
        (("operator", "roster", "--operator", "x" * 300), "File name too long. Name another file"),
        (("operator", "roster", "--operator", "a\nb\x1b[2J"), "a\\nb\\x1b[2J is not an operator's folder"),
        (("operator", "roster", "--operator", "\udcff"), "\\udcff is not an operator's folder"),
        (("schema", "show", "/dev/zero"), "it is a device"),
        (("privacy", "plan", "--epsilon", "nan"), "--epsilon"),
        (("broker", "config", "--uid", "1" * 23), "--uid"),
        (("api", "token", "new", "viewer", "--days", "9" * 5000), "--days"),
    ):
        done = foltr(*arguments, cwd=tmp_path, code=2)
        assert named in done.stderr, arguments
        assert "Traceback" not in done.stderr, arguments
        assert done.stderr.replace("\n", "").isprintable(), arguments


def test_looking_creates_no_database(tmp_path):
    """A mistyped name ends with the next step and exit code 2, and creates no file."""
    for words in (
        *("rounds list", "rounds show 1", "rounds why", "rounds replay 1", "device list", "device show device-1"),
        *("device quarantine", "models list", "models export --out model.npy", "erasure list", "erasure log"),
        *("erasure show device-1 --receipt receipt.jws", "erasure verify-log", "db current", "db vacuum"),
    ):
        command = words.split()
        done = foltr(*command, "--db", "sqlite:///missing.sqlite", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, ""), command
        assert "missing.sqlite does not exist" in done.stderr, command
        assert "foltr db upgrade --db sqlite:///missing.sqlite" in done.stderr, command
        assert list(tmp_path.iterdir()) == [], command


def test_no_broker_or_database_says_which_where_and_how_to_start_it(tmp_path):
    """Exit code 3, the next step and no password; before it a warning of a rule for which rounds may be too small."""
    db = migrated_sqlite(tmp_path / "f.sqlite")
    (tmp_path / "foltr.toml").write_text(
        "[operations]\ngive_up_after_s = 0.5\n"
        '[defence]\naggregation = "nnm+trimmed-mean"\nbyzantine = 2\naggregation_fallback = "abandon"\n'
        "[defence.aggregation_parameters]\nbeta = 0.25\n"
    )
    broker = f"mqtt://127.0.0.1:{free_port()}"
    done = foltr(*RUN, "--db", db, "--broker", broker, cwd=tmp_path, **UNSIGNED, code=3)
    assert "a round of 2 to 4 updates is abandoned" in done.stderr
    assert broker in done.stderr
    assert "foltr broker run" in done.stderr
    port = free_port()
    done = foltr(*RUN, "--db", f"postgresql://someone:s3cret@127.0.0.1:{port}/foltr", cwd=tmp_path, **UNSIGNED, code=3)
    assert str(port) in done.stderr
    assert "s3cret" not in done.stderr + done.stdout


def test_a_federator_that_waits_for_its_broker_can_be_stopped(tmp_path):
    """SIGTERM ends it with 0, also before there is a broker."""
    db = migrated_sqlite(tmp_path / "f.sqlite")
    federator = start("federator", "run", "--allow-unsigned", "--db", db, "--broker", f"mqtt://127.0.0.1:{free_port()}")
    try:
        assert "signatures_disabled" in federator.stdout.readline()
        assert "broker_unreachable" in federator.stdout.readline()
    finally:
        code, output = stop(federator)
    assert code == 0, output


def test_a_database_is_written_anew_unless_somebody_uses_it(tmp_path):
    """It gives space back; while another process holds it, one line says what to do."""
    file = tmp_path / "f.sqlite"
    vacuum = ("db", "vacuum", "--db", migrated_sqlite(file))
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE large AS SELECT randomblob(1000000) AS body")
        connection.execute("DROP TABLE large")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        n_bytes = file.stat().st_size
        assert foltr(*vacuum, code=0).stdout.endswith("f.sqlite: rewritten\n")
        assert file.stat().st_size < n_bytes - 900_000
        connection.execute("BEGIN IMMEDIATE")
        assert "is in use: stop the federator and all readers" in foltr(*vacuum, code=3).stderr


def test_a_damaged_database_is_one_line(tmp_path):
    """Tables that are not what they were: the cause and the next step, no traceback."""
    migrated_sqlite(tmp_path / "f.sqlite")
    with contextlib.closing(sqlite3.connect(tmp_path / "f.sqlite")) as connection:
        connection.execute("DROP VIEW round_history")
        columns = "name, writer_epoch, ranker, n_features, created_at"
        connection.execute(f"INSERT INTO federations ({columns}) VALUES ('default', 0, 'linear', 4, '{_AT}')")  # noqa: S608
        connection.commit()
    assert "foltr doctor" in foltr("rounds", "list", "--db", f"sqlite:///{tmp_path}/f.sqlite", code=3).stderr
