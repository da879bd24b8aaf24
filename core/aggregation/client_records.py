"""The adaptive defence's memory: a record of each client from round to round, stored as bytes.

The bytes are its whole state: a restarted federator, a replay and the simulator continue from the same ones.
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
"""How many numbers of an update's deviation are kept; distances between sketches are within some 18 %."""

# Rounds without an update after which a client is forgotten, so that memory does not grow with all clients ever.
_FORGOTTEN_AFTER = 1000
_FORMAT = 1
_PROGRESS = np.dtype("<f4")
KEY_BYTES = 16


def record_type(length: int) -> np.dtype[Any]:
    """One client's record, with sketches of ``length`` numbers; `evidence`, `budgets` and `copies` explain the
    fields."""
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
            # How many of its updates were compared with others of their round.
            ("n_compared", "<i4"),
            ("first_round", "<i4"),
            ("last_round", "<i4"),
            # How many updates it has sent since it became suspected; 0 if it is not.
            ("n_suspected", "<i4"),
        ]
    )


@dataclass(frozen=True, eq=False)
class ClientRecords:
    """The state after a round.

    Attributes:
        n_rounds: how many rounds it has seen.
        progress: (d,) float32 sum of the results of all rounds.
        client_ids: sorted; one for each of ``clients``.
        clients: (n,) of `record_type`.
        undecided: half of the clients that can be judged, or more, looked suspicious.
        key: draws sketches and samples; with it an attacker could move in directions that no sketch sees.
        strangers: the common sum of deviations of all little-known clients (`foltr.core.aggregation.budgets`).
    """

    n_rounds: int
    progress: NDArray[np.float32]
    client_ids: tuple[str, ...]
    clients: NDArray[np.void]
    undecided: bool = False
    key: bytes = bytes(KEY_BYTES)
    strangers: SharedSum | None = None

    @classmethod
    def empty(cls, dim: int, key: bytes = bytes(KEY_BYTES)) -> "ClientRecords":
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
    def from_bytes(cls, stored: bytes | None, dim: int, key: bytes = bytes(KEY_BYTES)) -> "ClientRecords":
        """Read what `to_bytes` made; empty for None.

        Args:
            key: of empty records.

        Raises:
            DataError: it is for updates of another size, or from another program.
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
        """(n,) copies of the records of these clients, with new ones for unknown clients."""
        places = self._places()
        own = np.zeros(len(client_ids), self.clients.dtype)
        for row, client_id in enumerate(client_ids):
            if client_id in places:
                own[row] = self.clients[places[client_id]]
        return own

    def put(self, client_ids: tuple[str, ...], own: NDArray[np.void]) -> None:
        """Overwrite the records (n,) of these clients, which must all be known."""
        places = self._places()
        self.clients[[places[client_id] for client_id in client_ids]] = own

    def after(
        self,
        client_ids: tuple[str, ...],
        own: NDArray[np.void],
        progress: NDArray[np.float32],
        *,
        undecided: bool,
    ) -> "ClientRecords":
        """Return the state after one more round with these clients; long absent ones are forgotten.

        It shares no record with this one, so that `put` changes only the new state.
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
        return ClientRecords(n_rounds, progress, names, clients, undecided, self.key, self.strangers)

    def _places(self) -> dict[str, int]:
        return {client_id: i for i, client_id in enumerate(self.client_ids)}


def suspects_of(stored: bytes | None) -> frozenset[str]:
    """Return the suspected clients; empty if the memory cannot be read, since judging then starts over."""
    if stored is None:
        return frozenset()
    try:
        records = ClientRecords.from_bytes(stored, len(msgpack.unpackb(stored)["progress"]) // _PROGRESS.itemsize)
    except DataError:
        return frozenset()
    return frozenset(records.client_ids[i] for i in np.flatnonzero(records.clients["n_suspected"]).tolist())


def with_progress_of(stored: bytes, path: bytes | None) -> bytes:
    """Return the clients' records combined with the progress along another path of models.

    When a model replaces another, that one's direction no longer applies; every client's updates stay evidence.

    Args:
        stored: what `ClientRecords.to_bytes` made, or the first part that `split_records` returned.
        path: likewise, with the progress to take; None: without progress yet.
    """
    fields = msgpack.unpackb(stored)
    none_yet = bytes(len(fields["progress"]))
    progress = none_yet if path is None else msgpack.unpackb(path)["progress"]
    whole: bytes = msgpack.packb(fields | {"progress": progress if len(progress) == len(none_yet) else none_yet})
    return whole


def with_rounds_passed(stored: bytes, n_rounds: int) -> bytes:
    """Return the memory of clients after so many more rounds, all without these clients."""
    fields = msgpack.unpackb(stored)
    whole: bytes = msgpack.packb(fields | {"n_rounds": fields["n_rounds"] + n_rounds})
    return whole


def split_records(stored: bytes) -> tuple[bytes, dict[str, bytes]]:
    """Split what `ClientRecords.to_bytes` made: the part common to all clients, and the record of each.

    A database keeps them in different rows, so that a client's can be deleted. `join_records` undoes it.
    """
    fields = msgpack.unpackb(stored)
    names, records = fields["client_ids"], fields["clients"]
    length = len(records) // max(1, len(names))
    each = {name: records[i * length : (i + 1) * length] for i, name in enumerate(names)}
    return msgpack.packb(fields | {"client_ids": [], "clients": b"", "n_clients": len(names)}), each


def join_records(shared: bytes, each: Mapping[str, bytes]) -> bytes:
    """Combine what is left of the two parts that `split_records` returned, for `ClientRecords.from_bytes`."""
    names, fields = sorted(each), msgpack.unpackb(shared)
    fields.pop("n_clients", None)
    whole: bytes = msgpack.packb(fields | {"client_ids": names, "clients": b"".join(each[name] for name in names)})
    return whole


def has_all_records(shared: bytes, each: Mapping[str, bytes]) -> bool:
    """Return whether the two parts that `split_records` returned still have all records."""
    return bool(msgpack.unpackb(shared).get("n_clients") == len(each))
