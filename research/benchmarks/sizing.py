"""A sizing sheet: what a fleet needs of broker, federator and disk, by the constants in docs/growth/growth.json.

Run: python research/benchmarks/sizing.py --devices 1000000 [--dim 136] [--updates 500] [--every 600] [--constants FILE]

``--devices`` is the size of the fleet, ``--updates`` the updates of a round, ``--every`` the seconds from one round to
the next. The sheet has a column for devices that are connected all the time, and one for devices that take turns
(``updates_per_round``), both over TLS with passwords. A share is of one core of the measured machine. Mosquitto uses
one core, and so does a federator except for rules and large sums. A share above a half leaves no room for a bad moment.

A connected device receives each announcement, and has a heartbeat and a keepalive every 30 s. A device that takes turns
connects, reads the retained messages, contributes and leaves, as often as rounds need its update, but at least once a
day (``longest_period_s``; federator/pace.py).
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tables import number, table

CONSTANTS = Path(__file__).parents[2] / "docs" / "growth" / "growth.json"
HEARTBEAT_S = KEEPALIVE_S = 30.0
HEARTBEAT_BYTES = 300
VISIT_S = 1.0
KEY_FILE_BYTES = 4096
BUSY = 0.5
SHORTEST_PERIOD_S, LONGEST_PERIOD_S = 60.0, 86_400.0
BROKER_LIMIT_MB = 2147.0
"""The memory_limit in `foltr broker config`. At this limit Mosquitto disconnects publishers."""


@dataclass(frozen=True)
class Constants:
    """Measured constants: milliseconds of CPU time, megabytes of 10^6 bytes, bytes.

    Attributes:
        federator_round_ms, federator_update_ms, federator_weight_ms: per round, per update, per weight of an update.
        federator_visit_ms, broker_visit_ms: per visit of a device that takes turns, with its update.
        federator_mb_per_client, federator_mb_per_weight: per client with its update, and per weight of one.
        broker_connect_ms, broker_connect_ms_per_connection: per connection, the mean over all; the second is added per
            existing connection, because Mosquitto searches the earlier subscribers.
        broker_delivery_ms, broker_byte_ms: per connection that receives an announcement, and per byte of it.
        heard_messages, heard_bytes, heard_bytes_per_weight: received by a device in a round.
        client_bytes, stored_bytes, stored_bytes_per_weight: of the database, per client, and per update.
    """

    federator_round_ms: float
    federator_update_ms: float
    federator_weight_ms: float
    federator_join_ms: float
    federator_visit_ms: float
    federator_mb: float
    federator_mb_per_client: float
    federator_mb_per_weight: float
    broker_update_ms: float
    broker_weight_ms: float
    broker_connect_ms: float
    broker_connect_ms_per_connection: float
    broker_visit_ms: float
    broker_ping_ms: float
    broker_delivery_ms: float
    broker_byte_ms: float
    broker_mb: float
    broker_mb_per_connection: float
    heard_messages: float
    heard_bytes: float
    heard_bytes_per_weight: float
    client_bytes: float
    stored_bytes: float
    stored_bytes_per_weight: float


@dataclass(frozen=True)
class Plan:
    """A planned federation.

    Attributes:
        devices: total number.
        dim: weights of the ranker.
        updates: of each round, each from a different device.
        every_s: seconds from one round to the next.
    """

    devices: int
    dim: int = 136
    updates: int = 500
    every_s: float = 600.0

    def __post_init__(self) -> None:
        if min(self.devices, self.dim, self.updates, self.every_s) <= 0:
            raise ValueError(f"{self}: each number is above 0")


@dataclass(frozen=True)
class Sheet:
    """The resources for a plan. Shares are of one core on average, megabytes of 10^6 bytes.

    Attributes:
        period_s: time between visits of a device; None if it stays connected.
        visits_per_s: visits per second.
        every_s: seconds from one round to the next: less than planned if devices may not stay away so long.
        sent_bytes: sent by the broker in a round, to all devices together.
        announcing_s: the broker's CPU seconds for a round's announcements; no round is shorter.
        burst_mb: queued in the broker if all devices are slow to receive a model.
        return_s: CPU seconds of broker and federator, added up, until all are back after an outage; None for devices
            that take turns.
    """

    period_s: float | None
    visits_per_s: float
    every_s: float
    sent_bytes: float
    announcing_s: float
    broker_share: float
    broker_mb: float
    burst_mb: float
    return_s: float | None
    federator_share: float
    federator_mb: float
    disk_bytes: float
    stored_bytes_per_day: float


def connected_sheet(plan: Plan, known: Constants) -> Sheet:
    """Return the resources if all devices stay connected."""
    updates = min(plan.updates, plan.devices)
    model_bytes = known.heard_bytes + known.heard_bytes_per_weight * plan.dim
    announcing_ms = plan.devices * (
        known.heard_messages * known.broker_delivery_ms + known.broker_byte_ms * model_bytes
    )
    taking_ms = updates * (known.broker_update_ms + known.broker_weight_ms * plan.dim)
    beat_ms = known.broker_delivery_ms + known.broker_byte_ms * HEARTBEAT_BYTES
    idle_ms_per_s = plan.devices * (beat_ms / HEARTBEAT_S + known.broker_ping_ms / KEEPALIVE_S)
    connect_ms = known.broker_connect_ms + known.broker_connect_ms_per_connection * plan.devices
    update_ms = known.federator_update_ms + known.federator_weight_ms * plan.dim
    return Sheet(
        period_s=None,
        visits_per_s=0.0,
        every_s=plan.every_s,
        sent_bytes=plan.devices * model_bytes,
        announcing_s=1e-3 * announcing_ms,
        broker_share=1e-3 * (idle_ms_per_s + (announcing_ms + taking_ms) / plan.every_s),
        broker_mb=known.broker_mb + plan.devices * known.broker_mb_per_connection,
        burst_mb=1e-6 * plan.devices * model_bytes,
        return_s=1e-3 * plan.devices * (connect_ms + known.federator_join_ms),
        federator_share=1e-3 * (known.federator_round_ms + updates * update_ms) / plan.every_s,
        **_kept(plan, known, updates, plan.every_s),
    )


def paced_sheet(plan: Plan, known: Constants) -> Sheet:
    """Return the resources if devices take turns."""
    updates = min(plan.updates, plan.devices)
    period_s = min(max(plan.devices * plan.every_s / updates, SHORTEST_PERIOD_S), LONGEST_PERIOD_S)
    visits_per_s = plan.devices / period_s
    every_s = updates / visits_per_s
    model_bytes = known.heard_bytes + known.heard_bytes_per_weight * plan.dim
    visit_ms = (
        known.broker_visit_ms
        + (known.broker_weight_ms + known.broker_byte_ms * known.heard_bytes_per_weight) * plan.dim
    )
    # Devices present when a round is announced receive it, too; each stays for about a second.
    n_there = visits_per_s * VISIT_S
    return Sheet(
        period_s=period_s,
        visits_per_s=visits_per_s,
        every_s=every_s,
        sent_bytes=(updates + n_there) * model_bytes,
        announcing_s=1e-3
        * n_there
        * (known.heard_messages * known.broker_delivery_ms + known.broker_byte_ms * model_bytes),
        broker_share=1e-3 * visits_per_s * visit_ms,
        broker_mb=known.broker_mb + n_there * known.broker_mb_per_connection,
        burst_mb=1e-6 * n_there * model_bytes,
        # Only devices that missed their visit return, within a quarter of a period.
        return_s=None,
        federator_share=1e-3
        * (
            known.federator_round_ms / every_s
            + visits_per_s * (known.federator_visit_ms + known.federator_weight_ms * plan.dim)
        ),
        **_kept(plan, known, updates, every_s),
    )


def _kept(plan: Plan, known: Constants, updates: int, every_s: float) -> dict[str, float]:
    """Return the memory and disk space, which do not depend on how devices connect."""
    update_bytes = known.stored_bytes + known.stored_bytes_per_weight * plan.dim
    of_updates_mb = updates * known.federator_mb_per_weight * plan.dim
    return {
        "federator_mb": known.federator_mb + plan.devices * known.federator_mb_per_client + of_updates_mb,
        "disk_bytes": plan.devices * (known.client_bytes + KEY_FILE_BYTES),
        "stored_bytes_per_day": update_bytes * updates * 86_400.0 / every_s,
    }


ROWS: dict[str, Callable[[Sheet], str]] = {
    "a device visits every": lambda sheet: "" if sheet.period_s is None else lasting(sheet.period_s),
    "visits a second": lambda sheet: "" if sheet.period_s is None else number(sheet.visits_per_s),
    "a round every": lambda sheet: lasting(sheet.every_s),
    "sent to devices in a round": lambda sheet: size(sheet.sent_bytes),
    "Mosquitto, processor time to announce a round": lambda sheet: lasting(sheet.announcing_s),
    "Mosquitto, share of its core": lambda sheet: share(sheet.broker_share),
    "Mosquitto, memory": lambda sheet: size(1e6 * sheet.broker_mb),
    "waiting in Mosquitto if devices are slow": lambda sheet: size(1e6 * sheet.burst_mb),
    "processor time to reconnect all": lambda sheet: "" if sheet.return_s is None else lasting(sheet.return_s),
    "the federator, share of its core": lambda sheet: share(sheet.federator_share),
    "the federator, memory": lambda sheet: size(1e6 * sheet.federator_mb),
    "disk for clients and their keys": lambda sheet: size(sheet.disk_bytes),
    "disk for updates, a day": lambda sheet: size(sheet.stored_bytes_per_day),
}


def sheet_table(plan: Plan, known: Constants) -> str:
    """Return both sheets as a table of Markdown."""
    sheets = connected_sheet(plan, known), paced_sheet(plan, known)
    return table(("", "all connected", "taking turns"), [(name, *map(row, sheets)) for name, row in ROWS.items()])


def advice(plan: Plan, known: Constants) -> list[str]:
    """Describe what is not or barely possible, and what to do."""
    connected, paced = connected_sheet(plan, known), paced_sheet(plan, known)
    found = []
    if connected.announcing_s > plan.every_s:
        found.append(
            "All connected: announcing a round takes Mosquitto longer than the round may; devices have to take turns."
        )
    elif connected.broker_share > BUSY:
        found.append("All connected: Mosquitto's core is more than half busy; have devices take turns.")
    if connected.burst_mb > BROKER_LIMIT_MB:
        found.append(
            "All connected: a model to all may fill Mosquitto's memory_limit, and then it disconnects publishers; "
            "raise it, or have devices take turns."
        )
    if paced.federator_share > BUSY:
        found.append(
            "Taking turns: the federator's core is more than half busy; have ingest workers, or longer periods."
        )
    if paced.broker_share > BUSY:
        found.append("Taking turns: Mosquitto's core is more than half busy; raise longest_period_s.")
    return found


def lasting(seconds: float) -> str:
    """Format seconds in the unit with few digits."""
    if seconds < 1e-3:
        return "under 1 ms"
    for unit, length in (("days", 86_400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0)):
        if seconds >= 2 * length or (unit == "s" and seconds >= 1.0):
            return f"{number(seconds / length)} {unit}"
    return f"{number(1e3 * seconds)} ms"


def size(n_bytes: float) -> str:
    """Format bytes in the unit with few digits."""
    for unit, length in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if n_bytes >= length:
            return f"{number(n_bytes / length)} {unit}"
    return f"{number(n_bytes / 1e3)} kB"


def share(of_core: float) -> str:
    """Format a share of a core, marked if it is too high."""
    text = f"{of_core:.2%}" if of_core < 0.01 else f"{of_core:.0%}"
    return f"**{text}**" if of_core > BUSY else text


def read_constants(file: Path = CONSTANTS) -> Constants:
    return Constants(**json.loads(file.read_text())["constants"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, required=True)
    parser.add_argument("--dim", type=int, default=Plan.dim, help="weights of the ranker")
    parser.add_argument("--updates", type=int, default=Plan.updates, help="of a round")
    parser.add_argument("--every", type=float, default=Plan.every_s, help="seconds from one round to the next")
    parser.add_argument("--constants", type=Path, default=CONSTANTS, metavar="FILE", help="what growth.py wrote")
    options = parser.parse_args()
    try:
        plan = Plan(options.devices, options.dim, options.updates, options.every)
    except ValueError as error:
        parser.error(str(error))
    known = read_constants(options.constants)
    print(sheet_table(plan, known))
    for line in advice(plan, known):
        print(line)


if __name__ == "__main__":
    main()
