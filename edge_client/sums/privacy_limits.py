"""A device limits what a policy may cost its user: it takes no part under one that promises less.

A device checks that a policy's noise is enough for its stated epsilon. But the operator alone should not choose that.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from foltr.core.errors import SettingsError

if TYPE_CHECKING:
    from foltr.core.protocol.policies import Policy


@dataclass(frozen=True)
class PrivacyLimits:
    """Limits of one device. A policy's epsilon and delta cover all participations of its life together.

    The defaults admit the defaults of `foltr policy new` (8, 1e-6, cohorts of 10 or more) and little more.

    Args:
        max_epsilon: the highest epsilon of a policy that the device takes part under. At 10 one participant more or
            less makes an outcome up to 22,000 times as likely: above it a promise says next to nothing.
        max_delta: the highest delta: the probability that the promise fails. It must be far below 1 / participants.
        min_cohort: the fewest clients (``n_min``) of a sum that is opened. Epsilon does not depend on it; but in a sum
            of few clients only the noise hides each one's data.

    Raises:
        SettingsError: a number is out of range.
    """

    max_epsilon: float = 10.0
    max_delta: float = 1e-5
    min_cohort: int = 10

    def __post_init__(self) -> None:
        if not 0.0 < self.max_epsilon <= 1e6:
            raise SettingsError(f"privacy_limits: max_epsilon is {self.max_epsilon}; choose one above 0, up to 1e6")
        if not 0.0 < self.max_delta < 1.0:
            raise SettingsError(f"privacy_limits: max_delta is {self.max_delta}; choose one between 0 and 1")
        if self.min_cohort < 2:
            raise SettingsError(f"privacy_limits: min_cohort is {self.min_cohort}, below 2")

    def excess_of(self, policy: "Policy") -> str | None:
        """Return which limits a policy exceeds; None if it is within all."""
        beyond = []
        if policy.epsilon > self.max_epsilon:
            beyond.append(f"epsilon {policy.epsilon:g} is above {self.max_epsilon:g} (max_epsilon)")
        # Also if the policy claims no epsilon: what was spent under an earlier policy is judged by delta.
        if policy.delta > self.max_delta:
            beyond.append(f"delta {policy.delta:g} is above {self.max_delta:g} (max_delta)")
        if policy.n_min < self.min_cohort:
            beyond.append(
                f"a sum may have only {policy.n_min} clients, but this device asks for {self.min_cohort} (min_cohort)"
            )
        return "; ".join(beyond) or None


USUAL_PRIVACY = PrivacyLimits()
