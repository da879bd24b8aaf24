"""A pace is how often devices come by: told by the federator, kept by devices, which are connected for a visit only.

Pace steering of Bonawitz et al. 2019, "Towards Federated Learning at Scale: System Design", Section 2.3: the server
suggests when to come again, so that as many devices are there as a round needs and no more, and so that they never
come in step. Here it is one number, the period. After a visit a device draws the moment of the next one uniformly from
the window of a period's length that begins half a period later: so it comes once a period in the mean, is never away
for longer than one and a half, and whoever comes together now does not come together again.
"""

import random
from typing import Annotated, ClassVar

from pydantic import Field

from foltr.core.protocol.fields import InFederation

SHORTEST_PERIOD_S = 1.0
LONGEST_PERIOD_S = 30 * 86_400.0
WINDOW = (0.5, 1.5)
"""When a device comes again, in periods after its last visit."""
RETRY_WINDOW = (0.0, 0.25)
"""When it tries again after a visit that reached nobody, in periods: those that a broker missed come back spread."""
# Whoever was off when it should have come is there soon, and a fleet that was off together is not there at once.
OVERDUE_SPREAD_S = 60.0

Period = Annotated[float, Field(ge=SHORTEST_PERIOD_S, le=LONGEST_PERIOD_S, allow_inf_nan=False)]


class Pace(InFederation):
    """Federator to all, retained: come by once in ``period_s`` seconds, and do not stay connected.

    It holds for the epoch in its sequence number alone, as an `EvaluationRequest` does: a federator that steers no pace
    leaves at the broker what the one before it said there.
    """

    kind_name: ClassVar[str] = "pace"
    period_s: Period


def first_pause_s(period_s: float, rng: random.Random) -> float:
    """Draw when a device that has just heard of a pace comes again: a whole fleet may have heard it at once."""
    return rng.uniform(0.0, period_s)


def next_pause_s(period_s: float, rng: random.Random) -> float:
    """Draw how long after a visit the next one is, in seconds; ``period_s`` in the mean."""
    return period_s * rng.uniform(*WINDOW)


def retry_pause_s(period_s: float, rng: random.Random) -> float:
    """Draw how long after a visit that did not reach the broker the next attempt is, in seconds."""
    return period_s * rng.uniform(*RETRY_WINDOW)


def overdue_pause_s(overdue_s: float, rng: random.Random) -> float:
    """Draw how soon a device comes that was off when it should have: at once if that was just now."""
    return rng.uniform(0.0, min(max(0.0, overdue_s), OVERDUE_SPREAD_S))


def latest_pause_s(period_s: float) -> float:
    """Return by when a device has come again that goes by this period, in seconds after its last visit."""
    return WINDOW[1] * period_s
