"""The adaptive defence remembers a record of each client from round to round, kept as bytes.

The bytes are all there is: a federator that starts again, a replay and the simulator go on from the same ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from foltr.core.aggregation.budgets import HORIZONS, SharedSum
from foltr.core.errors import DataError

SKETCH_LENGTH = 64
"""How many numbers of an update's deviation are kept: distances between sketches are within about 18 % of the true."""

# Rounds without an update after which a client is forgotten, so that memory does not grow with all who ever came.
_FORGOTTEN_AFTER = 1000
_FORMAT = 1
_PROGRESS = np.dtype("<f4")
KEY_BYTES = 16


def record_type(length: int) -> np.dtype[Any]:
    """One client's record, with sketches of ``length`` numbers. What each means is said in
    `foltr.core.aggregation.evidence`, and of ``budgets`` and ``copies`` in the modules of these names."""
    return np.dtype(
        [
            ("alignment", "<f8"),
            ("alignment_energy", "<f8"),
            ("drift", "<f4", (length,)),
            ("budgets", "<f4", (len(HORIZONS), length)),
            ("drift_energy", "<f8"),
            ("log_length", "<f8"),
            ("log_length_square", "<f8"),
            ("length_weight", "<f8"),
            ("length_weight_square", "<f8"),
            ("log_size", "<f8"),
            ("size_weight", "<f8"),
            ("copies", "<f8"),
            ("n_updates", "<i4"),
            # Of them, those that were compared with others of their round.
            ("n_compared", "<i4"),
            ("first_round", "<i4"),
            ("last_round", "<i4"),
            # How many updates it has sent since it is suspected; 0 for a client that is not.
            ("n_suspected", "<i4"),
        ]
    )


@dataclass(frozen=True, eq=False)
class Records:
    """The state after a round.

    Attributes:
        n_rounds: how many rounds it has seen.
        progress: (d,) float32 sum of what all rounds made of their updates.
        client_ids: sorted; one for each of ``clients``.
        clients: (n,) of `record_type`.
        undecided: half of the clients that can be judged, or more, looked suspicious.
        key: what sketches and samples are drawn by; who knew it could move where no sketch looks.
        strangers: the one sum of deviations that all clients have together as long as they are little known
            (`foltr.core.aggregation.budgets`).
    """

    n_rounds: int
    progress: NDArray[np.float32]
    client_ids: tuple[str, ...]
    clients: NDArray[np.void]
    undecided: bool = False
    key: bytes = bytes(KEY_BYTES)
    strangers: SharedSum | None = None

    @classmethod
    def empty(cls, dim: int, key: bytes = bytes(KEY_BYTES)) -> "Records":
        clients = np.zeros(0, record_type(min(dim, SKETCH_LENGTH)))
        return cls(0, np.zeros(dim, np.float32), (), clients, key=key)

    def to_bytes(self) -> bytes:
        packed: bytes = msgpack.packb(
            {
                "format": _FORMAT,
                "n_rounds": self.n_rounds,
                "progress": self.progress.astype(_PROGRESS).tobytes(),
                "client_ids": list(self.client_ids),
                "clients": self.clients.tobytes(),
                "undecided": self.undecided,
                "key": self.key,
                "strangers": None if self.strangers is None else self.strangers.to_bytes(),
            }
        )
        return packed

    @classmethod
    def from_bytes(cls, stored: bytes | None, dim: int, key: bytes = bytes(KEY_BYTES)) -> "Records":
        """Read what `to_bytes` made; empty for None.

        Args:
            key: of empty records.

        Raises:
            DataError: it is of other updates or another program.
        """
        if stored is None:
            return cls.empty(dim, key)
        try:
            fields = msgpack.unpackb(stored)
            if fields["format"] != _FORMAT:
                raise ValueError(f"format {fields['format']}")
            length, strangers = min(dim, SKETCH_LENGTH), fields["strangers"]
            clients = np.frombuffer(fields["clients"], record_type(length))
            records = cls(
                fields["n_rounds"],
                np.frombuffer(fields["progress"], _PROGRESS),
                tuple(fields["client_ids"]),
                clients,
                fields["undecided"],
                fields["key"],
                None if strangers is None else SharedSum.from_bytes(strangers, length),
            )
            if len(records.progress) != dim or len(records.client_ids) != len(clients):
                raise ValueError(f"{len(records.progress)} values and {len(clients)} clients")
        except (ValueError, KeyError, TypeError, msgpack.UnpackException) as error:
            raise DataError(
                f"what the adaptive defence remembers cannot be read for updates of {dim} values ({error}); choose "
                "another aggregation, or a federation of a new name"
            ) from error
        return records

    def for_clients(self, client_ids: tuple[str, ...]) -> NDArray[np.void]:
        """(n,) copies of the records of these clients, new ones for those it does not know."""
        places = self._places()
        own = np.zeros(len(client_ids), self.clients.dtype)
        for row, client_id in enumerate(client_ids):
            if client_id in places:
                own[row] = self.clients[places[client_id]]
        return own

    def put(self, client_ids: tuple[str, ...], own: NDArray[np.void]) -> None:
        """Write the records (n,) of these clients, all of them known, over what is here."""
        places = self._places()
        self.clients[[places[client_id] for client_id in client_ids]] = own

    def after(
        self,
        client_ids: tuple[str, ...],
        own: NDArray[np.void],
        progress: NDArray[np.float32],
        *,
        undecided: bool,
    ) -> "Records":
        """The state after one more round, in which these clients took part; long absent ones are forgotten.

        It shares no record with this one, so that `put` changes the new state alone.
        """
        n_rounds = self.n_rounds + 1
        own["first_round"] = np.where(own["first_round"] > 0, own["first_round"], n_rounds)
        own["last_round"] = n_rounds
        kept = {
            client_id: record
            for client_id, record in zip(self.client_ids, self.clients, strict=True)
            if n_rounds - int(record["last_round"]) < _FORGOTTEN_AFTER
        }
        kept |= dict(zip(client_ids, own, strict=True))
        names = tuple(sorted(kept))
        clients = np.array([kept[name] for name in names], self.clients.dtype)
        return Records(n_rounds, progress, names, clients, undecided, self.key, self.strangers)

    def _places(self) -> dict[str, int]:
        return {client_id: i for i, client_id in enumerate(self.client_ids)}


def suspects_of(stored: bytes | None) -> frozenset[str]:
    """Return the clients that are suspected; nobody where it cannot be read, as every client is judged anew then."""
    if stored is None:
        return frozenset()
    try:
        records = Records.from_bytes(stored, len(msgpack.unpackb(stored)["progress"]) // _PROGRESS.itemsize)
    except DataError:
        return frozenset()
    return frozenset(records.client_ids[i] for i in np.flatnonzero(records.clients["n_suspected"]).tolist())


def with_progress_of(stored: bytes, path: bytes | None) -> bytes:
    """Return what is remembered of clients beside the progress along another path of models.

    When a model takes the place of another, the direction in which that one has gone is nobody's any more; what every
    client has sent stays evidence.

    Args:
        stored: what `Records.to_bytes` made, or the first part that `taken_apart` returned.
        path: likewise, whose progress it is; None: there is none yet.
    """
    fields = msgpack.unpackb(stored)
    none_yet = bytes(len(fields["progress"]))
    progress = none_yet if path is None else msgpack.unpackb(path)["progress"]
    whole: bytes = msgpack.packb(fields | {"progress": progress if len(progress) == len(none_yet) else none_yet})
    return whole


def with_rounds_passed(stored: bytes, n_rounds: int) -> bytes:
    """Return what is remembered of clients after so many more rounds, in which none of them was."""
    fields = msgpack.unpackb(stored)
    whole: bytes = msgpack.packb(fields | {"n_rounds": fields["n_rounds"] + n_rounds})
    return whole


def taken_apart(stored: bytes) -> tuple[bytes, dict[str, bytes]]:
    """Take apart what `Records.to_bytes` made: what it holds of all clients together, and the record of each.

    A database keeps them in different rows, so that a client's can be deleted. `put_together` undoes it.
    """
    fields = msgpack.unpackb(stored)
    names, records = fields["client_ids"], fields["clients"]
    length = len(records) // max(1, len(names))
    each = {name: records[i * length : (i + 1) * length] for i, name in enumerate(names)}
    return msgpack.packb(fields | {"client_ids": [], "clients": b"", "n_clients": len(names)}), each


def put_together(shared: bytes, each: Mapping[str, bytes]) -> bytes:
    """Make what `Records.from_bytes` reads of what is left of the two parts that `taken_apart` returned."""
    names, fields = sorted(each), msgpack.unpackb(shared)
    fields.pop("n_clients", None)
    whole: bytes = msgpack.packb(fields | {"client_ids": names, "clients": b"".join(each[name] for name in names)})
    return whole


def is_whole(shared: bytes, each: Mapping[str, bytes]) -> bool:
    """Return whether all records are left of the two parts that `taken_apart` returned."""
    return bool(msgpack.unpackb(shared).get("n_clients") == len(each))
