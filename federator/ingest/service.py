"""An ingest worker's process: the worker, its link to the broker, and how they start and end together."""

import asyncio
import secrets
from collections.abc import Callable
from typing import Final

import structlog

from foltr.broker.address import BrokerAddress
from foltr.broker.buffer import IntakeLimits
from foltr.broker.group_probe import ProbeAnswers
from foltr.broker.link import InboundMessage, MqttLink
from foltr.core.alive_file import NO_ALIVE_FILE, AliveFile
from foltr.core.errors import SettingsError, first_cause
from foltr.core.methods.registry import ranker_for
from foltr.core.protocol.codec import Signer
from foltr.core.protocol.operator_keys import TrustedOperatorKey
from foltr.core.protocol.signing import EpochSequence, SigningKey
from foltr.core.protocol.states import Privacy
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.federator.clock import SteadyClock
from foltr.federator.ingest.worker import BEAT_EVERY_S, IngestWorker
from foltr.federator.measures import WorkerMeasures
from foltr.federator.plan import FederationPlan
from foltr.federator.publishing.announcements import ReceiptSender
from foltr.federator.publishing.answer_numbers import AnswerNumbers
from foltr.federator.store import FederationStore
from foltr.federator.waiting import wait_for_broker
from foltr.storage.database import Database
from foltr.storage.federations import get_federation

log = structlog.get_logger(__name__)

_NAME: Final = "foltr-ingest"
_LAST_WORDS_S: Final = 5.0
_LOOK_FOR_FEDERATION_S: Final = 1.0


def shared_filter(topics: Topics, key: SigningKey | None) -> str:
    """Return the workers' subscription: the updates of all clients, each to one of the group.

    A client that knew the group's name could join it, and would get updates that no worker then gets. So the name is
    derived from the federator's private key, which all workers hold. Without signatures anybody may join.
    """
    group = _NAME if key is None else f"{_NAME}-{key.derive(f'the group of the workers of {topics.federation}').hex()}"
    return f"$share/{group}/{topics.client('+', ClientTopic.UPDATES)}"


async def plan_of(
    db: Database, federation: str, enrolment_key: TrustedOperatorKey | None, key_sequence: int
) -> FederationPlan | None:
    """Return the plan for a worker, from the federation as its leader created it; None if it does not exist yet.

    Raises:
        SettingsError: the federation has secure sums, whose updates only the federator takes.
    """
    row = await get_federation(db, federation)
    if row is None:
        return None
    if row.privacy is Privacy.SECURE:
        raise SettingsError(
            f"role: federation {federation!r} has secure sums, which workers cannot store. Run its federator with "
            "--role all"
        )
    return FederationPlan(
        federation,
        row.n_features,
        chosen_ranker=ranker_for(row.ranker, row.n_features, row.hidden or 0),
        enrolment_key=enrolment_key,
        key_sequence=key_sequence,
    )


class IngestService:
    """Runs one ingest worker until it is stopped.

    Args:
        key: the federator's, which signs receipts; None signs none.
        give_up_after_s: how long the broker may be away before `run` raises UnavailableError; None: for ever.
        alive_file: touched while it works.
    """

    def __init__(
        self,
        plan: FederationPlan,
        db: Database,
        address: BrokerAddress,
        *,
        key: SigningKey | None = None,
        give_up_after_s: float | None = None,
        intake_limits: IntakeLimits | None = None,
        alive_file: AliveFile = NO_ALIVE_FILE,
    ) -> None:
        topics, worker_id = Topics(plan.federation), secrets.token_hex(8)
        self._link = MqttLink(
            address,
            client_id=f"{_NAME}:{plan.federation}:{worker_id}",
            subscriptions=(shared_filter(topics, key),),
            on_message=self._receive,
            # Messages that the broker keeps for a worker that is gone reach no other worker.
            persistent=False,
            give_up_after_s=give_up_after_s,
        )
        self._probe_answers = ProbeAnswers(topics, self._link)
        numbers = AnswerNumbers()
        self._receipts = ReceiptSender(self._link, topics, Signer(key, EpochSequence()), numbers)
        store = FederationStore(db, plan.federation, patience_s=plan.database_patience_s)
        self._worker = IngestWorker(
            worker_id, plan, store, self._receipts, numbers, SteadyClock(), intake_limits, key=key
        )
        self._alive_file = alive_file
        self._stopped = asyncio.Event()

    async def run(self, on_started: Callable[[], None] | None = None) -> None:
        """Serve. Raises UnavailableError or SettingsError when it cannot go on."""
        try:
            async with self._link, asyncio.TaskGroup() as group:
                if not await wait_for_broker(self._link, self._stopped):
                    return
                tasks = [
                    group.create_task(self._receipts.run()),
                    group.create_task(self._probe_answers.run()),
                    group.create_task(self._link.wait_failed()),
                    group.create_task(self._touch()),
                ]
                if on_started is not None:
                    on_started()
                await self._worker.run()
                await self._receipts.wait_sent(_LAST_WORDS_S)
                for task in tasks:
                    task.cancel()
        except BaseExceptionGroup as group_error:
            # One task's failure cancels the others; raise its own error.
            raise first_cause(group_error) from group_error

    def _receive(self, message: InboundMessage) -> None:
        if not self._probe_answers.accept_probe(message):
            self._worker.receive(message)

    async def _touch(self) -> None:
        while True:
            if self._worker.turning_for_s < 60 * BEAT_EVERY_S:
                self._alive_file.touch()
            await asyncio.sleep(10 * BEAT_EVERY_S)

    def read_measures(self) -> WorkerMeasures:
        """Return the measures, up to date; in the event loop."""
        measures = self._worker.read_measures()
        measures.broker_up.set(float(self._link.connected))
        return measures

    def stop(self) -> None:
        self._stopped.set()
        self._worker.stop()


async def wait_for_federation(
    db: Database, federation: str, enrolment_key: TrustedOperatorKey | None, key_sequence: int
) -> FederationPlan:
    """Wait until a leader has created the federation. Raises as `plan_of`."""
    is_told = False
    while True:
        plan = await plan_of(db, federation, enrolment_key, key_sequence)
        if plan is not None:
            return plan
        if not is_told:
            log.warning(
                "federation_missing", federation=federation, hint="start its leader, which creates it: --role leader"
            )
        is_told = True
        await asyncio.sleep(_LOOK_FOR_FEDERATION_S)
