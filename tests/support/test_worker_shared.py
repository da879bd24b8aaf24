"""What all workers of a test run share is made once, and whole."""

import pytest
from support import worker_shared


@pytest.mark.parametrize("is_folder", [True, False])
def test_what_was_not_finished_is_made_anew(tmp_path, monkeypatch, is_folder):
    """The next who asks begins with nothing: initdb refuses a folder that another one, killed, has begun."""
    monkeypatch.setenv(worker_shared.VARIABLE, str(tmp_path))
    n_made = []

    def make(path):
        assert not path.exists()
        if is_folder:
            path.mkdir()
        (path / "file" if is_folder else path).write_text("begun")
        n_made.append(path)
        if len(n_made) == 1:
            raise TimeoutError("it took too long")

    with pytest.raises(TimeoutError):
        worker_shared.made_once("made", make)
    made = worker_shared.made_once("made", make)
    assert made.exists()
    assert worker_shared.made_once("made", make) == made
    assert len(n_made) == 2
