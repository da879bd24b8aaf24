"""Evaluations say how a ranker does by the clicks of its users: what an update tells, and that devices are asked.

The reward of a list as it was shown is the reciprocal rank of its first click, and 0 without one. Its base reward is
the reciprocal rank that the best of the clicked documents has in the application's own order.
"""

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from foltr.core.protocol.fields import InFederation, Message

# Of lists; a part of them cannot be less than none, nor more than all.
Mean = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class Evaluation(Message):
    """The means over an update's lists: whether one was clicked, its reward, and its base reward.

    A list without a click has no reward, so neither mean exceeds ``clicked``.
    """

    clicked: Mean
    reward: Mean
    base_reward: Mean

    @model_validator(mode="after")
    def _only_clicks_earn(self) -> Self:
        if max(self.reward, self.base_reward) > self.clicked:
            raise ValueError("more was earned than there were lists with a click")
        return self


class EvaluationRequest(InFederation):
    """Federator to all, retained: the updates of rounds that this federator announces may have an evaluation.

    It holds for the epoch in its sequence number alone: who was started without it leaves at the broker what the one
    before it said there.
    """

    kind_name: ClassVar[str] = "evaluation_request"
