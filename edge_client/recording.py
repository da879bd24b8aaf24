"""A shown list and its clicks are recorded once: stored, then learned."""

import sqlite3
import threading
import weakref
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from foltr.core.learning.interaction import Interaction
from foltr.edge_client.contribution import Contributor
from foltr.edge_client.events import Observer
from foltr.edge_client.gating import DeviceGate
from foltr.edge_client.serps import Serp
from foltr.edge_client.store.interaction_rows import UNNUMBERED, Within
from foltr.edge_client.store.store import DeviceStore

Later = Callable[[Callable[[], None]], None]
"""Hands work to the thread that a device runs in, which does it in its next turn."""


class Recorder:
    """Records for one device.

    Args:
        later: given if threads other than the device's, which learns, record. None learns at once.
        gate: judges by each list; None if every list is the model's.
        tell: called in the device's thread when the gate opens or closes.
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
        self._emit = tell
        self._lock = threading.Lock()
        # The store forgets a list once its update counts; the application may pass it again.
        self._recorded: weakref.WeakSet[Serp] = weakref.WeakSet()

    def record(self, serp: Serp, clicks: npt.NDArray[np.bool_]) -> None:
        """Record a list with its clicks (shown,); on disk when it returns. A repeated or empty list changes nothing."""
        if not len(serp.ranking):
            return
        with self._lock, self._trainer.form():
            if serp in self._recorded:
                return
            learn = self._store_list(serp, clicks)
            self._recorded.add(serp)
        if learn is None:
            return
        if self._later is None:
            learn()
        else:
            self._later(learn)

    def forget(self) -> None:
        """Forget the recorded lists."""
        self._recorded.clear()

    def _store_list(self, serp: Serp, clicks: npt.NDArray[np.bool_]) -> Callable[[], None] | None:
        """Store a list and the judgements from it; return the work left for the device's thread.

        Nothing is left if the list was stored before.
        """
        judged, write_gate = (None, None) if self._gate is None else self._gate.prepare_update(serp, clicks)
        compared, write_comparison = self._voter.prepare_update(serp, clicks)

        def within(cursor: sqlite3.Cursor) -> None:
            for write in (write_gate, write_comparison):
                if write is not None:
                    write(cursor)

        n_dropped = self._store.n_dropped
        interaction = store_list(self._store, serp, clicks, within, self._evaluator.base_reward_of(serp, clicks))
        if interaction is None:
            return None
        in_order = self._store.n_dropped == n_dropped
        if compared is not None:
            self._voter.apply_update(compared)
        change = None if self._gate is None or judged is None else self._gate.apply_update(judged)

        def learn() -> None:
            if change is not None:
                self._emit(change)
            if self._later is None:
                self._trainer.learn_new(interaction, in_order=in_order)
            else:
                self._trainer.catch_up()  # others may be stored by now, in another order
            self._contributor.contribute()

        return learn


def store_list(
    store: DeviceStore,
    serp: Serp,
    clicks: npt.NDArray[np.bool_],
    within: Within | None = None,
    base_reward: float | None = None,
) -> Interaction | None:
    """Store a list with its clicks (shown,); None as `DeviceStore.add_interaction` says, or if nothing was shown."""
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
