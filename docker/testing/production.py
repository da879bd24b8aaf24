"""Tests docker/compose.production.yaml: kills in mid-round, an upgrade, a forgotten device, backups.

Its sums are secure, opened by both helpers. Under a meaningful privacy promise the noise hides what twenty devices
learn, so model quality is tested in the other stack.
"""

import json
import os
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hosts import move_helper
from stack import PROJECT, Stack, StackError, image_of, run, wait_until
from trial import N_DEVICES, after, completed
from watching import look_at

PRODUCTION = "foltr-production"
KILLED = ("federator", "mosquitto", "postgres", "helper-north")
FORGOTTEN = f"device-{N_DEVICES:04d}"
FEDERATION = "production"
_OPERATOR = ("--operator", "/operator/foltr")
_KEY = ("--key", "/run/federator/credentials.json")
_HELD = "Order it: foltr erasure allow-reset 1"
_RECEIPT = "/tmp/receipt.jws"  # noqa: S108 (the container's own)
_AGAIN = "/tmp/again.json"  # noqa: S108
_ENVIRONMENT = {
    "FOLTR_DEVICES": str(N_DEVICES),
    # Two may be missing, so rounds continue without the forgotten device.
    "FOLTR_POLICY": f"--clients {N_DEVICES} --rounds 1000 --participations 1000 --n-min {N_DEVICES - 2}",
    "FOLTR_MIN_CLIENTS": str(N_DEVICES - 2),
    "FOLTR_MAX_CLIENTS": "100",
    "FOLTR_MIN_TIME_S": "6",
    "FOLTR_MAX_TIME_S": "60",
    "FOLTR_UNLEARN_EVERY_S": "1",
}


def run_in_production(compose: Path) -> Iterator[str]:
    """Yield lines that describe the results. Raises StackError for a wrong one."""
    stack = Stack(compose, PROJECT / "docker/compose.production.yaml", PRODUCTION, _ENVIRONMENT)
    with stack.tried():
        yield bring_up(stack)
        yield use_tokens_again(stack)
        yield look_at(stack, "federator", "helper-north", "helper-south")
        for service in KILLED:
            yield kill_in_mid_round(stack, service)
        yield stand_by(stack)
        yield upgrade(stack)
        yield back_up(stack)
        yield forget(stack)
        # Two minutes: the first round of a new policy comes late.
        if "FOLTR_TEST_NIGHTLY" in os.environ:
            yield move_helper(stack, compose, _ENVIRONMENT["FOLTR_POLICY"])


def bring_up(stack: Stack) -> str:
    """Start the services in the order of the file: first as without the profile `trial`, then its devices."""
    stack.once("setup")
    stack.up("mosquitto", "postgres")
    stack.wait_healthy("mosquitto", "postgres")
    stack.once("migrate")
    stack.once("announce")
    stack.up("helper-north", "helper-south", "federator", "desk", "dashboard")
    stack.wait_healthy("federator", "helper-north", "helper-south", "desk", "dashboard")
    wait_until("the verdict says that devices are missing", lambda: "too_few_devices" in verdict(stack), 60.0)
    stack.up("edge-client", scale={"edge-client": N_DEVICES})
    wait_until("a secure sum of nearly all devices", lambda: max(completed(stack).values(), default=0) > 0, 180.0)
    stack.wait_healthy("federator", "edge-client")
    return f"compose.production.yaml is up: TLS, two helpers, {N_DEVICES} devices that enrolled themselves, secure sums"


def verdict(stack: Stack) -> str:
    """Return what `foltr status` says, which ends with 1 if somebody has to act, with 3 if it is down."""
    return stack.execute("dashboard", "sh", "-c", "foltr status --json || test $? != 2")


def use_tokens_again(stack: Stack) -> str:
    """Check that devices have used their tokens by themselves, and that used tokens give nothing."""
    listed = json.loads(stack.command("operator", "foltr", "device", "tokens", *_OPERATOR, "--json"))["tokens"]
    states = sorted(row["state"] for row in listed)
    if states != ["used"] * N_DEVICES:
        raise StackError(f"tokens: {states}")
    again = ("foltr", "client", "enrol", "--token", "/tokens/device-0001.token", "--out", _AGAIN)
    said = stack.execute("edge-client", "sh", "-c", f"{shlex.join(again)} 2>&1 || test $? = 1")
    if "token_used" not in said:
        raise StackError(f"a used token was used again: {said}")
    return f"{N_DEVICES} tokens are used, and none of them twice"


def kill_in_mid_round(stack: Stack, service: str) -> str:
    """Check that a killed service restarts by itself without losing a completed round or an update."""
    (name,) = stack.containers(service)
    before, (open_round, n_updates) = completed(stack), mid_round(stack)
    started_at = stack.started_at(name)
    stack.kill(name)
    wait_until(f"{service} is started again", lambda: stack.started_at(name) != started_at, 60.0)
    seconds = wait_until(
        f"a completed round after {open_round}, {service} being killed in it",
        lambda: len(after(completed(stack), open_round)) > 0,
        240.0,
        every_s=1.0,
    )
    now = completed(stack)
    if changed := {key: value for key, value in before.items() if now.get(key) != value}:
        raise StackError(f"completed rounds are others after {service} was killed: {changed} in {now}")
    if now.get(open_round, n_updates) < n_updates:
        raise StackError(f"round {open_round} had {n_updates} updates; {service} was killed, now {now[open_round]}")
    return f"killed {service} in round {open_round} with {n_updates} updates: rounds go on after {seconds:.0f} s"


def stand_by(stack: Stack) -> str:
    """Check that of two federators one leads, and that after its kill the other continues its round.

    The killed container restarts at once and stands by, too. Then either of them may lead.
    """
    stack.up("federator", scale={"federator": 2})
    wait_until("a federator stands by", lambda: stack.query("SELECT count(*) FROM standbys") == [["1"]], 60.0)
    hosts = {stack.host_of(name): name for name in stack.containers("federator")}
    leader = leader_of(stack)
    open_round, n_updates = mid_round(stack)
    stack.kill(hosts[host_of(leader)])
    seconds = wait_until("another process leads", lambda: leader_of(stack) not in {"", leader}, 30.0, every_s=0.1)
    who = "it led again" if host_of(leader_of(stack)) == host_of(leader) else "the other one led"
    wait_until("a completed round", lambda: len(after(completed(stack), open_round - 1)) > 0, 180.0)
    counted = completed(stack).get(open_round, n_updates)
    if counted < n_updates:
        raise StackError(f"round {open_round} had {n_updates} updates when its leader was killed, and then {counted}")
    return f"killed the one of two federators that led round {open_round}: {who} after {seconds:.1f} s"


def leader_of(stack: Stack) -> str:
    """Return the process that leads the federation, from PostgreSQL: its host, process number and random part."""
    ((holder,),) = stack.query("SELECT coalesce(holder, '') FROM leases")
    return holder


def host_of(holder: str) -> str:
    return holder.partition(":")[0]


def upgrade(stack: Stack) -> str:
    """Check that a round continues when another image replaces the federator while it is open."""
    image = image_of("federator")
    before = run("podman", "image", "inspect", "--format", "{{.Id}}", image).strip()
    containerfile = f"FROM {image}\nLABEL org.foltr.upgrade=tried\n"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "Containerfile").write_text(containerfile, encoding="utf-8")
        run("podman", "build", "--network=none", "--format=docker", "--quiet", "--tag", image, folder)
    try:
        open_round, n_updates = mid_round(stack)
        stack.remove_containers(stack.containers("federator"))
        kept = updates_of(stack, open_round)
        stack.once("migrate", again=True)
        stack.up("federator")
        wait_until("a completed round", lambda: len(after(completed(stack), open_round - 1)) > 0, 180.0)
    finally:
        run("podman", "tag", before, image)
    counted = completed(stack).get(open_round, 0)
    if kept < n_updates or counted < kept:
        raise StackError(f"round {open_round} had {n_updates} updates, {kept} in between, and then {counted}")
    return f"upgraded the federator's image: round {open_round} went on with its {kept} updates, {counted} in the end"


def back_up(stack: Stack) -> str:
    """Run the commands of docker/README.md: back up the database, and separately the keys."""
    dump = stack.execute(
        "postgres", "sh", "-c", "pg_dump -U foltr -Fc foltr | pg_restore --list | grep -c 'TABLE DATA'"
    )
    keys = stack.execute("federator", "sh", "-c", "tar --create --directory /data keys | tar --list | grep -c .")
    folder = stack.command("operator", "sh", "-c", "tar --create foltr | tar --list | grep enrolment.key")
    if int(dump) < 5 or int(keys) < 2 or "enrolment.key" not in folder:
        raise StackError(f"backups: {dump} tables, {keys} keys, {folder!r}")
    return f"backed up {int(dump)} tables, the data keys and the operator's folder"


def forget(stack: Stack) -> str:
    """Forget a device by an order over MQTT: its receipt verifies, and its container ends and is not restarted."""
    printed = stack.command("operator", "foltr", "erasure", "request", FORGOTTEN, *_OPERATOR, "--print-payload")
    order = printed.split()[0]
    access = json.loads(stack.command("operator", "cat", "foltr/operator.json"))["broker"]
    topic = f"foltr/v1/{FEDERATION}/operator"
    tell = ("mosquitto_pub", "-h", "localhost", "-p", "8883", "--cafile", "/mosquitto/config/ca.crt", "-q", "1", "-s")
    login = ("-u", access["username"], "-P", access["password"], "-t", topic)
    stack.execute("mosquitto", "sh", "-c", f"echo {order} | base64 -d | {shlex.join((*tell, *login))}")
    receipt = ("foltr", "erasure", "show", FORGOTTEN, "--receipt", _RECEIPT)

    def is_done() -> bool:
        # To forget a client of the first round with a model, learning starts over, which needs the operator's order.
        if _HELD in stack.execute("federator", "foltr", "erasure", "list"):
            stack.command("operator", "foltr", "erasure", "allow-reset", "1", *_OPERATOR)
        return bool(stack.execute("federator", *receipt))

    seconds = wait_until("the receipt", is_done, 240.0, every_s=3.0)
    stack.execute("federator", "foltr", "erasure", "verify", _RECEIPT, *_KEY)
    if [FORGOTTEN] in stack.query("SELECT client_id FROM clients"):
        raise StackError(f"{FORGOTTEN} is still in the database")
    wait_until("its container has ended", lambda: len(_ended(stack)) == 1, 60.0)
    ended = _ended(stack)
    newest = max(completed(stack))
    wait_until("a round without it", lambda: len(after(completed(stack), newest)) > 0, 120.0)
    if _ended(stack) != ended:
        raise StackError("the container of the forgotten device was started again")
    return f"forgot a device by an order over MQTT; its receipt came after {seconds:.0f} s, and verifies"


def _ended(stack: Stack) -> list[str]:
    return [name for name in stack.containers("edge-client") if not stack.is_running(name)]


def mid_round(stack: Stack) -> tuple[int, int]:
    """Wait for an open round with updates. Return its number, and how many."""
    found: list[tuple[int, int]] = []

    def is_open() -> bool:
        rows = stack.query("SELECT round, n_updates FROM round_history WHERE state = 'collecting' AND n_updates > 0")
        found.extend((int(number), int(n_updates)) for number, n_updates in rows)
        return bool(found)

    wait_until("a round is open, with updates", is_open, 120.0, every_s=0.2)
    return found[-1]


def updates_of(stack: Stack, number: int) -> int:
    """Return a round's number of updates in PostgreSQL."""
    rows = stack.query("SELECT round, n_updates FROM round_history")
    return {int(found): int(n_updates) for found, n_updates in rows}[number]
