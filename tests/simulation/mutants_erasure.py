"""The program with one thing of forgetting wrong, as in `simulation.mutants`."""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any
from unittest import mock

import simulation.process
import simulation.store_erasure
import simulation.store_unlearning
from simulation.store_unlearning import SimulatedFederationStore

import foltr.federator.actor
import foltr.federator.eraser
from foltr.core.protocol.audit_heads import AuditHead
from foltr.core.protocol.receipts import ErasureNotice, ReceiptCode
from foltr.edge_client.store.knowledge import KnowledgeStore
from foltr.federator.actor import FederationActor
from foltr.federator.deciding.decisions import Decisions, PendingErasure
from foltr.federator.deciding.members import Members
from foltr.federator.eraser import Eraser
from foltr.federator.job import Unlearning, UnlearningStep
from foltr.federator.job_driver import Unlearner
from foltr.federator.publishing.audit_heads import AuditHeads


def in_place_of(owner: Any, name: str, changed: Callable[..., Any]) -> Callable[[], Any]:
    """A mutant: ``changed`` takes the place of a function, and is given that first."""
    usual = getattr(owner, name)
    return partial(mock.patch.object, owner, name, lambda *args, **options: changed(usual, *args, **options))


async def _told_before_it_is_erased(erase: Any, self: Eraser, wanted: PendingErasure) -> Any:
    notice = ErasureNotice(federation="sim", client_id=wanted.client_id, code=ReceiptCode.FORGETTING)
    self._receipts.send([notice])
    return await erase(self, wanted)


async def _receipts_do_not_wait_for_erasures(
    commit: Any, self: FederationActor, decisions: Decisions, now: float, **more: Any
) -> None:
    """The answers to a batch are sent once it is stored, and those to be erased in it are erased then."""
    await commit(self, decisions, now, **more)
    self._receipts.send(decisions.receipts)


async def _bytes_are_left_at_a_restart(start: Any, self: Eraser, published: AuditHead | None) -> None:
    """An eraser that starts as it did before the reproductions of bytes."""
    await start(self, published)
    self._purge_due = False


async def _a_swap_waits_for_no_round(swap: Any, self: FederationActor) -> None:
    current = self.state.round
    if current is None:
        await swap(self)
        return
    contributions, current.contributions = current.contributions, {}
    try:
        await swap(self)
    finally:
        current.contributions = contributions


async def _jobs_end_with_their_federator(start: Any, self: Unlearner, seed: bytes) -> None:
    await start(self, seed)
    self.machine, self._row = Unlearning(self._policy), None


def _audit_heads_wait_for_a_start() -> Any:
    class Late(AuditHeads):
        async def start(self, published: AuditHead | None, at: datetime) -> None:
            await super().start(published, at)
            await super().publish()

        async def publish(self) -> None:
            pass

    return mock.patch.object(foltr.federator.eraser, "AuditHeads", Late)


# Each as a function that makes a context manager.
ERASURE_MUTANTS: dict[str, Callable[[], Any]] = {
    "forgotten names join again": partial(mock.patch.object, Members, "is_forgotten", return_value=False),
    "forgotten names are forgotten at a restart": in_place_of(
        Members, "restore_forgotten", lambda restore, self, key, _pseudonyms: restore(self, key, ())
    ),
    "who is to be forgotten is told before it is erased": in_place_of(Eraser, "erase", _told_before_it_is_erased),
    "receipts do not wait for erasures": in_place_of(FederationActor, "_commit", _receipts_do_not_wait_for_erasures),
    "half erased clients stay so": partial(mock.patch.object, Eraser, "start", mock.AsyncMock()),
    "keys stay": partial(mock.patch.object, SimulatedFederationStore, "destroy_key", return_value=False),
    "requests stay at the broker": partial(mock.patch.object, Eraser, "clear"),
    "bytes are left at a restart": in_place_of(Eraser, "start", _bytes_are_left_at_a_restart),
    "bytes are left at the end": partial(mock.patch.object, Eraser, "close", mock.AsyncMock()),
    "the audit log's head is published at the next start": _audit_heads_wait_for_a_start,
    "tainted models are not marked": partial(mock.patch.object, simulation.store_erasure, "taint"),
    "a swap withdraws nothing": partial(mock.patch.object, simulation.store_unlearning, "withdraw", return_value=0),
    "a swap waits for no round": in_place_of(FederationActor, "_swap", _a_swap_waits_for_no_round),
    "who is forgotten answers on": partial(mock.patch.object, UnlearningStep, "leave_out"),
    "the silent are awaited for ever": partial(mock.patch.object, UnlearningStep, "is_missed", return_value=False),
    "jobs end with their federator": in_place_of(Unlearner, "start", _jobs_end_with_their_federator),
    "a paused job stays so": partial(mock.patch.object, Unlearner, "member_returned", mock.AsyncMock()),
    "a device forgets that it asked": partial(mock.patch.object, KnowledgeStore, "forget_state", return_value=None),
}
