"""A shown list and its clicks are recorded once: stored, then learned."""

import sqlite3
import threading
import weakref
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

from foltr.core.learning.gate import Gate
from foltr.core.learning.interaction import Interaction
from foltr.edge_client.contribution import Contributor
from foltr.edge_client.events import GateChanged, Observer
from foltr.edge_client.gating import DeviceGate
from foltr.edge_client.serps import Serp
from foltr.edge_client.store.interaction_rows import UNNUMBERED, Within
from foltr.edge_client.store.store import DeviceStore
from foltr.edge_client.votes.voter import Compared

Later = Callable[[Callable[[], None]], None]
"""It hands work to the thread that a device runs in, which does it in its turn."""


class Recorder:
    """Records for one device.

    Args:
        later: given where threads record that are not the device's: what is recorded is learned by that one. None
            learns at once.
        gate: judges by each list; None where every list is the model's.
        tell: is told when the gate opens or closes, in the device's own thread.
    """

    def __init__(
        self,
        store: DeviceStore,
        contributor: Contributor,
        later: Later | None,
        gate: DeviceGate | None,
        tell: Observer,
    ) -> None:
        self._store = store
        self._contributor = contributor
        self._trainer = contributor.trainer
        self._voter, self._evaluator = contributor.reports
        self._later = later
        self._gate = gate
        self._tell = tell
        self._lock = threading.Lock()
        # The store forgets a list once its update counts; the application may name it again.
        self._recorded: weakref.WeakSet[Serp] = weakref.WeakSet()

    def record(self, serp: Serp, clicks: npt.NDArray[np.bool_]) -> None:
        """Record a list with its clicks (shown,); on disk when it returns. Again, or an empty one, changes nothing."""
        if not len(serp.ranking):
            return
        with self._lock, self._trainer.form():
            if serp in self._recorded:
                return
            learn = self._store_list(serp, clicks)
            self._recorded.add(serp)
        if self._later is None:
            learn()
        else:
            self._later(learn)

    def forget(self) -> None:
        """Remember no list any more."""
        self._recorded.clear()

    def catch_up(self) -> None:
        """Learn what was recorded."""
        self._trainer.catch_up()
        self._contributor.contribute()

    def _store_list(self, serp: Serp, clicks: npt.NDArray[np.bool_]) -> Callable[[], None]:
        """Put a list on disk, and what is judged by it; return what is to be done in the device's own thread."""
        judged, write_gate = (None, None) if self._gate is None else self._gate.judgement_by(serp, clicks)
        compared, write_comparison = self._voter.judgement_by(serp, clicks)

        def within(cursor: sqlite3.Cursor) -> None:
            for write in (write_gate, write_comparison):
                if write is not None:
                    write(cursor)

        n_dropped = self._store.n_dropped
        interaction = store_list(self._store, serp, clicks, within, self._evaluator.base_reward_of(serp, clicks))
        if interaction is None:
            return _nothing
        change = self._adopt(judged, compared)
        if self._later is not None:
            return partial(self._catch_up, change)  # by then there may be others, in another order
        return partial(self._learn, interaction, change, in_order=self._store.n_dropped == n_dropped)

    def _adopt(self, judged: Gate | None, compared: Compared | None) -> GateChanged | None:
        if compared is not None:
            self._voter.adopt(compared)
        return None if self._gate is None or judged is None else self._gate.adopt(judged)

    def _catch_up(self, change: GateChanged | None) -> None:
        self._tell_of(change)
        self.catch_up()

    def _learn(self, interaction: Interaction, change: GateChanged | None, *, in_order: bool) -> None:
        self._tell_of(change)
        self._trainer.learn_new(interaction, in_order=in_order)
        self._contributor.contribute()

    def _tell_of(self, change: GateChanged | None) -> None:
        if change is not None:
            self._tell(change)


def store_list(
    store: DeviceStore,
    serp: Serp,
    clicks: npt.NDArray[np.bool_],
    within: Within | None = None,
    base_reward: float | None = None,
) -> Interaction | None:
    """Store a list with its clicks (shown,); None as `DeviceStore.add_interaction` says, or where nothing was shown."""
    if not len(serp.ranking):
        return None
    shown = Interaction(
        UNNUMBERED,
        serp.features,
        serp.ranking,
        clicks,
        serp.variant,
        serp.model_version,
        serp.reversals,
        serp.log_probability,
    )
    return store.add_interaction(serp.serp_id, shown, within, base_reward)


def _nothing() -> None:
    """Do nothing: the list was stored before."""
