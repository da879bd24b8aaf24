"""A shown list and its clicks are recorded: stored, then learned.

Clicks on one list add up until it is in an update. More clicks replace its interaction, and what was learned from it
is learned again. A repetition changes nothing.
"""

import sqlite3
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from foltr.core.learning.gate import Gate, credit_of
from foltr.core.learning.interaction import Interaction
from foltr.core.learning.rewards import ListRewards, base_order_reward, first_click_reward
from foltr.edge_client.events import Observer
from foltr.edge_client.gating import DeviceGate
from foltr.edge_client.serp import Serp
from foltr.edge_client.store.interaction_rows import UNNUMBERED, Within
from foltr.edge_client.store.recent_lists import RecentList, Recorded
from foltr.edge_client.store.store import DeviceStore

if TYPE_CHECKING:
    from foltr.edge_client.contribution import Contributor

Later = Callable[[Callable[[], None]], None]
"""Hands work to the thread that a device runs in, which does it in its next turn."""


class Recorder:
    """Records for one device.

    Args:
        later: given if threads other than the device's, which learns, record. None learns at once.
        gate: judges by each list; None if every list is the model's.
        tell: called in the device's thread when the gate opens or closes.
        wake: called in that thread when a list waits for more clicks.
    """

    def __init__(
        self,
        store: DeviceStore,
        contributor: "Contributor",
        later: Later | None,
        gate: DeviceGate | None,
        tell: Observer,
        wake: Callable[[], None],
    ) -> None:
        self._store = store
        self._contributor = contributor
        self._trainer = contributor.trainer
        self._voter, self._evaluator = contributor.reports
        self._later = later
        self._gate = gate
        self._emit, self._wake = tell, wake
        self._lock = threading.Lock()

    def record(self, shown: RecentList, clicks: npt.NDArray[np.bool_]) -> bool:
        """Record a list with its clicks (shown,); on disk when it returns. A repeated or empty list changes nothing.

        Returns:
            False if it is in an update already, and these clicks are not.
        """
        with self._lock, self._trainer.form():
            added = with_those_before(shown, clicks)
            if added is None:
                return True
            learn = self._store_list(shown, added)
        if learn is None:
            return False
        if self._later is None:
            learn()
        else:
            self._later(learn)
        return True

    def _store_list(self, shown: RecentList, clicks: npt.NDArray[np.bool_]) -> Callable[[], None] | None:
        """Store a list with all its clicks, and the judgements from it; return the work left for the device's thread.

        None if nothing is stored, as `DeviceStore.add_interaction` says.
        """
        serp, before = shown
        judged, write_gate = (None, None) if self._gate is None else self._gate.prepare_update(serp, clicks, before)
        compared, write_comparison = self._voter.prepare_update(serp, clicks, None if before is None else before.clicks)

        def within(cursor: sqlite3.Cursor) -> None:
            for write in (write_gate, write_comparison):
                if write is not None:
                    write(cursor)

        n_dropped = self._store.n_dropped
        rewards = rewards_of(serp, clicks) if self._evaluator.is_enabled else None
        interaction = store_list(self._store, shown, clicks, within, rewards, judged)
        if interaction is None:
            return None
        in_order = self._store.n_dropped == n_dropped and before is None
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
            if self._store.click_window.length_s:
                self._wake()

        return learn


def with_those_before(shown: RecentList, clicks: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_] | None:
    """Return all clicks (shown,) on a list so far; None if these add nothing to what was recorded, or it is empty."""
    if not len(shown.serp.ranking):
        return None
    if shown.before is None:
        return clicks
    return clicks | shown.before.clicks if (clicks & ~shown.before.clicks).any() else None


def rewards_of(serp: Serp, clicks: npt.NDArray[np.bool_]) -> ListRewards | None:
    """Return the rewards of a list with its clicks (shown,); None if its base order is unknown."""
    if serp.base_positions is None:
        return None
    base_reward = base_order_reward(serp.base_positions, clicks)
    return ListRewards(first_click_reward(clicks), base_reward, credit_of(clicks, serp.to_credit))


def store_list(
    store: DeviceStore,
    shown: RecentList,
    clicks: npt.NDArray[np.bool_],
    within: Within | None = None,
    rewards: ListRewards | None = None,
    judged: Gate | None = None,
) -> Interaction | None:
    """Store a list with all its clicks (shown,); None as `DeviceStore.add_interaction` says.

    Args:
        judged: the gate that has counted it; None without one.
    """
    serp, before = shown
    nth = None if before is None else before.nth
    if nth is None and judged is not None:
        nth = judged.count(serp.source).lists

    def both(cursor: sqlite3.Cursor) -> None:
        if within is not None:
            within(cursor)
        store.recent.put_recorded(cursor, serp, Recorded(clicks, nth))

    interaction = Interaction(
        UNNUMBERED,
        serp.features,
        serp.ranking,
        clicks,
        serp.variant,
        serp.model_version,
        serp.reversals,
        serp.log_probability,
        serp.source,
    )
    stored = store.add_interaction(serp.serp_id, interaction, both, rewards, replaces=before is not None)
    store.recent.note_recorded(serp)
    return stored
