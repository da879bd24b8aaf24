"""A device's gate (`foltr.core.learning.gate`), stored with the lists that it judged by. It is never sent.

The credits of all clients (`share`) are not stored: they come again with each connection.
"""

import threading
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from foltr.core.learning.credits import Credits
from foltr.core.learning.gate import Gate, Source, source_of_next, with_list, with_more_clicks
from foltr.core.logs import get_logger
from foltr.edge_client.events import GateChanged
from foltr.edge_client.serp import Serp
from foltr.edge_client.store.gate_rows import write_gate
from foltr.edge_client.store.interaction_rows import Within
from foltr.edge_client.store.recent_lists import Recorded
from foltr.edge_client.store.store import DeviceStore

log = get_logger(__name__)


class DeviceGate:
    """The gate of one device.

    Args:
        seed: decides which lists are interleaved; None takes fresh entropy.

    Attributes:
        gate: its present state.
    """

    def __init__(self, store: DeviceStore, client_id: str, seed: int | None) -> None:
        self._client_id = client_id
        self._rng = np.random.default_rng(None if seed is None else [seed, *b"gate"])
        self._lock = threading.Lock()
        self.gate: Gate = store.gate()
        self._shared = Credits()
        self._written: Gate | None = None  # by this process; None also if no row may exist yet

    def share(self, of_all: Credits) -> None:
        """Judge the next lists also by the credits of all clients; the device's thread calls it."""
        with self._lock:
            self._shared = of_all
            self.gate = replace(self.gate, shared=of_all)

    def source_of_next(self, *, may_interleave: bool) -> Source:
        """Return the source of the next list, if there is a model.

        Args:
            may_interleave: False if the application asked for the best list.
        """
        if not may_interleave:
            return Source.MODEL if self.gate.is_open else Source.BASE
        with self._lock:
            return source_of_next(self.gate, self._rng)

    def prepare_update(
        self, serp: Serp, clicks: npt.NDArray[np.bool_], before: Recorded | None = None
    ) -> tuple[Gate, Within]:
        """Return the gate after a list with its clicks (shown,), and what writes it; then `apply_update`.

        Args:
            before: what was recorded of this list earlier.
        """
        judged = judged_by(self.gate, serp, clicks, before)
        return judged, partial(write_gate, gate=judged, before=self._written)

    def apply_update(self, judged: Gate) -> GateChanged | None:
        """Use the gate that was written; return the event if it opened or closed."""
        with self._lock:
            was_open, self._written = self.gate.is_open, judged
            self.gate = replace(judged, shared=self._shared)
        if judged.is_open is was_open:
            return None
        log.info(
            "gate_opened" if judged.is_open else "gate_closed",
            client_id=self._client_id,
            credit_score=round(judged.credit_score, 2),
            model_score=round(judged.model_score, 2),
            shared_score=round(judged.shared.score, 2),
        )
        return GateChanged(judged.is_open)

    def forget(self) -> None:
        """Reset the gate: the client was forgotten."""
        self.gate, self._shared, self._written = Gate(), Credits(), None


def judged_by(gate: Gate, serp: Serp, clicks: npt.NDArray[np.bool_], before: Recorded | None) -> Gate:
    """Return the gate after a list with its clicks (shown,), of which some may have been recorded before."""
    if before is None or before.nth is None:
        return with_list(gate, serp.source, clicks, serp.to_credit)
    n_since = gate.count(serp.source).lists - before.nth
    return with_more_clicks(gate, serp.source, (before.clicks, clicks), n_since, serp.to_credit)
