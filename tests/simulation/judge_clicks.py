"""What must be true of every click, whatever happens: it is in at most one update that counts, and none is lost."""

from collections.abc import Mapping, Sequence

from simulation.database import Tables
from simulation.disk import DeviceDisk, Gone
from simulation.promises import BrokenPromiseError

from foltr.core.protocol.codec import decode
from foltr.core.protocol.updates import ModelUpdate
from foltr.edge_client.store.bounds import PendingUpdate
from foltr.storage.records import UpdateRow


class ClickJudge:
    """Remembers every click and where it went, and raises `BrokenPromiseError`.

    Attributes:
        made: every update that a device made, and the clicks in it, by update_id.
        counted: the update that counts which a click is in, by the click.
        gone: why a click is on its device no more.
    """

    def __init__(self) -> None:
        self.made: dict[str, tuple[ModelUpdate, tuple[str, ...]]] = {}
        self.counted: dict[str, str] = {}
        self.gone: dict[str, Gone] = {}
        self._recorded: dict[str, str] = {}  # to the device
        self._lost_a_store: set[str] = set()

    def on_recorded(self, client_id: str, click: str) -> None:
        self._recorded[click] = client_id

    def on_made(self, pending: PendingUpdate, clicks: Sequence[str]) -> None:
        update = decode(pending.payload, ModelUpdate)
        if (update.after, update.through) != (pending.after, pending.through) or update.n_interactions != len(clicks):
            raise BrokenPromiseError("an update says what it covers", f"{update.update_id[:8]}: {clicks}")
        self.made[update.update_id] = update, tuple(clicks)

    def on_gone(self, click: str, why: Gone) -> None:
        self.gone[click] = why
        if why in (Gone.STORE_LOST, Gone.FORGOTTEN):
            self._lost_a_store.add(self._recorded[click])

    def on_commit(self, before: Tables, after: Tables) -> None:
        for row in _counting_only_in(before, after):
            for click in self.made[row.update_id][1]:
                self.counted.pop(click, None)
        for row in _counting_only_in(after, before):
            self._count(row)

    def _count(self, row: UpdateRow) -> None:
        update, clicks = self.made[row.update_id]
        if (row.covers_after, row.covers_through) != (update.after, update.through):
            raise BrokenPromiseError("stored as sent", f"{row.update_id[:8]} covers {row.covers_after}")
        for click in clicks:
            other = self.counted.setdefault(click, row.update_id)
            if other != row.update_id:
                raise BrokenPromiseError(
                    "a click counts once", f"{click[:8]} of {row.client_id} is in {other[:8]} and {row.update_id[:8]}"
                )

    def check_books(self, disks: Mapping[str, DeviceDisk], tables: Tables) -> None:
        """Each click counts, or waits on its device, or is gone for a listed reason."""
        for client_id, disk in disks.items():
            client = tables.clients.get(client_id)
            if not disk.forgotten and client is not None:
                self._check_disk(client_id, disk, client.counted_through)
        lost = [
            click
            for click, client_id in self._recorded.items()
            if click not in self.counted
            and click not in self.gone
            and client_id in tables.clients
            and not disks[client_id].forgotten
            and click not in disks[client_id].numbers()
        ]
        if lost:
            raise BrokenPromiseError("a click is lost for a reason only", f"{lost} of {self._recorded[lost[0]]}")

    def _check_disk(self, client_id: str, disk: DeviceDisk, watermark: int) -> None:
        if disk.watermark() is None:
            watermark = 0  # its numbers are not the federation's yet
        for click, number in disk.numbers().items():
            if number > watermark and click in self.counted:
                raise BrokenPromiseError(
                    "what waits was not counted", f"{number} of {client_id}, the watermark is {watermark}"
                )
            if number <= watermark and click not in self.counted and click not in self.gone:
                if client_id not in self._lost_a_store:
                    raise BrokenPromiseError(
                        "a click is lost for a reason only", f"{number} of {client_id}, the watermark is {watermark}"
                    )
                self.gone[click] = Gone.NUMBER_TAKEN


def _counting_only_in(tables: Tables, other: Tables) -> list[UpdateRow]:
    """Return what counts in the one state and not, or as another update, in the other."""
    return [
        row
        for key, row in tables.updates.items()
        if row.covers_after is not None and not _counts_as(row, other.updates.get(key))
    ]


def _counts_as(row: UpdateRow, other: UpdateRow | None) -> bool:
    return other is row or (other is not None and other.covers_after is not None and other.update_id == row.update_id)
