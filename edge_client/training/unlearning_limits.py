"""A device limits what unlearning jobs may ask of it, since each answer reveals something of its user's clicks.

A live round uses each click once. A step uses kept clicks again, learned from weights of the federator's choice: asked
without end, of few clicks at a time, the answers would reveal them.
"""

from dataclasses import dataclass

from foltr.core.errors import SettingsError
from foltr.core.unlearning.schedule import FEWEST_INTERACTIONS, STEPS_A_DAY


@dataclass(frozen=True)
class UnlearningLimits:
    """Limits of one device; its store counts them in the transaction that makes an answer.

    Args:
        steps_a_day: how many steps are answered on one day by the device's clock, UTC; 0 answers none.
        steps_a_click: in how many steps a kept interaction is learned in its life.
        fewest_interactions: a step is not answered if it asks for fewer, or fewer are left to learn from.

    Raises:
        SettingsError: a number is too small.
    """

    steps_a_day: int = STEPS_A_DAY
    steps_a_click: int = 50
    fewest_interactions: int = FEWEST_INTERACTIONS

    def __post_init__(self) -> None:
        for name, least in (("steps_a_day", 0), ("steps_a_click", 1), ("fewest_interactions", 1)):
            if getattr(self, name) < least:
                raise SettingsError(f"unlearning_limits: {name} is {getattr(self, name)}, below {least}")


USUAL_LIMITS = UnlearningLimits()
