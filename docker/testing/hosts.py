"""Tests what docker/README.md takes to hosts of their own: a helper, and then the enrolment key."""

import os
import shlex
import tempfile
from pathlib import Path

from stack import PROJECT, Stack, wait_until
from trial import after, completed

HELPER = "foltr-helper"
_USER = 10001
_ENROL = "foltr helper enrol west --operator foltr --out /tmp/west >&2 && cat /tmp/west"


def move_helper(stack: Stack, compose: Path, policy: str) -> str:
    """Put a helper of compose.helper.yaml in the place of `helper-north`. Raises StackError if no round completes then.

    Afterwards the enrolment key is taken away, and the stack must start again without it.

    Args:
        policy: options of `foltr policy new`.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "helper.json")
        file.write_text(stack.command("operator", "sh", "-c", _ENROL), encoding="utf-8")
        os.chown(file, _USER, _USER)
        file.chmod(0o400)
        given = {"FOLTR_BROKER_URL": "mqtts://mosquitto:8883", "FOLTR_HELPER_CREDENTIALS": str(file)}
        alone = Stack(compose, PROJECT / "docker/compose.helper.yaml", HELPER, given)
        with alone.tried():
            alone.up("helper")
            alone.join(f"{stack.project}_broker")
            sign_policy(stack, alone.execute("helper", "foltr", "helper", "keys"), policy)
            # The federator reads the policy when it starts.
            stack.remove_containers([*stack.containers("helper-north"), *stack.containers("federator")])
            start_again(stack)
            alone.wait_healthy("helper")
            stack.command("operator", "rm", "-r", "foltr")
            start_again(stack)
    return "a helper of compose.helper.yaml took the place of one, and the stack starts without the enrolment key"


def sign_policy(stack: Stack, keys: str, options: str) -> None:
    """Sign a policy with the keys of the helper alone and of `helper-south`."""
    south = stack.execute("helper-south", "foltr", "helper", "keys")
    put = "; ".join(f"printf %s {shlex.quote(text)} >/tmp/{name}" for name, text in (("west", keys), ("south", south)))
    new = f"foltr policy new --operator foltr --helper /tmp/west --helper /tmp/south {options}"
    stack.command("operator", "sh", "-c", f"{put}; {new}")


def start_again(stack: Stack) -> None:
    """Do what another `up` does, and wait for a completed round."""
    stack.once("setup", again=True)
    stack.once("announce", again=True)
    before = max(completed(stack))
    stack.up("federator")
    wait_until("a completed round", lambda: len(after(completed(stack), before)) > 0, 240.0, every_s=1.0)
