"""How a device draws the lists that it shows (`foltr.core.learning.display`)."""

from typing import Annotated, Literal, get_args

from pydantic import Field, TypeAdapter, ValidationError

from foltr.core.errors import SettingsError
from foltr.core.protocol.fields import Message

# Below it the largest differences of standardised scores would overflow an exponential, and only one list be drawn.
Temperature = Annotated[float, Field(ge=0.001, le=1000, allow_inf_nan=False)]


class NoExploration(Message):
    """The best list is shown, and PDGD learns nothing from it."""

    kind: Literal["none"] = "none"


class ShareExploration(Message):
    """A share of the lists is sampled, the others are the best one."""

    kind: Literal["share"] = "share"
    share: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.1
    temperature: Temperature = 0.3


class SwapsExploration(Message):
    """Neighbours are exchanged, the first pair with this probability and cheaper ones more often, see
    `foltr.core.learning.display.exchange_probabilities`: it costs at most a quarter of this in reciprocal rank."""

    kind: Literal["swaps"] = "swaps"
    probability: Annotated[float, Field(gt=0, le=0.5, allow_inf_nan=False)] = 0.004


class InterleavingExploration(Message):
    """The application's list and the model's are interleaved by team draft."""

    kind: Literal["interleaving"] = "interleaving"


class SamplingExploration(Message):
    """Every list is sampled by Plackett-Luce: from the unscaled scores, like in the papers, or at a temperature."""

    kind: Literal["sampling"] = "sampling"
    temperature: Temperature | None = None


Exploration = Annotated[
    NoExploration | ShareExploration | SwapsExploration | InterleavingExploration | SamplingExploration,
    Field(discriminator="kind"),
]

SAFE = SwapsExploration()
"""The default exploration: users see lists that hardly differ from the best one known."""

_KINDS = {get_args(one.model_fields["kind"].annotation)[0]: one for one in get_args(get_args(Exploration)[0])}
_READ: TypeAdapter[Exploration] = TypeAdapter(Exploration)


def read_exploration(text: str) -> Exploration:
    """Reverse `exploration_text`: a kind, followed after colons by the numbers that differ from its defaults.

    Raises:
        SettingsError: an unknown kind, too many numbers, or one that is not allowed.
    """
    kind, *numbers = text.strip().split(":")
    if kind not in _KINDS:
        raise SettingsError(
            f"exploration: unknown {text!r}; known are {', '.join(_KINDS)}, e.g. {exploration_text(SAFE)}"
        )
    names = [name for name in _KINDS[kind].model_fields if name != "kind"]
    if len(numbers) > len(names):
        raise SettingsError(f"exploration: {text!r}: {kind} has {len(names)} numbers: {', '.join(names) or 'none'}")
    try:
        return _READ.validate_python({"kind": kind, **dict(zip(names, numbers, strict=False))}, strict=False)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise SettingsError(f"exploration: {text!r}: {problem['loc'][-1]}: {problem['msg']}") from error


def exploration_text(exploration: Exploration) -> str:
    """Return an exploration in one word: its kind, followed after colons by its numbers."""
    numbers = [value for name, value in exploration.model_dump().items() if name != "kind" and value is not None]
    return ":".join([exploration.kind, *map(repr, numbers)])
