"""The state of a device, and whose order it shows: as data, and as text for a log or a settings page."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from foltr.core.errors import UsageError
from foltr.core.learning.gate import Gate, Source
from foltr.core.protocol.explorations import Exploration, InterleavingExploration, NoExploration
from foltr.edge_client.store.store import DeviceStore

if TYPE_CHECKING:
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


def lists(n: int, is_one: str, are_more: str) -> str:
    """Return a number of lists as a subject, with its verb."""
    return f"1 list {is_one}" if n == 1 else f"{n} lists {are_more}"


@dataclass(frozen=True)
class DeviceState:
    """A state of a device, and its text.

    Attributes:
        status: ``connected``, ``without a broker``, ``not enrolled``, ``closed`` and so on.
        remarks: what else its owner should know.
        n_missing: how many more lists make an update; None if the federation has announced no round yet.
        n_open: how many of the waiting lists wait for more clicks (`Privacy.click_window_s`).
        n_dropped: how many were dropped since the start, because more than `Privacy.max_interactions` waited.
    """

    status: str
    order: ListOrder = ListOrder(Source.BASE)
    model_version: int | None = None
    remarks: tuple[str, ...] = ()
    n_missing: int | None = None
    n_open: int = 0
    n_dropped: int = 0

    def __str__(self) -> str:
        return "; ".join([f"{self.status}: lists are in {self.order}", *self.remarks])


@dataclass(frozen=True)
class Settled:
    """What `EdgeClient.wait_settled` leaves; true if nothing waits.

    Attributes:
        is_pending: an update waits for its receipt.
        n_waiting: lists that are in no update yet.
        cause: what they wait for.
    """

    is_pending: bool
    n_waiting: int
    cause: str

    def __bool__(self) -> bool:
        return not self.is_pending and self.n_waiting == 0

    def __str__(self) -> str:
        if self:
            return "nothing waits"
        parts = ["an update waits for its receipt"] if self.is_pending else []
        if self.n_waiting:
            parts.append(f"{lists(self.n_waiting, 'is', 'are')} in no update yet")
        return f"{', '.join(parts)}: {self.cause}"


def settled_by_now(device: "DeviceComponents", blocker: "Blocker | None") -> Settled:
    """Return what waits on a device."""
    participation, n_waiting = device.participation, device.store.n_waiting()
    # In the store: a device that may not send its masked update now sends it later.
    is_pending = device.store.pending_update() is not None or device.is_making_update
    awaited = _awaited(device)
    if blocker is not None:
        cause = blocker.message
    elif participation.left:
        cause = "this client has left the federation"
    elif is_pending:
        cause = "the federator answers when it has stored the update"
    elif awaited.n_missing is None:
        cause = "the federation has announced no round yet"
    else:
        cause = "; ".join(awaited.words) or "they wait for the next round"
    return Settled(is_pending, n_waiting, cause)


class _Awaited(NamedTuple):
    """What an update waits for, apart from its round; see `DeviceState`.

    Attributes:
        n_ready: how many of the waiting lists wait only for a round.
        n_taken: how many lists an update has at most; None if unknown.
    """

    n_missing: int | None
    n_open: int
    window_s: float
    n_ready: int = 0
    n_taken: int | None = None

    @property
    def words(self) -> list[str]:
        words = []
        if self.n_missing:
            more = "1 more list makes" if self.n_missing == 1 else f"{self.n_missing} more lists make"
            words.append(f"{more} an update")
        if self.n_open:
            words.append(f"{lists(self.n_open, 'waits', 'wait')} {self.window_s:g} s for more clicks")
        return words

    @property
    def backlog(self) -> list[str]:
        """Say how many lists wait for a round, if they are more than one update takes."""
        waiting = lists(self.n_ready, "waits", "wait")
        if self.n_taken is None:
            return [f"{waiting} for a round"] if self.n_ready else []
        return [f"{waiting}, and an update takes {self.n_taken}"] if self.n_ready > self.n_taken else []


def _awaited(device: "DeviceComponents") -> _Awaited:
    training, store, window_s = device.participation.training, device.store, device.store.click_window.length_s
    try:
        n_waiting, n_open = store.n_waiting(), store.n_open()
    except UsageError:  # the store is closed
        return _Awaited(None, 0, window_s)
    n_ready = max(0, n_waiting - n_open)  # another thread may record between the two
    if training is None:
        return _Awaited(None, n_open, window_s, n_ready)
    n_missing = max(0, training.min_interactions - n_waiting)
    return _Awaited(n_missing, n_open, window_s, n_ready, training.max_interactions)


def dropped(store: DeviceStore) -> list[str]:
    """Say how many lists were dropped, if any were."""
    return [f"{lists(store.n_dropped, 'was', 'were')} dropped: too many waited"] if store.n_dropped else []


def cut_short(store: DeviceStore) -> list[str]:
    """Say that newer lists displace those that still wait for clicks, if they do."""
    try:
        reach_s, window_s = store.recent.reach_s(), store.click_window.length_s
    except UsageError:  # it is closed
        return []
    if reach_s is None or reach_s >= window_s:
        return []
    return [f"only lists of the last {reach_s:.0f} s take clicks, not of {window_s:g} s: raise recent_lists"]


def state_of(device: "DeviceComponents", blocker: "Blocker | None", n_features: int | None) -> DeviceState:
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
    awaited, store = _awaited(device), device.store
    of_parts = (*cut_short(store), *device.features.remarks, *device.audit.remarks, *device.policy.remarks)
    awaits = [] if device.participation.left else [*awaited.backlog, *awaited.words]
    remarks = (*awaits, *dropped(store), *of_parts)
    return DeviceState(", ".join(parts), order, version, remarks, awaited.n_missing, awaited.n_open, store.n_dropped)


def order_of_next(
    working_model: "WorkingModel | None", exploration: Exploration | None, gate: Gate | None
) -> ListOrder:
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
