"""Reports whether a search became better: the application's order against the model's, by the clicks on one device.

All numbers are the gate's (`foltr.core.learning.gate`); nothing is counted for a report.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from foltr.core.learning.credits import OPENS_AT
from foltr.core.learning.gate import FEWEST_CREDITS, Gate, Interval, ShownCount, Source
from foltr.edge_client.device_state import DeviceState, ListOrder, lists

TOO_FEW = "too few to tell"


@dataclass(frozen=True)
class Report:
    """What the user's clicks say of both orders; its text is for people.

    Attributes:
        order: whose order is shown.
        cause: why.
        n_lists, n_clicked: recorded lists, and those with a click; None without a gate, which counts them.
        shown: by source, its lists, how many were clicked, and the first clicks as reciprocal ranks.
        preference: the share of lists that mixed both orders in which clicks preferred the model's; None: too few to
            tell. The newest lists weigh most.
        reward_difference: the reciprocal rank of the first click, in the model's newest lists less in the
            application's; None: too few to tell.
        in_effect: by source, how many lists these two are of in effect: the newest weigh most, old ones nothing.
    """

    order: ListOrder
    cause: str
    n_lists: int | None
    n_clicked: int | None
    shown: Mapping[Source, ShownCount]
    preference: Interval | None
    reward_difference: Interval | None
    in_effect: Mapping[Source, int]

    def __str__(self) -> str:
        parts = [f"Lists are in {self.order}: {self.cause}"]
        if self.n_lists is None:
            return f"{parts[0]}."
        parts.append(f"{lists(self.n_lists, 'was', 'were')} recorded, {self.n_clicked} with a click")
        if self.preference is None:
            parts.append(f"Is the model's order better than the application's: {TOO_FEW}")
        else:
            share, low, high = (round(100 * part) for part in self.preference)
            parts.append(f"Of 100 mixed lists {share} favour the model's order (95 % interval {low} to {high})")
        if self.reward_difference is not None:
            numbers = "{:+.3f} (95 % interval {:+.3f} to {:+.3f})".format(*self.reward_difference)
            ours, theirs = self.in_effect[Source.MODEL], self.in_effect[Source.BASE]
            newest = f"The model's newest {ours} lists have more reward than the application's newest {theirs}"
            parts.append(f"{newest} by {numbers}")
        return ". ".join(parts) + "."


def report_of(state: DeviceState, gate: Gate, *, is_gated: bool, mixes: bool = True) -> Report:
    """Return the report of a device in this state.

    Args:
        is_gated: False if the device has no gate, and counts nothing.
        mixes: False if the application asked for lists without exploration, so that none mixes both orders.
    """
    counts = gate.counts.values()
    compared = {Source.BASE: gate.of_base, Source.MODEL: gate.of_model, Source.INTERLEAVED: gate.credits}
    return Report(
        state.order,
        _cause(state, gate, is_gated=is_gated, mixes=mixes),
        sum(count.lists for count in counts) if is_gated else None,
        sum(count.clicked for count in counts) if is_gated else None,
        dict(gate.counts),
        gate.preference,
        gate.reward_difference,
        {source: round(1.0 / mean.share_of_variance) for source, mean in compared.items()},
    )


def _cause(state: DeviceState, gate: Gate, *, is_gated: bool, mixes: bool) -> str:
    if state.model_version is None:
        return "there is no model yet"
    if not is_gated:
        return "without a gate nothing is compared"
    is_models = state.order.source is Source.MODEL
    if is_models is not gate.is_open or (mixes and not state.order.share_interleaved):  # every gate mixes some
        return "the method makes its own lists" if is_models else "the model cannot rank these documents, or is empty"
    if gate.is_open and not gate.credits.weight:
        return "all users' clicks favoured the model's, and this user's have not spoken against it since"
    if gate.is_open:
        return "clicks favoured the model's, and have not spoken against it since"
    none_mixed = "" if mixes else ", and without exploration no lists are mixed"
    if gate.credits.weight < FEWEST_CREDITS:
        return f"fewer than {FEWEST_CREDITS:.0f} mixed lists say which order is better{none_mixed}"
    return f"clicks do not favour the model's {OPENS_AT:.0f} to 1, but {gate.growth:.2g} to 1{none_mixed}"
