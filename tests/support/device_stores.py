"""Stores of device-7 of mail, as tests open them beside its applications."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from foltr.core.errors import DataError
from foltr.edge_client.store.store import DeviceStore


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


def disk_is_full(*_: object, **__: object) -> NoReturn:
    """In the place of what writes to a store."""
    raise DataError("device store: database or disk is full")
