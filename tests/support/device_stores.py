"""Stores of device-7 of mail, as tests open them beside its applications."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from foltr.core.errors import DataError
from foltr.edge_client.store.store import UNNUMBERED, DeviceStore, Interaction

FEATURES = np.arange(6, dtype=np.float32).reshape(3, 2)
RANKING = np.array([2, 0], np.int64)
CLICKS = np.array([True, False])


def stored(path: Path | str, **options: Any) -> "contextlib.closing[DeviceStore]":
    """The store of a device that does not run; it is closed at the end."""
    usual = {"client_id": "device-7", "federation": "mail", "max_interactions": 1_000}
    return contextlib.closing(DeviceStore(path, **(usual | options)))


@contextlib.contextmanager
def member_store(path: Path | str, **options: Any) -> Iterator[DeviceStore]:
    """One whose federation has told it that nothing counts."""
    with stored(path, **options) as store:
        if store.watermark() is None:
            store.settle(0)
        yield store


def add(store: DeviceStore, *serp_ids: str) -> list[Interaction | None]:
    """Record the same list under each of these names."""
    return [store.add_interaction(serp_id, Interaction(UNNUMBERED, FEATURES, RANKING, CLICKS)) for serp_id in serp_ids]


def waiting_ids(store: DeviceStore) -> list[int]:
    return [interaction.id for interaction in store.waiting_interactions(1_000)]


def serp_ids(store: DeviceStore) -> list[str]:
    return [row[0] for row in store.rows("SELECT serp_id FROM interactions ORDER BY id")]


def disk_is_full(*_: object, **__: object) -> NoReturn:
    """In the place of what writes to a store."""
    raise DataError("device store: database or disk is full")
