"""A process shows that its work goes on by the age of a file."""

import pytest

from foltr.core.alive_file import NO_ALIVE_FILE, AliveFile
from foltr.core.errors import SettingsError


def test_the_file_is_there_once_the_work_goes_on(tmp_path):
    """A place that cannot be written is an error at once."""
    path = tmp_path / "run" / "alive"
    path.parent.mkdir()
    path.touch()
    alive = AliveFile(path)
    assert not path.exists()
    alive.touch()
    assert path.exists()
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="alive_file"):
        AliveFile(tmp_path / "file" / "alive")
    alive = AliveFile(tmp_path / "gone" / "alive")
    (tmp_path / "gone").rmdir()
    alive.touch()
    NO_ALIVE_FILE.touch()
