"""A device limits what steps of unlearning jobs may ask of it, since each answer shows something of its user's clicks.

A live round shows each click once. A step asks again for the clicks that were kept, learned from weights of the
federator's choice: asked without end, of few clicks at a time, the answers would show what they are.
"""

from dataclasses import dataclass

from foltr.core.errors import SettingsError
from foltr.core.unlearning.schedule import FEWEST_INTERACTIONS


@dataclass(frozen=True)
class UnlearningLimits:
    """Limits of one device; they are counted in its store, in the transaction that makes an answer.

    Args:
        steps_a_day: so many steps are answered on one day by the device's clock, UTC; 0 answers none.
        steps_a_click: a kept interaction is learned in so many steps in its life.
        fewest_interactions: a step that asks for fewer is not answered, nor where fewer are left to learn from.

    Raises:
        SettingsError: a number is too small.
    """

    steps_a_day: int = 200
    steps_a_click: int = 50
    fewest_interactions: int = FEWEST_INTERACTIONS

    def __post_init__(self) -> None:
        for name, least in (("steps_a_day", 0), ("steps_a_click", 1), ("fewest_interactions", 1)):
            if getattr(self, name) < least:
                raise SettingsError(f"unlearning_limits: {name} is {getattr(self, name)}, below {least}")


USUAL_LIMITS = UnlearningLimits()
