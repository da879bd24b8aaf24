"""What ``foltr doctor`` says of the federator: whether it is there, by the heartbeat that the broker retains."""

import time

from foltr.cli.doctor.checks import Finding, State
from foltr.protocol.heartbeat import FederatorStatus

WHAT = "federator"
# A beat that is late by this machine's clock: three are missing, or the clocks differ.
_MISSED_BEATS = 3
_START = "Start it: foltr federator run"


def federator_finding(status: FederatorStatus | None, *, is_over: bool) -> Finding:
    """Say whether the federator is there.

    Args:
        status: its newest, as the broker retains it, and signed by it; None where there is none.
        is_over: the federation's last round has ended, after which a federator stops.
    """
    if status is None:
        detail = f"the broker has no heartbeat of it: it has not run since this broker lost what it retained. {_START}"
        return Finding(WHAT, State.WARNING, detail)
    if not status.online:
        if is_over:
            return Finding(WHAT, State.OK, "it is away, after its last round")
        detail = "it is not running, or has lost the broker, which says that it is away"
        return Finding(WHAT, State.PROBLEM, f"{detail}. {_START}")
    age = f"{max(0.0, time.time() - status.at):.0f} s ago by this machine's clock"
    if time.time() - status.at > _MISSED_BEATS * status.interval_s:
        detail = (
            f"it beats every {status.interval_s:g} s, and the last beat is from {age}: it hangs or cannot reach its "
            "database, or the clocks differ. Look at its log"
        )
        return Finding(WHAT, State.WARNING, detail)
    return Finding(WHAT, State.OK, f"it is there: foltr {status.software_version}, its last beat is from {age}")
