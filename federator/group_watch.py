"""A leader watches whether updates for the ingest workers reach them: it probes their group now and then.

If they do not, devices get the broker's acknowledgement and send again and again, and rounds take many times as long.
Then an outsider is in the group and takes a share, or a worker hangs.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from foltr.broker.group_probe import GroupProbe
from foltr.broker.link import InboundMessage, MqttLink
from foltr.core.errors import UnavailableError
from foltr.core.operator.credentials import FEDERATOR_USER
from foltr.core.protocol.events import EventKind
from foltr.core.protocol.topics import Topics
from foltr.federator.worker_sharing import WorkerSharing

log = structlog.get_logger(__name__)

PROBE_EVERY_S: Final = 10.0
# The chance to miss one of three members that take turns is one in ten thousand.
N_PROBES: Final = 24
_WITHIN_S: Final = 5.0
# A worker that ends loses the messages it was just given.
_TRIALS_BEFORE_TOLD: Final = 2


class GroupWatch:
    """Probes the group of the workers, and logs once if probes get no answer.

    Args:
        on_swallowed: called each time updates begin to be swallowed, with a sentence for people.

    Attributes:
        unanswered: the share of the newest probes without an answer; None without workers or a broker.
    """

    def __init__(
        self,
        topics: Topics,
        link: MqttLink,
        sharing: WorkerSharing,
        on_swallowed: Callable[[str], None],
        every_s: float = PROBE_EVERY_S,
    ) -> None:
        self._probe = GroupProbe(topics, FEDERATOR_USER)
        self._link, self._sharing, self._every_s = link, sharing, every_s
        self._tell = on_swallowed
        self.answers_on = self._probe.answers_on
        self.unanswered: float | None = None
        self._n_bad = 0

    def receive(self, message: InboundMessage) -> None:
        self._probe.receive(message.payload)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            if not self._sharing.n_workers:
                self.unanswered = None
            elif self._sharing.is_shared:  # else its count is old
                self.unanswered = await self._try()
                if self.unanswered:
                    self._note_bad(self.unanswered)
                elif self.unanswered is not None:
                    self._note_good()

    async def _try(self) -> float | None:
        try:
            return await self._probe.count_unanswered(self._link, N_PROBES, _WITHIN_S) / N_PROBES
        except UnavailableError:
            return None  # the link logs it

    def _note_bad(self, unanswered: float) -> None:
        self._n_bad += 1
        if self._n_bad == _TRIALS_BEFORE_TOLD:
            n_unanswered = round(unanswered * N_PROBES)
            self._tell(f"{n_unanswered} of {N_PROBES} messages to the group of {self._sharing.n_workers} workers")
            log.warning(
                EventKind.UPDATES_UNDELIVERED,
                unanswered=round(unanswered, 2),
                n_workers=self._sharing.n_workers,
                hint="messages to the workers' group reach none of them: a stranger is in the group, or a worker hangs",
            )

    def _note_good(self) -> None:
        if self._n_bad >= _TRIALS_BEFORE_TOLD:
            log.info("update_delivery_restored", n_workers=self._sharing.n_workers)
        self._n_bad = 0
