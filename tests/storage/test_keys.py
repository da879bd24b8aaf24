"""The data keys: one for each client, there when it was promised, gone when it was destroyed."""

import os
import secrets
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foltr.core.errors import DataError, SettingsError
from foltr.storage.keys import KeyStore, fingerprint, keys_folder


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_a_key_is_made_once_and_found_by_another_process(keys: KeyStore) -> None:
    """32 random bytes for each client of each federation; looking for one makes none."""
    assert keys.find("web", "a") is None
    assert not keys.folder.exists()
    made = {(federation, client): keys.key(federation, client) for federation in ("web", "shop") for client in "ab"}
    assert len(set(made.values())) == 4
    assert all(len(key) == 32 for key in made.values())
    other = KeyStore(keys.folder)
    assert {who: other.find(*who) for who in made} == made
    assert {who: other.key(*who) for who in made} == made
    assert other.find("web", "c") is None
    # Many are made at once, and those that are there stay as they are.
    names = ["a", *(f"client-{n}" for n in range(300))]
    assert keys.missing("web", names) == names[1:]
    keys.ensure("web", names)
    assert (keys.missing("web", names), other.missing("web", names)) == ([], names[1:])
    assert len({KeyStore(keys.folder).find("web", name) for name in names}) == 301
    assert other.find("web", "a") == made["web", "a"]


def test_nobody_else_may_read_them(keys: KeyStore) -> None:
    """Folders 0700, files 0600, whatever the umask; no name of a client is anywhere in it."""
    before = os.umask(0)
    try:
        keys.key("web", "device-7")
    finally:
        os.umask(before)
    (file,) = files(keys.folder)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in (keys.folder, file.parent)} == {0o700}
    assert file.parent.name == file.name[:2]
    assert "device-7" not in str(file)


def test_a_destroyed_key_is_gone_and_overwritten(keys: KeyStore, tmp_path: Path) -> None:
    """For this process and for others; a second time there is nothing to do. Another key, of any database, stays."""
    key, other = keys.key("web", "a"), keys.key("web", "b")
    assert [keys.has("web", name, fingerprint(key)) for name in "ab"] == [True, False]
    assert keys.destroy("web", "a", bytes(8)) is False
    assert not keys.has("web", "a", bytes(8))
    assert keys.find("web", "a") == key
    file = next(path for path in files(keys.folder) if path.read_bytes() == key)
    kept = tmp_path / "hard-link"
    kept.hardlink_to(file)
    assert keys.destroy("web", "a", fingerprint(key)) is True
    assert keys.destroy("web", "a") is False
    assert keys.destroy("web", "never") is False
    assert kept.read_bytes() == bytes(32)
    assert keys.find("web", "a") is None
    assert KeyStore(keys.folder).find("web", "a") is None
    assert keys.find("web", "b") == other
    assert keys.key("web", "a") != key


def test_what_a_killed_process_left_is_no_key(keys: KeyStore) -> None:
    """A key counts once it has its name; before that nothing was sealed with it, and destroying takes it too."""
    keys.key("web", "a")
    (file,) = files(keys.folder)
    unfinished = file.with_name(f"{file.name}.new")
    unfinished.write_bytes(b"half")
    file.unlink()
    other = KeyStore(keys.folder)
    assert other.find("web", "a") is None
    assert len(other.key("web", "a")) == 32
    unfinished.write_bytes(b"half")
    assert other.destroy("web", "a") is True
    assert files(keys.folder) == []


def test_a_key_of_another_length_is_told(keys: KeyStore) -> None:
    """Not taken, and not made anew over it."""
    keys.key("web", "a")
    (file,) = files(keys.folder)
    file.write_bytes(b"short")
    with pytest.raises(DataError, match="has 5 bytes, not 32; restore it from its own backup"):
        KeyStore(keys.folder).key("web", "a")
    assert file.read_bytes() == b"short"


def test_a_folder_that_others_may_read_is_refused(tmp_path: Path) -> None:
    """As credentials are; so is a file in its place, and one that cannot be made says so."""
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    shared.chmod(0o755)
    with pytest.raises(SettingsError, match="others may read it; run: chmod 700"):
        KeyStore(shared)
    file = tmp_path / "file"
    file.touch(mode=0o600)
    with pytest.raises(SettingsError, match="not a folder"):
        KeyStore(file)
    with pytest.raises(SettingsError, match=r"cannot be (made|read)"):
        KeyStore(file / "below").key("web", "a")


def test_the_folder_is_beside_the_database_file() -> None:
    """Where nothing else is said; a server's database has no place of its own on this machine."""
    for db_url, keys, folder in [
        ("sqlite:///foltr.sqlite", None, "foltr.sqlite.keys"),
        ("sqlite:////var/lib/foltr.sqlite", None, "/var/lib/foltr.sqlite.keys"),
        ("sqlite:///foltr.sqlite", "elsewhere", "elsewhere"),
        ("postgresql://me@host/foltr", None, "foltr-keys"),
        ("postgresql://me@host/foltr", "/keys", "/keys"),
        ("no url", None, "foltr-keys"),
    ]:
        assert keys_folder(db_url, keys) == Path(folder), db_url


@settings(max_examples=30)  # each makes a folder
@given(
    one=st.tuples(st.text(max_size=8), st.text(max_size=8)), other=st.tuples(st.text(max_size=8), st.text(max_size=8))
)
def test_two_clients_never_share_a_file(one: tuple[str, str], other: tuple[str, str]) -> None:
    """Names hold no line break, so that a federation and a client are told apart."""
    names = {"".join(part.split("\n")) for part in (*one, *other)}
    if len(names) == 4 and one != other:
        with tempfile.TemporaryDirectory() as folder:
            KeyStore(Path(folder)).key(*one)
            assert KeyStore(Path(folder)).find(*other) is None


def test_a_key_that_another_process_has_made_meanwhile_is_the_one(keys: KeyStore, monkeypatch) -> None:
    """Whoever was paused while it made a key takes the one that there is: with that updates were sealed since."""
    other, draw = KeyStore(keys.folder), secrets.token_bytes

    def paused(n_bytes: int) -> bytes:
        monkeypatch.setattr(secrets, "token_bytes", draw)
        other.key("web", "a")
        return draw(n_bytes)

    monkeypatch.setattr(secrets, "token_bytes", paused)
    assert keys.key("web", "a") == other.key("web", "a") == KeyStore(keys.folder).find("web", "a")
    assert len(files(keys.folder)) == 1


def test_a_next_key_that_another_process_took_up_opens_what_it_sealed(keys: KeyStore) -> None:
    """Whoever read the former key, and opened updates with the next one, finds that under its new name."""
    former = keys.key("web", "a")
    sealed_with = fingerprint(keys.make_next("web", "a"))
    assert keys.has("web", "a", sealed_with)
    other = KeyStore(keys.folder)
    other.ensure("web", ["a"], {"a": sealed_with})
    opened = keys.find_opening("web", "a", sealed_with)
    assert opened == other.key("web", "a") != former
    assert keys.find("web", "a") == opened


def test_a_worker_makes_no_folder_of_its_own(keys: KeyStore) -> None:
    """Its leader would look for the keys in another one: it says so, and finds what the leader has made."""
    worker = KeyStore(keys.folder, is_leaders=True)
    with pytest.raises(SettingsError, match=r"the folder does not exist.*the folder of the leader's data keys"):
        worker.key("web", "a")
    assert not keys.folder.exists()
    keys.make_folder()
    keys.make_folder()
    assert stat.S_IMODE(keys.folder.stat().st_mode) == 0o700
    assert worker.key("web", "a") == keys.key("web", "a")
