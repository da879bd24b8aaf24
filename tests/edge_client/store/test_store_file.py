"""The file of a device's store: whose it is, and that nothing is left of it on demand."""

import contextlib
import os
import re
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from support.device_stores import CLICKS, RANKING, stored, waiting_ids

from foltr.core.errors import DataError, SettingsError, UsageError
from foltr.core.learning.comparison import Comparison
from foltr.edge_client.store.bounds import PendingUpdate
from foltr.edge_client.store.knowledge import write_comparison
from foltr.edge_client.store.store import UNNUMBERED, DeviceStore, Interaction
from foltr.edge_client.store.store_file import SCHEMA_VERSION, MetaKey

SIGNER = b"f" * 32


def add(store, serp_id, features=((1.0, 2.0),) * 3):
    return store.add_interaction(serp_id, Interaction(UNNUMBERED, np.array(features, np.float32), RANKING, CLICKS))


def dump(path):
    with contextlib.closing(sqlite3.connect(path)) as db:
        return [*db.iterdump(), db.execute("PRAGMA user_version").fetchone()]


def test_a_store_of_other_software_is_refused(path):
    """Better no device than one that misreads its own memory; the file stays as it was."""
    with stored(path) as store:
        add(store, "a")
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    before = dump(path)
    said = rf"is of version {SCHEMA_VERSION + 1}, .*version {SCHEMA_VERSION}\."
    with pytest.raises(SettingsError, match=said), stored(path):
        pass
    assert dump(path) == before


def test_what_is_no_store_is_refused_and_kept(path, tmp_path):
    """Somebody else's tables and files are left alone."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE meta (key TEXT, value TEXT)")
    before = dump(path)
    with pytest.raises(SettingsError, match="not a database of foltr"), stored(path):
        pass
    assert dump(path) == before
    diary = tmp_path / "diary"
    diary.write_bytes(b"dear diary, " * 1_000)
    with pytest.raises(DataError, match="device store"), stored(diary):
        pass
    assert diary.read_bytes().startswith(b"dear diary")


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    """The message says which path and what to do."""
    with pytest.raises(DataError, match=r"no-such-folder.*(store)"), stored(tmp_path / "no-such-folder" / "x"):
        pass


def test_a_store_belongs_to_one_running_client(path):
    """Two processes on one store would each train on the same clicks, and count them twice."""
    with stored(path) as store:
        add(store, "a")
        with pytest.raises(DataError, match=rf"{path}: the process {os.getpid()} has it open.*(store)"), stored(path):
            pass
    with stored(path) as store:
        assert store.n_waiting() == 1


SECRETS = {
    "waiting": b"a waiting list! ",
    "pending": b"a pending list! ",
    "kept": b"a list is kept! ",
    "spent long ago": b"spent long ago! ",
    "update": b"the pending update's bytes",
    "local state": b"what the method keeps",
    "model": b"the model's announcement",
    "anchor": b"the anchor's announcement",
    "anchor's hash": b"names the anchor",
    "comparison": b"its sums",
    "name": b"maildevice-7",
    "serp": b"serp of a user",
    "topic": b"clients/device-7/inbox",
}


def secret_features(name):
    """(4, 1) float32 whose bytes are a secret's."""
    return np.frombuffer(SECRETS[name], "<f4").reshape(4, 1)


def fill(path):
    """A store in which there is everything that a store can hold."""
    with stored(path) as store:
        spent = add(store, f"{SECRETS['serp'].decode()} 0", secret_features("spent long ago"))
        store.discard_interactions([spent.id])
        counted = add(store, f"{SECRETS['serp'].decode()} 1", secret_features("kept"))
        store.settle(0)
        store.put_update(PendingUpdate("u", 1, 0, counted.id, b"bytes", SECRETS["local state"]), [counted.id])
        store.settle(counted.id, "u")
        held = add(store, f"{SECRETS['serp'].decode()} 2", secret_features("pending"))
        store.put_update(PendingUpdate("v", 2, counted.id, held.id, SECRETS["update"]), [held.id])
        add(store, f"{SECRETS['serp'].decode()} 3", secret_features("waiting"))
        store.put_model(SECRETS["model"])
        store.put_anchor((3, SECRETS["anchor's hash"]), SECRETS["anchor"])
        known = Comparison(difference=float(np.frombuffer(SECRETS["comparison"], ">f8")[0]))
        with store.transaction() as cursor:
            write_comparison(cursor, (3, SECRETS["anchor's hash"]), known)
        topic = f"foltr/v1/mail/{SECRETS['topic'].decode()}"
        store.note_believed(topic, SIGNER, 8)
        store.put_session(7)
        store.note_believed(topic, SIGNER, 9)  # and is not stored yet
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
        (watermark,) = (line for line in db.iterdump() if line.startswith("INSERT"))
        assert re.fullmatch(r"""INSERT INTO "owner" VALUES\(1,'forgotten',NULL,NULL,X'[0-9A-F]{96}'\);""", watermark)


def test_a_store_knows_that_its_client_was_forgotten(path):
    """After a restart, and it is nobody else's then; it can be opened for this client, and forgotten, again."""
    with filled(path) as store:
        assert not store.forgotten
        store.forget()
        store.forget()
    for other in ({"client_id": "device-8"}, {"federation": "photos"}):
        with pytest.raises(SettingsError, match="another client, which was forgotten"), stored(path, **other):
            pass
    with stored(path) as store:
        assert store.forgotten
        assert (store.meta(MetaKey.MODEL), store.local_state(), store.pending_update()) == (None, None, None)
        assert (store.newest_session(), store.n_waiting(), store.kept_ids()) == (0, 0, [])
    with opened_by_nobody(path) as store:
        assert (store.forgotten, store.owner, add(store, "a")) == (True, None, None)
        store.forget()
    with stored(path) as store:
        assert store.forgotten
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
    with stored(path):
        assert found(path) == set()


def test_a_deletion_that_fails_changes_nothing(path):
    """It is told, also when it fails at the last row, and may be tried again."""
    with filled(path) as store:
        store.rows(
            "CREATE TEMP TRIGGER no_mark BEFORE INSERT ON main.owner WHEN NEW.state = 'forgotten' "
            "BEGIN SELECT RAISE(ABORT, 'no room for the watermark'); END"
        )
        with pytest.raises(DataError, match=r"no room for the watermark.*Nothing was changed"):
            store.forget()
        store.rows("DROP TRIGGER no_mark")
        assert not store.forgotten
        assert (store.n_waiting(), store.meta(MetaKey.MODEL)) == (1, SECRETS["model"])
        store.forget()
        assert found(path) == set()


def opened_by_nobody(path):
    return stored(path, client_id=None, federation=None)


def test_a_store_is_nobodys_until_a_client_takes_it_over(path):
    """Its clicks are then that client's, also after a restart, and nobody else's ever."""
    with opened_by_nobody(path) as store:
        add(store, "a")
        assert (store.owner, store.rows("SELECT state, federation, client_id FROM owner")) == (
            None,
            [("nobody", None, None)],
        )
    with opened_by_nobody(path) as store:
        store.take_over(("mail", "device-7"))
        store.take_over(("mail", "device-7"))
        assert (store.owner, store.n_waiting()) == (("mail", "device-7"), 1)
        with pytest.raises(SettingsError, match="belongs to mail/device-7, not to mail/device-8"):
            store.take_over(("mail", "device-8"))
    with opened_by_nobody(path) as store:
        assert store.owner == ("mail", "device-7")
    for other in ({"client_id": "device-8"}, {"federation": "photos"}):
        with pytest.raises(SettingsError, match=r"mail/device-7.*not to"), stored(path, **other):
            pass
    with stored(path) as store:
        assert store.n_waiting() == 1


def test_the_schema_knows_no_half_owner(path):
    """A store is nobody's, a client's, or of one that was forgotten; there is nothing in between."""
    with opened_by_nobody(path) as store:
        for wrong in (
            "UPDATE owner SET state = 'client'",
            "UPDATE owner SET state = 'client', federation = 'mail'",
            "UPDATE owner SET federation = 'mail'",
            "UPDATE owner SET state = 'forgotten'",
            "UPDATE owner SET state = ''",
        ):
            with pytest.raises(DataError, match="CHECK"), store.transaction() as cursor:
                cursor.execute(wrong)


def test_nobodys_store_forgets_and_begins_anew(path):
    """There is no name to be marked: the next clicks are as the first, and theirs for whom it is opened then."""
    with opened_by_nobody(path) as store:
        store.add_interaction(
            "a", Interaction(UNNUMBERED, np.full((1, 4), 7.0, np.float32), np.zeros(1, np.int64), np.ones(1, np.bool_))
        )
        seed = store.device_seed()
        store.forget()
        assert (store.forgotten, store.n_waiting(), store.watermark()) == (False, 0, None)
        assert store.device_seed() not in (seed, 0)
        assert np.full(4, 7.0, np.float32).tobytes() not in bytes_on_disk(path)
        add(store, "b")
    with stored(path) as store:
        assert (store.owner, store.n_waiting()) == (("mail", "device-7"), 1)


def test_a_closed_store_says_so(path):
    """Whatever is asked of it; closing it again is no error."""
    with stored(path) as store:
        pass
    store.close()
    for use in (store.n_waiting, store.entries, lambda: add(store, "a")):
        with pytest.raises(UsageError, match="it is closed"):
            use()


def test_threads_share_a_store(path):
    """What several store at the same time is all there, once, and numbered without a gap; readers see whole rows."""
    n_threads, each = 4, 18
    with stored(path) as store:
        together = threading.Barrier(n_threads)

        def record(name):
            together.wait()
            for i in range(each):
                add(store, f"{name} {i}")
                add(store, f"all {i}")
                assert store.n_waiting() >= i

        with ThreadPoolExecutor(n_threads) as pool:
            list(pool.map(record, range(n_threads)))
        assert len(waiting_ids(store)) == store.n_waiting() == each * (n_threads + 1)
        numbers = [interaction.id for interaction in store.waiting_interactions(1_000)]
        assert numbers == sorted(set(numbers))
