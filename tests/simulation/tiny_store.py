"""A device's disk in memory: it survives a crash of the process, and may be full or lost."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from edge_client.store.store import Interaction, PendingUpdate
from foltr.errors import DataError


class TinyStore:
    """`edge_client.store.store.DeviceStore` in memory: the same functions, each of them whole or not at all."""

    def __init__(
        self,
        on_made: Callable[[PendingUpdate, Sequence[int]], None],
        on_removed: Callable[[str, bool], None],
    ) -> None:
        self._on_made, self._on_removed = on_made, on_removed
        self._interactions: dict[int, tuple[Interaction, str | None]] = {}
        self._serps: set[str] = set()
        self._pending: PendingUpdate | None = None
        self._session = 0
        self._model: bytes | None = None
        self._n_recorded = 0
        self._kept: dict[int, Interaction] = {}
        self.keeps = True
        self.n_dropped = 0
        self.forgotten = False
        self.n_failures_due = 0

    def lose(self) -> None:
        """Another disk: nothing of the old one is left. Identities of interactions are not used again."""
        self._interactions.clear()
        self._kept.clear()
        self._pending, self._session, self._model = None, 0, None
        self.forgotten = False

    def forget(self) -> None:
        self._write()
        self.lose()
        self.forgotten = True

    def close(self) -> None:
        pass

    def newest_session(self) -> int:
        return self._session

    def put_session(self, session: int) -> None:
        self._write()
        self._session = session

    def add_interaction(
        self,
        serp_id: str,
        features: NDArray[np.float32],
        ranking: NDArray[np.int64],
        clicks: NDArray[np.bool_],
        variant: int = 0,
        base_version: int | None = None,
        scores: NDArray[np.float32] | None = None,
    ) -> Interaction | None:
        self._write()
        if serp_id in self._serps:
            return None
        self._serps.add(serp_id)
        self._n_recorded += 1
        interaction = Interaction(self._n_recorded, features, ranking, clicks, variant, base_version, scores)
        self._interactions[interaction.id] = (interaction, None)
        return interaction

    def waiting_interactions(self, limit: int) -> list[Interaction]:
        return [item for item, update_id in self._interactions.values() if update_id is None][:limit]

    def discard_interactions(self, ids: Sequence[int]) -> None:
        for i in ids:
            self._interactions.pop(i, None)

    def n_waiting(self) -> int:
        return sum(update_id is None for _, update_id in self._interactions.values())

    def put_update(self, update: PendingUpdate, interaction_ids: Sequence[int]) -> None:
        self._write()
        if self._pending is not None:
            raise AssertionError("a second pending update")
        if any(i not in self._interactions or self._interactions[i][1] is not None for i in interaction_ids):
            raise DataError("an interaction is not waiting")
        self._pending = update
        for i in interaction_ids:
            self._interactions[i] = (self._interactions[i][0], update.update_id)
        self._on_made(update, interaction_ids)

    def pending_update(self) -> PendingUpdate | None:
        return self._pending

    def remove_update(self, update_id: str, *, keep_interactions: bool, counted: bool = True) -> None:
        self._write()
        if self._pending is not None and self._pending.update_id == update_id:
            self._pending = None
        for i, (interaction, holder) in list(self._interactions.items()):
            if holder == update_id and keep_interactions:
                self._interactions[i] = (interaction, None)
            elif holder == update_id:
                del self._interactions[i]
                if counted and self.keeps:
                    self._kept[i] = interaction
        self._on_removed(update_id, keep_interactions)

    def keep_nothing(self) -> None:
        """From now on it has nothing to learn from again."""
        self.keeps = False
        self._kept.clear()

    def kept_ids(self) -> list[int]:
        return list(self._kept)

    def kept_interaction(self, kept_id: int) -> Interaction:
        return self._kept[kept_id]

    def replace_payload(self, update_id: str, payload: bytes) -> None:
        if self._pending is not None and self._pending.update_id == update_id:
            self._pending = PendingUpdate(update_id, self._pending.round, payload)

    def put_model(self, announcement: bytes) -> None:
        self._write()
        self._model = announcement

    def model(self) -> bytes | None:
        return self._model

    def _write(self) -> None:
        if self.n_failures_due:
            self.n_failures_due -= 1
            raise DataError("the disk is full")
