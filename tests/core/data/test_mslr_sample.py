from pathlib import Path

import pytest

from foltr.core.data import mslr_sample
from foltr.core.data.letor import load_split
from foltr.core.data.mslr_sample import fetch_mslr_sample, merge_pip_settings, read_within, without_last_query
from foltr.core.errors import UnavailableError


def test_the_cut_off_query_is_dropped() -> None:
    """And a slow or endless answer is given up."""
    assert without_last_query(b"0 qid:1 1:1\n1 qid:2 1:1\n0 qid:2 1:") == b"0 qid:1 1:1\n"
    assert without_last_query(b"") == b""
    with pytest.raises(TimeoutError):
        read_within([b"x"], 0.0, 1)
    with pytest.raises(ValueError, match="larger"):
        read_within([b"x", b"xx"], float("inf"), 2)
    assert read_within([b"x", b"x"], float("inf"), 2) == b"xx"


def test_pip_settings_from_files_and_environment() -> None:
    """Files are read from pip's listing, the environment overrides them, several values are split."""
    listing = "global.extra-index-url='https://one.example/a https://two.example/b'\nglobal.cert='/files.pem'\n"
    settings = merge_pip_settings(listing, {"PIP_CERT": "/env.pem", "PIP_FIND_LINKS": "/wheels", "PIP_NO_INDEX": "0"})
    assert settings == {
        "extra-index-url": ["https://one.example/a", "https://two.example/b"],
        "cert": ["/env.pem"],
        "find-links": ["/wheels"],
    }


def test_a_fetched_sample_is_not_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mslr_sample, "_download", lambda _: pytest.fail("asked the network"))
    folder = tmp_path / "mslr-sample"
    folder.mkdir()
    for name in ("train.txt", "test.txt"):
        (folder / name).write_text("0 qid:1 1:1\n")
    assert fetch_mslr_sample(tmp_path) == folder


def test_without_an_index_or_the_right_archive_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not have the recorded hash is not opened; pip's no-index is honoured, with the next step."""
    with monkeypatch.context() as patch:
        patch.setattr(mslr_sample, "_download", lambda _: b"something else")
        with pytest.raises(UnavailableError, match="SHA-256"):
            fetch_mslr_sample(tmp_path)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(mslr_sample, "_pip_settings", lambda: {"no-index": ["1"]})
    with pytest.raises(UnavailableError, match="pip config list"):
        fetch_mslr_sample(tmp_path)


@pytest.mark.nightly
def test_the_sample_comes_from_the_configured_index(tmp_path: Path) -> None:
    split = load_split(fetch_mslr_sample(tmp_path), cache_dir=tmp_path)
    assert split.train.n_queries == split.test.n_queries == 42
    assert split.train.n_features == 136
