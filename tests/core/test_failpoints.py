"""Failpoints do what the environment asks for, and nothing where it asks for nothing."""

import signal
import subprocess
import sys
from contextlib import nullcontext

import pytest
from cli.commands import environment, foltr_fresh
from support.completed_process import completed

from foltr.core.errors import SettingsError
from foltr.core.failpoints import VARIABLE, Failpoint, Failpoints, failpoint

THRICE = """
from foltr.core.failpoints import Failpoint, failpoint
for number in (1, 2, 3):
    failpoint(Failpoint.BATCH_COMMITTED)
    print(number, flush=True)
"""


def pass_three_times(setting: str) -> subprocess.CompletedProcess[str]:
    return completed([sys.executable, "-c", THRICE], env=environment(**{VARIABLE: setting}))


def test_without_the_variable_nothing_is_active():
    """The normal case: no failpoint is read from anywhere, and passing all of them does nothing."""
    for name in Failpoint:
        failpoint(name)
        Failpoints("").reach(name)
    assert pass_three_times("").stdout == "1\n2\n3\n"


def test_a_process_is_killed_at_the_pass_it_was_told():
    """``kill@2`` is SIGKILL at the second pass, ``kill`` at the first; a point that is not named does nothing."""
    done = pass_three_times("batch_committed=kill@2")
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "1\n")
    assert pass_three_times("batch_committed=kill").stdout == ""
    done = pass_three_times("round_completed=kill")
    assert (done.returncode, done.stdout) == (0, "1\n2\n3\n")


def test_an_error_is_raised_every_time_or_at_the_pass_it_was_told():
    """``error``: OSError, for storage a passing failure; a slip in a failpoint must not pass for want of one."""
    failpoints = Failpoints("aggregated=error,receipt_sent=error@2,")
    for passing in (1, 2, 3):
        with pytest.raises(OSError, match="failpoint aggregated"):
            failpoints.reach(Failpoint.AGGREGATED)
        raised = pytest.raises(OSError, match="failpoint receipt_sent") if passing == 2 else nullcontext()
        with raised:
            failpoints.reach(Failpoint.RECEIPT_SENT)
    for action in ["", "stop", "kill@", "kill@0", "kill@-1", "kill@two", "kill@1@2", "Kill", "error @1"]:
        with pytest.raises(SettingsError, match=f"{VARIABLE}: 'aggregated=.*aggregated=kill"):
            Failpoints(f"aggregated={action}")
    done = foltr_fresh("federator", "run", "--allow-unsigned", **{VARIABLE: "batch_comitted=kill"})
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert done.stderr.startswith(f"error: {VARIABLE}: unknown failpoint 'batch_comitted'; known are federation_cl")
