"""A pace: how often devices visit. The federator announces it, and devices connect for visits only.

Pace steering of Bonawitz et al. 2019, "Towards Federated Learning at Scale: System Design", Section 2.3: the server
suggests when to come again, so that just as many devices are online as a round needs, and so that they never come in
step. Here it is one number, the period. After a visit a device draws the moment of the next one uniformly from the
window of a period's length that begins half a period later. So it comes once a period in the mean, is never away for
longer than one and a half, and devices that come together now do not come together again.
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
"""When it tries again after a failed visit, in periods: devices that a broker missed come back spread out."""
# A device that was off when it should have come is back soon, but a fleet that was off together comes back spread out.
OVERDUE_SPREAD_S = 60.0

Period = Annotated[float, Field(ge=SHORTEST_PERIOD_S, le=LONGEST_PERIOD_S, allow_inf_nan=False)]


class Pace(InFederation):
    """Federator to all, retained: connect once in ``period_s`` seconds, and do not stay connected.

    It holds only for the epoch in its sequence number, like an `EvaluationRequest`: a federator without a pace leaves
    its predecessor's at the broker.
    """

    kind_name: ClassVar[str] = "pace"
    period_s: Period


def first_pause_s(period_s: float, rng: random.Random) -> float:
    """Draw when a device that has just received a pace comes again: a whole fleet may have received it at once."""
    return rng.uniform(0.0, period_s)


def next_pause_s(period_s: float, rng: random.Random) -> float:
    """Draw how long after a visit the next one is, in seconds; ``period_s`` in the mean."""
    return period_s * rng.uniform(*WINDOW)


def retry_pause_s(period_s: float, rng: random.Random) -> float:
    """Draw how long after a visit that did not reach the broker the next attempt is, in seconds."""
    return period_s * rng.uniform(*RETRY_WINDOW)


def overdue_pause_s(overdue_s: float, rng: random.Random) -> float:
    """Draw how soon a device comes whose visit is overdue: at once if only just."""
    return rng.uniform(0.0, min(max(0.0, overdue_s), OVERDUE_SPREAD_S))


def latest_pause_s(period_s: float) -> float:
    """Return the latest time, in seconds after its last visit, at which a device with this period comes again."""
    return WINDOW[1] * period_s
