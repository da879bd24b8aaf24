"""An older version and this one in one federation: who may be upgraded first, and what happens to an open round.

Each trial yields lines that say what was found, and raises TrialError where the two do not get on as was expected.
"""

import time
from collections.abc import Callable, Iterator

from upgrades.deployment import Deployment, TrialError, Version

Trial = Callable[[Deployment, Version, Version], Iterator[str]]
DEVICES = ("device-1", "device-2", "device-3", "device-4")


def federator_first(here: Deployment, old: Version, new: Version) -> Iterator[str]:
    """In the order that docs/upgrade.md says: federator with an open round, devices one by one, the broker's list."""
    here.succeed(old, "device", "enrol", *DEVICES, "--out-dir", "devices")
    here.succeed(old, "db", "upgrade", "--db", here.db)
    here.federator(old, 3, 4)
    for name in DEVICES:
        here.device(name, old)
    here.learn(3, n_updates=3)
    here.stop("device-3", "device-4")
    here.until("two updates wait for a third", lambda: here.waiting_updates() == 2)
    here.stop("federator")
    ((number, _),) = here.ask("SELECT round, n_updates FROM round_history WHERE state = 'collecting'")
    yield f"round {number} is open with two updates; the old federator is stopped"

    federator = ("federator", "run", "--credentials", "foltr-operator/federator.json", "--db", here.db)
    schema_differs = schema_of(old) != schema_of(new)
    if schema_differs:
        yield "new federator, old tables: " + here.refused(new, *federator, code=2)
    yield here.succeed(new, "db", "upgrade", "--db", here.db).strip()
    if schema_differs:
        yield "old federator, new tables: " + here.refused(old, *federator, code=2)

    here.federator(new, 3, 4)
    here.device("device-3", old)
    here.until("the open round is completed", lambda: here.completed().get(int(str(number)), 0) >= 3)
    yield f"round {number} is completed with the two updates of before and a third of an old device"
    here.device("device-4", old)
    here.learn(2, n_updates=3)
    yield f"old devices learn with the new federator; refused: {here.refusals() or 'nothing'}"

    for name in DEVICES[:2]:
        here.stop(name)
        here.device(name, new)
    here.learn(2, n_updates=4)
    yield "two devices of the new version with their stores of the old one, two old ones: all four in each round"
    here.configure_broker(new, "--force")
    here.restart_broker()
    for name in DEVICES[2:]:
        here.stop(name)
        here.device(name, new)
    here.learn(3, n_updates=4)
    yield "all devices are new, and the broker has the new access list"
    here.stop("device-4")
    here.device("device-4", old)
    yield f"a device back at the old version, with a store that the new one has opened: {after_a_step_back(here)}"
    here.stop("device-1", "device-2", "device-3", "federator")
    yield from same_bits(here, new)
    yield from operators_commands(here, new)


def after_a_step_back(here: Deployment) -> str:
    """What an old device says of a newer store: it ends in words, or takes part."""
    newest = max(here.completed())

    def takes_part() -> bool:
        own = here.ask(f"SELECT max(round) FROM client_history WHERE client_id = 'device-4' AND round > {newest + 1}")  # noqa: S608
        return own != [(None,)]

    here.until("it ends or takes part", lambda: here.has_ended("device-4") or takes_part())
    if not here.has_ended("device-4"):
        here.stop("device-4")
        return "it takes part"
    code = here.ended("device-4")
    (*_, said) = here.log("device-4").strip().splitlines()
    if code not in (1, 2):
        raise TrialError(f"exit code {code}: {said}")
    return f"exit code {code}, {said}"


def same_bits(here: Deployment, new: Version) -> Iterator[str]:
    """Every completed round gives its model again; no click counts twice."""
    here.check_clicks()
    for number in here.completed():
        here.succeed(new, "rounds", "replay", number, "--db", here.db)
    yield f"{len(here.completed())} rounds replay to the same bits; each device's updates follow one another"


def operators_commands(here: Deployment, new: Version) -> Iterator[str]:
    """The new version's commands with the folder that the old one made."""
    here.federator(new, 1, 4, "--unlearn-after", 1)
    for name in DEVICES[:2]:
        here.device(name, new)
    here.learn(1, n_updates=2)
    here.succeed(new, "device", "quarantine", "device-1", "--db", here.db, "--reason", "tried")
    here.succeed(new, "device", "quarantine", "device-1", "--db", here.db, "--lift")
    here.succeed(new, "device", "revoke", "device-3")
    here.succeed(new, "erasure", "request", "device-4")
    here.until("device-4 is unlearned", lambda: erased(here))
    here.succeed(new, "device", "enrol", "device-5", "--out-dir", "devices")
    here.device("device-5", new)
    here.learn(2, n_updates=3)
    yield "orders, a revocation, an enrolment and an erasure of a client of before are obeyed"


def erased(here: Deployment) -> bool:
    return here.ask("SELECT state FROM erasures") == [("done",)]


def devices_first(here: Deployment, old: Version, new: Version) -> Iterator[str]:
    """The wrong way round: new devices and the new version's commands with an old federator."""
    here.succeed(old, "device", "enrol", *DEVICES[:2], "--out-dir", "devices")
    here.succeed(new, "device", "enrol", *DEVICES[2:], "--out-dir", "devices")
    here.succeed(old, "db", "upgrade", "--db", here.db)
    here.federator(old, 4, 4)
    for name, version in zip(DEVICES, (old, new, old, new), strict=True):
        here.device(name, version)
    here.learn(4, n_updates=4)
    yield f"two new devices and two old ones with an old federator: refused: {here.refusals() or 'nothing'}"
    here.check_clicks()
    here.stop("device-3")
    here.until("the round waits", lambda: here.waiting_updates() == 3)
    (number,) = here.ask("SELECT round FROM round_history WHERE state = 'collecting'")[0]
    here.succeed(new, "rounds", "deadline", number, "--max-time", 900)
    here.succeed(new, "device", "revoke", "device-4")
    yield "the old federator obeys orders of the new version's commands"
    if schema_of(old) != schema_of(new):
        yield "foltr status: " + here.refused(new, "status", "--db", here.db, code=2)


def tables_under_a_running_federator(here: Deployment, old: Version, new: Version) -> Iterator[str]:
    """The tables are upgraded by mistake while the old federator runs on them."""
    here.succeed(old, "device", "enrol", *DEVICES, "--out-dir", "devices")
    here.succeed(old, "db", "upgrade", "--db", here.db)
    here.federator(old, 3, 4)
    for name in DEVICES:
        here.device(name, old)
    here.learn(2, n_updates=3)
    here.succeed(new, "db", "upgrade", "--db", here.db)
    newest = max(here.completed())
    here.until(
        "the old federator ends or goes on", lambda: here.has_ended("federator") or max(here.completed()) > newest + 3
    )
    if here.has_ended("federator"):
        yield f"the old federator ends with {here.ended('federator')}: {here.log('federator').splitlines()[-1]}"
    else:
        here.stop("federator")
        yield "the old federator goes on, and can be stopped"
    here.federator(new, 3, 4)
    here.learn(3, n_updates=3)
    here.stop(*DEVICES, "federator")
    yield from same_bits(here, new)


def helpers_first(here: Deployment, old: Version, new: Version) -> Iterator[str]:
    """Secure sums in the order that docs/upgrade.md says: helpers, the federator with an open round, devices."""
    yield from secure_beginning(here, old, old)
    for name in ("north", "south"):
        here.stop(name)
        here.start(name, new, "helper", "run", "--credentials", f"{name}.json")
    here.learn(2, n_updates=4)
    yield "new helpers, old federator, old devices: sums are opened"
    yield from federator_in_mid_round(here, old, new)
    for name in DEVICES:
        here.stop(name)
        here.device(name, new)
    here.learn(2, n_updates=4)
    yield "new devices with their stores and what they have spent"
    yield from newer_policy(here, new)


def helpers_last(here: Deployment, old: Version, new: Version) -> Iterator[str]:
    """Secure sums in another order: the federator, devices, and helpers at the end."""
    yield from secure_beginning(here, old, old)
    yield from federator_in_mid_round(here, old, new)
    for name in DEVICES:
        here.stop(name)
        here.device(name, new)
    here.learn(2, n_updates=4)
    yield "new federator, new devices, old helpers: sums are opened"
    for name in ("north", "south"):
        here.stop(name)
        here.start(name, new, "helper", "run", "--credentials", f"{name}.json")
    here.learn(2, n_updates=4)
    yield "new helpers with their stores of before"
    yield from newer_policy(here, new)


def policy_too_early(here: Deployment, old: Version, new: Version) -> Iterator[str]:
    """A policy of the new version is published while helpers, federator and two devices are old."""
    yield from secure_beginning(here, old, old)
    for name in DEVICES[:2]:
        here.stop(name)
        here.device(name, new)
    here.learn(1, n_updates=4)
    publish_policy(here, new)
    newest = max(here.completed())
    time.sleep(20)
    n_after = [n for number, n in here.completed().items() if number > newest]
    told = here.ask("SELECT kind, code, detail FROM events WHERE kind LIKE 'policy%' ORDER BY id DESC LIMIT 1")
    yield f"20 s after a policy of the new version: rounds with {n_after or 'no'} updates; the event is {told}"
    yield f"helper: {last_trouble(here.log('north'))!r}, old device: {last_trouble(here.log('device-3'))!r}"
    here.stop("federator")
    here.succeed(new, "db", "upgrade", "--db", here.db)
    for name in ("north", "south"):
        here.stop(name)
        here.start(name, new, "helper", "run", "--credentials", f"{name}.json")
    here.federator(new, 4, 5, "--privacy", "secure")
    for name in DEVICES[2:]:
        here.stop(name)
        here.device(name, new)
    ((number,),) = here.ask("SELECT round FROM round_history WHERE state = 'collecting'")
    here.succeed(new, "rounds", "deadline", number, "--max-time", 1)
    here.learn(2, n_updates=4)
    yield f"all are new, and round {number}, under the older policy, has been ended: rounds go on"


def secure_beginning(here: Deployment, old: Version, helpers: Version) -> Iterator[str]:
    """A secure federation of four devices, all of the old version, that has learned for two rounds."""
    for name in ("north", "south"):
        here.succeed(old, "helper", "enrol", name, "--out", f"{name}.json")
    here.succeed(old, "device", "enrol", *DEVICES, "--out-dir", "devices")
    publish_policy(here, old)
    here.succeed(old, "db", "upgrade", "--db", here.db)
    for name in ("north", "south"):
        here.start(name, helpers, "helper", "run", "--credentials", f"{name}.json")
    here.federator(old, 4, 5, "--privacy", "secure")
    for name in DEVICES:
        here.device(name, old)
    here.learn(2, n_updates=4)
    yield "an old secure federation has learned"


def publish_policy(here: Deployment, version: Version) -> None:
    """Make a policy from new keys of the helpers, and publish it where a federation runs."""
    names = ("north", "south")
    keys = []
    for name in names:
        keys.append(f"{name}-{time.monotonic_ns()}.keys")
        here.succeed(version, "helper", "keys", "--credentials", f"{name}.json", "--out", keys[-1])
    helpers = [part for key in keys for part in ("--helper", key)]
    terms = ("--clients", "4", "--rounds", "2000", "--participations", "2000", "--n-min", "4", "--dim", "136")
    here.succeed(version, "policy", "new", *helpers, *terms)
    here.succeed(version, "policy", "publish")


def federator_in_mid_round(here: Deployment, old: Version, new: Version) -> Iterator[str]:
    """Two masked updates are in the open round when the federator is upgraded; two more complete it."""
    here.stop("device-3", "device-4")
    here.until("two masked updates wait", lambda: here.waiting_updates() == 2)
    here.stop("federator")
    ((number, _),) = here.ask("SELECT round, n_updates FROM round_history WHERE state = 'collecting'")
    here.succeed(new, "db", "upgrade", "--db", here.db)
    here.federator(new, 4, 5, "--privacy", "secure")
    for name in DEVICES[2:]:
        here.device(name, old)
    here.until("the open round is completed", lambda: here.completed().get(int(str(number)), 0) == 4)
    here.learn(2, n_updates=4)
    yield f"round {number} was open with two masked updates: the new federator completes it with them"


def newer_policy(here: Deployment, new: Version) -> Iterator[str]:
    """A policy of the new version holds once everybody is new; what was computed before follows from what is stored."""
    adopted = "SELECT count(*) FROM events WHERE kind = 'policy_adopted'"
    before = here.ask(adopted)
    publish_policy(here, new)
    here.until("the newer policy holds", lambda: here.ask(adopted) != before)
    here.learn(2, n_updates=4)
    here.stop(*DEVICES, "federator")
    yield "a policy of the new version holds, and sums are opened under it"
    yield from same_bits(here, new)


def last_trouble(log: str) -> str:
    """The newest line that is no mere information."""
    lines = [line for line in log.splitlines() if "[warning" in line or "[error" in line]
    return lines[-1].partition("] ")[2] if lines else ""


def schema_of(version: Version) -> str:
    """The newest revision of the tables that a version knows."""
    return max(str(path.name[:4]) for path in (version.checkout / "migrations/versions").glob("0*.py"))


TRIALS: dict[str, Trial] = {
    trial.__name__: trial
    for trial in (
        federator_first,
        devices_first,
        tables_under_a_running_federator,
        helpers_first,
        helpers_last,
        policy_too_early,
    )
}
