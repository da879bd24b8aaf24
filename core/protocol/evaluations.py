"""Evaluations report a ranker's quality by its users' clicks: their form in an update, and the request for them.

The reward of a list as it was shown is the reciprocal rank of its first click, and 0 without one. Its base reward is
the reciprocal rank of the best clicked document in the application's order.
"""

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from foltr.core.protocol.fields import InFederation, Message

# Of lists; a share of them is between none and all.
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
    """Federator to all, retained: updates for this federator's rounds may have an evaluation.

    It holds only for the epoch in its sequence number: a federator started without evaluations leaves its predecessor's
    request at the broker.
    """

    kind_name: ClassVar[str] = "evaluation_request"
