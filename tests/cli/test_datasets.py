"""The data a command works on where none was named."""

import pytest

from foltr.cli.data import find_data
from foltr.core.errors import SettingsError, UnavailableError


def test_without_real_data_a_generated_set_is_used_and_said(monkeypatch: pytest.MonkeyPatch, capsys):
    """The command goes on, and nobody takes the figures for real ones."""

    def no_network(*_: object) -> None:
        raise UnavailableError("no package index")

    monkeypatch.setattr("foltr.core.data.mslr_sample.fetch_mslr_sample", no_network)
    data = find_data(None, seed=1)
    assert data.description == "synthetic (generated, planted linear relevance)"
    printed = capsys.readouterr().out
    assert "No real data: no package index" in printed
    assert "synthetic" in printed
    with pytest.raises(UnavailableError):
        find_data("mslr-sample", seed=1)


def test_data_that_was_named_is_not_replaced(tmp_path):
    """A mistyped folder is an error, not a generated set."""
    with pytest.raises(SettingsError):
        find_data(str(tmp_path / "nothing"), seed=1)


def test_a_fold_of_nothing_is_a_mistake():
    """The default set has no folds."""
    with pytest.raises(SettingsError, match="fold 2: only a folder has folds"):
        find_data(None, seed=1, fold=2)
