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


def _forgotten_names_are_forgotten_at_a_restart() -> Any:
    restore = Members.restore_forgotten

    def forgetful(self: Members, pseudonym_key: bytes, _pseudonyms: Any) -> None:
        restore(self, pseudonym_key, ())

    return mock.patch.object(Members, "restore_forgotten", forgetful)


def _told_before_it_is_erased() -> Any:
    class Hasty(Eraser):
        async def erase(self, wanted: PendingErasure) -> Any:
            notice = ErasureNotice(federation="sim", client_id=wanted.client_id, code=ReceiptCode.FORGETTING)
            self._receipts.send([notice])
            return await super().erase(wanted)

    return mock.patch.object(foltr.federator.actor, "Eraser", Hasty)


def _receipts_do_not_wait_for_erasures() -> Any:
    """The answers to a batch are sent once it is stored, and those to be erased in it are erased then."""

    class Hasty(FederationActor):
        async def _commit(self, decisions: Decisions, now: float, *, more_waits: bool = False) -> None:
            await super()._commit(decisions, now, more_waits=more_waits)
            self._receipts.send(decisions.receipts)

    return mock.patch.object(simulation.process, "FederationActor", Hasty)


def _bytes_are_left_at_a_restart() -> Any:
    """An eraser that starts as it did before the reproductions of bytes."""

    class Careless(Eraser):
        async def start(self, published: AuditHead | None) -> None:
            await super().start(published)
            self._purge_due = False

    return mock.patch.object(foltr.federator.actor, "Eraser", Careless)


def _a_swap_waits_for_no_round() -> Any:
    class Impatient(FederationActor):
        async def _swap(self) -> None:
            current = self.state.round
            if current is None:
                await super()._swap()
                return
            contributions, current.contributions = current.contributions, {}
            try:
                await super()._swap()
            finally:
                current.contributions = contributions

    return mock.patch.object(simulation.process, "FederationActor", Impatient)


def _jobs_end_with_their_federator() -> Any:
    class Forgetful(Unlearner):
        async def start(self, seed: bytes) -> None:
            await super().start(seed)
            self.machine, self._row = Unlearning(self._policy), None

    return mock.patch.object(foltr.federator.actor, "Unlearner", Forgetful)


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
    "forgotten names are forgotten at a restart": _forgotten_names_are_forgotten_at_a_restart,
    "who is to be forgotten is told before it is erased": _told_before_it_is_erased,
    "receipts do not wait for erasures": _receipts_do_not_wait_for_erasures,
    "half erased clients stay so": partial(mock.patch.object, Eraser, "start", mock.AsyncMock()),
    "keys stay": partial(mock.patch.object, SimulatedFederationStore, "destroy_key", return_value=False),
    "requests stay at the broker": partial(mock.patch.object, Eraser, "clear"),
    "bytes are left at a restart": _bytes_are_left_at_a_restart,
    "bytes are left at the end": partial(mock.patch.object, Eraser, "close", mock.AsyncMock()),
    "the audit log's head is published at the next start": _audit_heads_wait_for_a_start,
    "tainted models are not marked": partial(mock.patch.object, simulation.store_erasure, "taint"),
    "a swap withdraws nothing": partial(mock.patch.object, simulation.store_unlearning, "withdraw", return_value=0),
    "a swap waits for no round": _a_swap_waits_for_no_round,
    "who is forgotten answers on": partial(mock.patch.object, UnlearningStep, "leave_out"),
    "the silent are awaited for ever": partial(mock.patch.object, UnlearningStep, "is_missed", return_value=False),
    "jobs end with their federator": _jobs_end_with_their_federator,
    "a paused job stays so": partial(mock.patch.object, Unlearner, "member_returned", mock.AsyncMock()),
    "a device forgets that it asked": partial(mock.patch.object, KnowledgeStore, "forget_state", return_value=None),
}
