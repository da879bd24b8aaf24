"""Slots: replicas of one service are devices each, the same ones when they are started anew."""

import pytest
from cli.commands import environment
from support.prepared_processes import PreparedProcess

from foltr.cli.fleet.slots import CREDENTIALS_NAME, take_enrolled_slot, take_new_slot, take_slot
from foltr.core.errors import SettingsError

HOLD = """
import signal, sys
from pathlib import Path
from foltr.cli.fleet.slots import take_new_slot
print(take_new_slot(Path(sys.argv[1]), "device").name, flush=True)
signal.pause()
"""


@pytest.fixture
def replica(tmp_path):
    """Start a process that takes a slot, and keeps it until it is ended; its name comes with it."""
    program, begun = tmp_path / "hold.py", []
    program.write_text(HOLD)

    def start():
        begun.append(PreparedProcess([str(tmp_path / "slots")], environment(), program=program))
        return begun[-1], begun[-1].stdout.readline().strip()

    yield start
    for process in begun:
        process.kill()
        process.communicate()


def test_no_two_processes_have_one_slot_and_one_that_ended_leaves_its_own(tmp_path, replica):
    """However it ended: here by SIGKILL."""
    first, name = replica()
    assert name == "device-0001"
    assert replica()[1] == "device-0002"
    assert take_new_slot(tmp_path / "slots", "device").name == "device-0003"
    first.kill()
    first.wait()
    assert replica()[1] == "device-0001"


def test_a_forgotten_device_leaves_a_slot_that_nobody_takes(tmp_path):
    """Nor are its credentials there any more."""
    slot = take_new_slot(tmp_path, "device")
    slot.credentials.write_text("{}")
    slot.close_for_ever()
    assert not slot.credentials.exists()
    assert take_slot(slot.folder) is None
    assert take_enrolled_slot(tmp_path) is None
    assert take_new_slot(tmp_path, "device").name == "device-0002"


def test_a_slot_with_credentials_is_found_by_them(tmp_path):
    """Whatever the operator has called the device; a folder that cannot be written is a setting's mistake."""
    (tmp_path / "till-7").mkdir()
    assert take_enrolled_slot(tmp_path) is None
    (tmp_path / "till-7" / CREDENTIALS_NAME).write_text("{}")
    assert take_enrolled_slot(tmp_path).name == "till-7"
    assert take_enrolled_slot(tmp_path) is None
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="slots"):
        take_new_slot(tmp_path / "file", "device")
