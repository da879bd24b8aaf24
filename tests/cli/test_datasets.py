"""The data a command works on where none was named."""

import pytest

from foltr.cli.data import find_data
from foltr.core.errors import SettingsError, UnavailableError


def test_without_real_data_a_generated_set_is_used_and_said(monkeypatch: pytest.MonkeyPatch, capsys, tmp_path):
    """Nobody takes the figures for real ones; data that was named is not replaced, and the default set has no folds."""

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
    with pytest.raises(SettingsError):
        find_data(str(tmp_path / "nothing"), seed=1)
    with pytest.raises(SettingsError, match="fold 2: only a folder has folds"):
        find_data(None, seed=1, fold=2)
