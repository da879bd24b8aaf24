"""The state of a device, and whose order it shows: as data, and as text for a log or a settings page."""

from dataclasses import dataclass

from foltr.core.learning.gate import Gate, Source
from foltr.core.protocol.explorations import Exploration, InterleavingExploration, NoExploration
from foltr.edge_client.blockers import Blocker
from foltr.edge_client.components import DeviceComponents
from foltr.edge_client.training.working_model import WorkingModel

_WHOSE = {Source.BASE: "the application's", Source.MODEL: "the model's"}


@dataclass(frozen=True)
class ListOrder:
    """Whose order the next list has, as far as known without its documents.

    Attributes:
        source: the application's or the model's.
        share_interleaved: the share of the next lists that mix both.
    """

    source: Source
    share_interleaved: float = 0.0

    def __str__(self) -> str:
        words = f"{_WHOSE[self.source]} order"
        if not self.share_interleaved:
            return words
        (other,) = (whose for source, whose in _WHOSE.items() if source is not self.source)
        return f"{words}, {100 * self.share_interleaved:.0f} in 100 mixed with {other}"


@dataclass(frozen=True)
class DeviceState:
    """A state of a device, and its text.

    Attributes:
        status: ``connected``, ``without a broker``, ``not enrolled``, ``closed`` and so on.
        remarks: what else its owner should know.
    """

    status: str
    order: ListOrder = ListOrder(Source.BASE)
    model_version: int | None = None
    remarks: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "; ".join([f"{self.status}: lists are in {self.order}", *self.remarks])


def state_of(device: DeviceComponents, blocker: Blocker | None, n_features: int | None) -> DeviceState:
    """Return the state of a device that is a client of a federation.

    Args:
        n_features: how many the application declared; None if it did not.
    """
    forget_state = device.forgetting.state
    if device.forgotten:
        remarks = (
            "nothing is recorded",
            *([] if forget_state is None else [f"{forget_state}: {forget_state.meaning}"]),
        )
        return DeviceState("forgotten", remarks=remarks)
    if forget_state is not None:
        status = f"asked to be forgotten ({forget_state})"
    elif device.participation.left:
        status = "left"
    elif blocker is not None:
        status = blocker.kind.meaning
    else:
        status = "between two visits" if device.visits.is_resting else "connected"
    working_model, gate = device.trainer.working_model, device.gate
    fits = device.trainer.misfit is None and (
        working_model is None or n_features is None or n_features == working_model.n_features
    )
    order = order_of_next(working_model if fits else None, device.exploration, None if gate is None else gate.gate)
    version = None if working_model is None else working_model.base_version
    parts = [
        status,
        "no model yet" if version is None else f"model {version}",
        *(["in quarantine"] if device.contributor.quarantined else []),
    ]
    remarks = (*device.features.remarks, *device.audit.remarks, *device.policy.remarks)
    return DeviceState(", ".join(parts), order, version, remarks)


def order_of_next(working_model: WorkingModel | None, exploration: Exploration | None, gate: Gate | None) -> ListOrder:
    """Return whose order `foltr.edge_client.serps.make_serp` shows next, of candidates that the model can rank.

    Args:
        exploration: the argument of `make_serp`.
        gate: its present state; None lets every model through.
    """
    if working_model is None:
        return ListOrder(Source.BASE)
    if not working_model.draws_lists:
        return ListOrder(Source.MODEL)
    order = ListOrder(Source.MODEL)
    if gate is not None:
        if not working_model.weights.any():
            return ListOrder(Source.BASE)
        share = 0.0 if isinstance(exploration, NoExploration) else gate.share_interleaved
        order = ListOrder(Source.MODEL if gate.is_open else Source.BASE, share)
    drawn = working_model.exploration if exploration is None else exploration
    interleaves_all = order.source is Source.MODEL and isinstance(drawn, InterleavingExploration)
    return ListOrder(Source.MODEL, 1.0) if interleaves_all else order
