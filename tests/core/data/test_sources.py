"""Data sets by name: by folder, by name, or generated."""

from pathlib import Path

import pytest

from foltr.core.data.sources import load_data
from foltr.core.errors import SettingsError


def test_generated_sets_say_what_they_are():
    """In the name of the set and in what reports print; equal seeds, equal sets."""
    for name, relevance in (("synthetic", "linear"), ("synthetic-nonlinear", "nonlinear")):
        data = load_data(name, seed=1)
        assert data.train.name == data.test.name == f"synthetic-{relevance}"
        assert data.description == f"synthetic (generated, planted {relevance} relevance)"
        assert (data.train.n_queries, data.test.n_queries, data.n_grades) == (100, 50, 5)
        assert (load_data(name, seed=1).train.relevance == data.train.relevance).all()


def test_a_folder_is_read_in_its_published_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """And has folds, which nothing else has."""
    monkeypatch.setenv("FOLTR_CACHE", str(tmp_path / "cache"))
    for fold in (1, 2):
        (tmp_path / f"Fold{fold}").mkdir()
        for name in ("train.txt", "test.txt"):
            (tmp_path / f"Fold{fold}" / name).write_text(f"2 qid:{fold} 1:1\n0 qid:{fold} 1:2\n")
    data = load_data(str(tmp_path), seed=1, fold=2)
    assert data.train.query_ids.tolist() == [2]
    assert (data.description, data.n_grades) == (f"{tmp_path}, fold 2", 3)
    assert load_data(str(tmp_path), seed=1).train.query_ids.tolist() == [1]
    for name in ["synthetic", "synthetic-nonlinear", "synthetic-large", "mslr-sample"]:
        with pytest.raises(SettingsError, match="fold 2: only a folder has folds"):
            load_data(name, seed=1, fold=2)
