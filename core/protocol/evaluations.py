"""Evaluations report a ranker's quality by its users' clicks: their form in an update, and the request for them.

The reward of a list as it was shown is the reciprocal rank of its first click, and 0 without one. Its base reward is
the reciprocal rank of the best clicked document in the application's order. The credit of a list that mixed both orders
says whose document was clicked (`foltr.core.learning.credits`); of any other list it is 0.
"""

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from foltr.core.protocol.fields import Count, InFederation, Message

# Of lists; a share of them is between none and all.
Mean = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
# An update has up to 100,000 lists, with at most 1 each.
_CreditTotal = Annotated[float, Field(ge=-1e5, le=1e5, allow_inf_nan=False)]
_CreditSquares = Annotated[float, Field(ge=0, le=1e5, allow_inf_nan=False)]
# More than any number of updates adds up to.
_PooledTotal = Annotated[float, Field(ge=-1e15, le=1e15, allow_inf_nan=False)]
_PooledSquares = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]


class Evaluation(Message):
    """The means over an update's lists: whether one was clicked, its reward, and its base reward; and its credits.

    A list without a click has no reward, so neither mean exceeds ``clicked``.

    Attributes:
        credit_total, credit_squares: sums over its lists, see `foltr.core.learning.credits.Credits`.
    """

    clicked: Mean
    reward: Mean
    base_reward: Mean
    credit_total: _CreditTotal = 0.0
    credit_squares: _CreditSquares = 0.0

    @model_validator(mode="after")
    def _only_clicks_earn(self) -> Self:
        if max(self.reward, self.base_reward) > self.clicked:
            raise ValueError("more was earned than there were lists with a click")
        return self


class EvaluationRequest(InFederation):
    """Federator to all, retained: updates for this federator's rounds may have an evaluation.

    It holds only for the epoch in its sequence number: a federator started without evaluations leaves its predecessor's
    request at the broker. It is published again with what the evaluations say by then.

    Attributes:
        credits_since: the oldest model whose lists' credits are wanted: older ones were withdrawn.
        credit_total, credit_squares: the credits of all clients since, pooled (`foltr.core.learning.credits.pooled`).
    """

    kind_name: ClassVar[str] = "evaluation_request"
    credits_since: Count = 0
    credit_total: _PooledTotal = 0.0
    credit_squares: _PooledSquares = 0.0
