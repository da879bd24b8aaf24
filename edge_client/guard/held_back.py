"""A guard keeps, in the device's store, lists that were not learned from, and which models it refused.

Of a list it keeps what judging takes: the features of the documents that were shown, and the preferences in the
clicks on them. Nothing of it is ever sent.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foltr.core.learning.agreement import Preferences
from foltr.edge_client.guard.model_judgement import Judgement
from foltr.edge_client.store.interaction_rows import Within
from foltr.edge_client.store.store import DeviceStore

MOST_LISTS = 200
"""So many of the newest: what a user clicked long ago says little of what is right today."""
_MOST_REFUSED = 100


@dataclass(frozen=True, eq=False)
class HeldBackList:
    """One list that was shown and not learned from.

    Attributes:
        features: (k, d) float32 of the documents shown, in the order shown.
        preferences: in the clicks on it.
    """

    features: NDArray[np.float32]
    preferences: Preferences


@dataclass(frozen=True)
class RefusedModel:
    """A global model that this device does not use: its guard refused it, or the federation has withdrawn it.

    Attributes:
        version: of it.
        kept_version: of the model that was used in its place when it was refused; None where it was not.
        judgement: what it was refused for; None where it was not.
        withdrawn: it holds what was unlearned since, so it is not used whatever a guard says of it.
    """

    version: int
    kept_version: int | None = None
    judgement: Judgement | None = None
    withdrawn: bool = False


class HeldBackStore:
    """The guard's part of a `DeviceStore`."""

    def __init__(self, store: DeviceStore) -> None:
        self._store = store

    def add_list(self, serp_id: str, held_back: HeldBackList, within: Within | None = None) -> None:
        """Keep a list, and let the oldest go that are more than `MOST_LISTS`; one that is kept already stays.

        ``within`` is run in the same transaction.
        """
        pairs = np.stack([held_back.preferences.preferred, held_back.preferences.other])
        values = (
            serp_id,
            len(held_back.features),
            held_back.features.astype("<f4", copy=False).tobytes(),
            pairs.astype("<i8", copy=False).tobytes(),
            held_back.preferences.weight.astype("<f8", copy=False).tobytes(),
        )
        with self._store.transaction() as cursor:
            cursor.execute(
                "INSERT OR IGNORE INTO held_back (serp_id, n_shown, features, pairs, weights) VALUES (?, ?, ?, ?, ?)",
                values,
            )
            cursor.execute(
                "DELETE FROM held_back WHERE id NOT IN (SELECT id FROM held_back ORDER BY id DESC LIMIT ?)",
                (MOST_LISTS,),
            )
            if within is not None:
                within(cursor)

    def pass_over(self, within: Within | None) -> None:
        """Keep nothing of a list whose clicks say nothing; ``within`` is run in a transaction of its own."""
        if within is not None:
            with self._store.transaction() as cursor:
                within(cursor)

    def lists(self) -> list[HeldBackList]:
        """Return the lists that are kept, the oldest first."""
        rows = self._store.rows("SELECT n_shown, features, pairs, weights FROM held_back ORDER BY id")
        return [_held_back(*row) for row in rows]

    def put_refused(self, refused: RefusedModel) -> None:
        """Remember a refusal, in place of an earlier one of the same version; the oldest versions are forgotten."""
        said = refused.judgement
        judged = (None,) * 5 if said is None else (said.n_lists, said.kept, said.new, said.loss, said.standard_error)
        with self._store.transaction() as cursor:
            cursor.execute(
                "INSERT OR REPLACE INTO refused_models "
                "(version, kept_version, withdrawn, n_lists, agreement_kept, agreement_new, loss, standard_error) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (refused.version, refused.kept_version, refused.withdrawn, *judged),
            )
            cursor.execute(
                "DELETE FROM refused_models WHERE version NOT IN "
                "(SELECT version FROM refused_models ORDER BY version DESC LIMIT ?)",
                (_MOST_REFUSED,),
            )

    def remove_refused(self, version: int) -> None:
        """Forget a refusal: the model is used after all."""
        with self._store.transaction() as cursor:
            cursor.execute("DELETE FROM refused_models WHERE version = ?", (version,))

    def refused(self) -> tuple[RefusedModel, ...]:
        """Return the refusals that are remembered, the lowest version first."""
        rows = self._store.rows(
            "SELECT version, kept_version, withdrawn, n_lists, agreement_kept, agreement_new, loss, standard_error "
            "FROM refused_models ORDER BY version"
        )
        return tuple(
            RefusedModel(version, kept, None if kept is None else Judgement(True, *judged), bool(withdrawn))
            for version, kept, withdrawn, *judged in rows
        )


def _held_back(n_shown: int, features: bytes, pairs: bytes, weights: bytes) -> HeldBackList:
    preferred, other = np.frombuffer(pairs, "<i8").reshape(2, -1)
    return HeldBackList(
        np.frombuffer(features, "<f4").reshape(n_shown, -1),
        Preferences(preferred, other, np.frombuffer(weights, "<f8")),
    )
