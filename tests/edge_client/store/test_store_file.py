"""The file of a device's store: whose it is, how older ones are upgraded, and that nothing is left of it on demand."""

import contextlib
import re
import sqlite3

import numpy as np
import pytest

import edge_client.store.store_file
from edge_client.guard.held_back import HeldBackList, HeldBackStore, RefusedModel
from edge_client.guard.model_judgement import Judgement, Preferences
from edge_client.store.store import DeviceStore, PendingUpdate
from foltr.errors import DataError, SettingsError

RANKING = np.array([2, 0], np.int64)
CLICKS = np.array([True, False])


@contextlib.contextmanager
def opened(path, *, client_id="device-7", federation="mail"):
    store = DeviceStore(path, client_id=client_id, federation=federation, max_interactions=100)
    try:
        yield store
    finally:
        store.close()


def add(store, serp_id, features=((1.0, 2.0),) * 3):
    return store.add_interaction(serp_id, np.array(features, np.float32), RANKING, CLICKS)


def waiting_ids(store):
    return [interaction.id for interaction in store.waiting_interactions(1_000)]


# --- whose it is, and of which version ------------------------------------------------------------------------


@pytest.mark.parametrize("other", [{"client_id": "device-8"}, {"federation": "photos"}])
def test_a_store_has_one_owner(path, other):
    """The clicks of one device do not become those of another; the refusal names both and changes nothing."""
    with opened(path) as store:
        add(store, "a")
    with pytest.raises(SettingsError, match=r"mail/device-7.*not to"), opened(path, **other):
        pass
    with opened(path) as store:
        assert store.n_waiting() == 1


VERSION_1 = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;
CREATE TABLE interactions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    serp_id TEXT NOT NULL UNIQUE,
    n_documents INTEGER NOT NULL CHECK (n_documents > 0),
    features BLOB NOT NULL,
    ranking BLOB NOT NULL,
    clicks BLOB NOT NULL,
    update_id TEXT
) STRICT;
CREATE TABLE pending_update (
    only_one INTEGER PRIMARY KEY CHECK (only_one = 1),
    update_id TEXT NOT NULL,
    round INTEGER NOT NULL,
    payload BLOB NOT NULL
) STRICT;
INSERT INTO meta VALUES ('owner', CAST('mail/device-7' AS BLOB)), ('session', x'0000000000000007'), ('model', x'abcd');
INSERT INTO pending_update VALUES (1, 'u', 4, x'1234');
INSERT INTO interactions VALUES
    (3, 'held', 1, x'0000803f00000040', x'0000000000000000', x'01', 'u'),
    (5, 'waiting', 1, x'0000803f00000040', x'0000000000000000', x'00', NULL);
PRAGMA user_version = 1;
"""

VERSION_3 = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;
CREATE TABLE interactions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    serp_id TEXT NOT NULL UNIQUE,
    n_documents INTEGER NOT NULL CHECK (n_documents > 0),
    features BLOB NOT NULL,
    ranking BLOB NOT NULL,
    clicks BLOB NOT NULL,
    update_id TEXT,
    variant INTEGER NOT NULL DEFAULT 0,
    base_version INTEGER NULL
) STRICT;
CREATE TABLE pending_update (
    only_one INTEGER PRIMARY KEY CHECK (only_one = 1),
    update_id TEXT NOT NULL,
    round INTEGER NOT NULL,
    payload BLOB NOT NULL,
    local_state BLOB NULL
) STRICT;
CREATE TABLE held_back (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    serp_id TEXT NOT NULL UNIQUE,
    n_shown INTEGER NOT NULL CHECK (n_shown > 0),
    features BLOB NOT NULL,
    pairs BLOB NOT NULL,
    weights BLOB NOT NULL
) STRICT;
CREATE TABLE refused_models (
    version INTEGER PRIMARY KEY,
    kept_version INTEGER NOT NULL,
    n_lists INTEGER NOT NULL,
    agreement_kept REAL NOT NULL,
    agreement_new REAL NOT NULL,
    loss REAL NOT NULL,
    standard_error REAL NOT NULL
) STRICT;
INSERT INTO meta VALUES ('owner', CAST('mail/device-7' AS BLOB)), ('session', x'0000000000000007'), ('model', x'abcd'),
    ('device_seed', x'0000000000000005');
INSERT INTO pending_update VALUES (1, 'u', 4, x'1234', NULL);
INSERT INTO interactions VALUES
    (3, 'held', 1, x'0000803f00000040', x'0000000000000000', x'01', 'u', 0, 2),
    (5, 'waiting', 1, x'0000803f00000040', x'0000000000000000', x'00', NULL, 0, NULL);
PRAGMA user_version = 3;
"""


VERSION_4 = VERSION_3.replace(
    "PRAGMA user_version = 3;",
    """
CREATE TABLE kept_interactions (
    id INTEGER PRIMARY KEY,
    n_documents INTEGER NOT NULL CHECK (n_documents > 0),
    features BLOB NOT NULL,
    ranking BLOB NOT NULL,
    clicks BLOB NOT NULL
) STRICT;
INSERT INTO kept_interactions VALUES (1, 1, x'0000803f00000040', x'0000000000000000', x'01');
PRAGMA user_version = 4;
""",
)


@pytest.fixture(params=[VERSION_1, VERSION_3, VERSION_4], ids=["version 1", "version 3", "version 4"])
def old_path(path, request):
    """A file as released software left it, when it lost power while an update was pending."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript("PRAGMA journal_mode = WAL;" + request.param)
    return path


def test_a_store_of_older_software_is_upgraded(old_path):
    """Nothing in it is lost, what is new has its default, and it is used and opened again like any other."""
    with opened(old_path) as store:
        assert store.pending_update() == PendingUpdate("u", 4, b"\x12\x34")
        assert (store.newest_session(), store.model(), store.local_state()) == (7, b"\xab\xcd", None)
        (waiting,) = store.waiting_interactions(10)
        assert (waiting.id, waiting.features.tolist(), waiting.clicks.tolist()) == (5, [[1.0, 2.0]], [False])
        assert (waiting.variant, waiting.base_version, waiting.scores) == (0, None, None)
        assert all(store.kept_interaction(i).scores is None for i in store.kept_ids())
        seed = store.device_seed()
        assert seed > 0
        store.remove_update("u", keep_interactions=True)
        assert waiting_ids(store) == [3, 5]
        store.put_update(PendingUpdate("v", 5, b"bytes", b"personal"), [5])
    with opened(old_path) as store:
        assert (store.local_state(), store.device_seed()) == (b"personal", seed)
        assert store.rows("PRAGMA user_version") == [(5,)]


def test_an_upgraded_store_is_like_a_new_one(old_path, tmp_path):
    """The same tables with the same columns, whatever way they came about."""

    def columns(store):
        tables = [row[0] for row in store.rows("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {table: store.rows(f"PRAGMA table_xinfo({table})") for table in tables}

    with opened(old_path) as old, opened(tmp_path / "new") as new:
        assert columns(old) == columns(new)


def test_an_upgrade_is_whole_or_not_at_all(old_path, monkeypatch):
    """Where it fails half way, or the store is another's, the file stays as it was and serves the older software."""
    before = dump(old_path)
    with monkeypatch.context() as broken:
        *others, newest = edge_client.store.store_file.UPGRADES
        broken.setattr("edge_client.store.store_file.UPGRADES", (*others, f"{newest}SELECT nowhere;"))
        with pytest.raises(DataError), opened(old_path):
            pass
    assert dump(old_path) == before
    with pytest.raises(SettingsError, match="one store per client"), opened(old_path, client_id="device-8"):
        pass
    assert dump(old_path) == before


def dump(path):
    with contextlib.closing(sqlite3.connect(path)) as db:
        return [*db.iterdump(), db.execute("PRAGMA user_version").fetchone()]


def test_a_store_of_newer_software_is_refused(path):
    """Better no device than one that misreads its own memory."""
    with opened(path):
        pass
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(SettingsError, match="version 99"), opened(path):
        pass


def test_a_file_that_is_no_store_is_refused_and_kept(path):
    """Somebody else's file is not overwritten."""
    path.write_bytes(b"dear diary, " * 1_000)
    with pytest.raises(DataError, match="device store"), opened(path):
        pass
    assert path.read_bytes().startswith(b"dear diary")


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    """The message says which path and what to do."""
    with pytest.raises(DataError, match=r"no-such-folder.*--store"), opened(tmp_path / "no-such-folder" / "x"):
        pass


def test_a_store_belongs_to_one_running_client(path):
    """Two processes on one store would each train on the same clicks, and count them twice."""
    with opened(path) as store:
        add(store, "a")
        with pytest.raises((DataError, SettingsError)), opened(path):
            pass


# --- being forgotten ------------------------------------------------------------------------------------------

SECRETS = {
    "waiting": b"a waiting list! ",
    "pending": b"a pending list! ",
    "kept": b"a list is kept! ",
    "spent long ago": b"spent long ago! ",
    "held back": b"was held back!! ",
    "update": b"the pending update's bytes",
    "local state": b"what the method keeps",
    "model": b"the model's announcement",
    "name": b"mail/device-7",
    "serp": b"serp of a user",
}


def secret_features(name):
    """(4, 1) float32 whose bytes are a secret's."""
    return np.frombuffer(SECRETS[name], "<f4").reshape(4, 1)


def fill(path):
    """A store in which there is everything that a store can hold."""
    with opened(path) as store:
        spent = add(store, f"{SECRETS['serp'].decode()} 0", secret_features("spent long ago"))
        store.discard_interactions([spent.id])
        counted = add(store, f"{SECRETS['serp'].decode()} 1", secret_features("kept"))
        store.put_update(PendingUpdate("u", 1, b"bytes", SECRETS["local state"]), [counted.id])
        store.remove_update("u", keep_interactions=False)
        held = add(store, f"{SECRETS['serp'].decode()} 2", secret_features("pending"))
        store.put_update(PendingUpdate("v", 2, SECRETS["update"]), [held.id])
        add(store, f"{SECRETS['serp'].decode()} 3", secret_features("waiting"))
        store.put_model(SECRETS["model"])
        store.put_session(7)
        guarded = HeldBackStore(store)
        pairs = Preferences(np.array([0]), np.array([1]), np.array([1.0]))
        guarded.add_list("held", HeldBackList(secret_features("held back"), pairs))
        guarded.put_refused(RefusedModel(3, 2, Judgement(True, 30, 0.5, 0.1, 0.4, 0.1)))
        yield store


def bytes_on_disk(path):
    """Of the file and of all that SQLite keeps beside it."""
    return b"".join(file.read_bytes() for file in path.parent.iterdir() if file.name.startswith(path.name))


def found(path):
    data = bytes_on_disk(path)
    return {name for name, secret in SECRETS.items() if secret in data}


filled = contextlib.contextmanager(fill)


def test_nothing_is_left_of_a_client_that_is_forgotten(path):
    """Not in the file, nor in the log and the index beside it, while it is open and after: only that it was so."""
    with filled(path) as store:
        assert found(path) >= SECRETS.keys() - {"spent long ago"}
        store.forget()
        assert store.forgotten
        assert found(path) == set()
    assert found(path) == set()
    with contextlib.closing(sqlite3.connect(path)) as db:
        (mark,) = (line for line in db.iterdump() if line.startswith("INSERT"))
        assert re.fullmatch(r"""INSERT INTO "meta" VALUES\('forgotten',X'[0-9A-F]{96}'\);""", mark)


def test_nothing_is_left_of_what_older_software_deleted(old_path):
    """It did not overwrite what it deleted."""
    secret = b"older software's list"
    with contextlib.closing(sqlite3.connect(old_path, isolation_level=None)) as db:
        db.execute("PRAGMA secure_delete = OFF")
        db.execute("UPDATE interactions SET features = ? WHERE id = 5", (secret * 1_000,))
        db.execute("DELETE FROM interactions WHERE id = 5")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    assert secret in bytes_on_disk(old_path)
    with opened(old_path) as store:
        store.forget()
        assert secret not in bytes_on_disk(old_path)


def test_a_store_knows_that_its_client_was_forgotten(path):
    """After a restart, and it is nobody else's then; it can be opened for this client, and forgotten, again."""
    with filled(path) as store:
        assert not store.forgotten
        store.forget()
        store.forget()
    for other in ({"client_id": "device-8"}, {"federation": "photos"}):
        with pytest.raises(SettingsError, match="another client, which was forgotten"), opened(path, **other):
            pass
    with opened(path) as store:
        assert store.forgotten
        assert (store.model(), store.local_state(), store.pending_update()) == (None, None, None)
        assert (store.newest_session(), store.n_waiting(), store.kept_ids()) == (0, 0, [])
    assert found(path) == set()


def test_an_interrupted_overwriting_is_made_up_for(path, monkeypatch):
    """The rows are gone with one commit; bytes that a crash left behind go at the next start."""
    with filled(path) as store:

        def crash(_):
            raise sqlite3.OperationalError("disk is full")

        with monkeypatch.context() as full_disk:
            full_disk.setattr(DeviceStore, "overwrite", crash)
            with pytest.raises(DataError, match=r"disk is full.*rows are deleted"):
                store.forget()
        assert store.forgotten
        assert found(path) != set()
    with opened(path):
        assert found(path) == set()


def test_a_deletion_that_fails_changes_nothing(path):
    """It is told, also when it fails at the last row, and may be tried again."""
    with filled(path) as store:
        store.rows(
            "CREATE TEMP TRIGGER no_mark BEFORE INSERT ON main.meta WHEN NEW.key = 'forgotten' "
            "BEGIN SELECT RAISE(ABORT, 'no room for the mark'); END"
        )
        with pytest.raises(DataError, match=r"no room for the mark.*Nothing was changed"):
            store.forget()
        store.rows("DROP TRIGGER no_mark")
        assert not store.forgotten
        assert (store.n_waiting(), store.model()) == (1, SECRETS["model"])
        store.forget()
        assert found(path) == set()
