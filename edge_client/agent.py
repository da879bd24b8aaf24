"""A device's agent receives network messages, decides what the device does about them, and sends what is due."""

import asyncio
import threading
import time
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from foltr.broker.link import InboundMessage, LastWill, MqttLink
from foltr.core.errors import MessageError, UnavailableError
from foltr.core.learning.rows import Rows
from foltr.core.logs import get_logger
from foltr.core.protocol.explorations import Exploration
from foltr.core.protocol.topics import ClientTopic
from foltr.edge_client.blockers import Blocker, blocker_of
from foltr.edge_client.components import DeviceComponents
from foltr.edge_client.condition_notifier import ConditionNotifier
from foltr.edge_client.events import Forgotten, Observer
from foltr.edge_client.forgetting import ENROL_AGAIN
from foltr.edge_client.inbox import Inbox
from foltr.edge_client.options import DeviceOptions
from foltr.edge_client.recording import Later
from foltr.edge_client.serp import Serp
from foltr.edge_client.serps import as_features, check_width, clicks_on, make_serp, read_candidates
from foltr.edge_client.store.store import DeviceStore
from foltr.edge_client.training.working_model import WorkingModel

log = get_logger(__name__)

# How often a device looks whether its kernels are loaded.
_LOOK_FOR_KERNELS_S = 0.01
_LONGEST_PAUSE_S = 60.0


class Agent(DeviceComponents):
    """Acts for one device, turn by turn.

    Args:
        link: calls `begin_session` before each connection, `begin_connection` once it is up, and `receive` for every
            message.
        later: see `Recorder`; with it, any thread may rank and record.
        on_event: called with each event.

    Attributes:
        news: checked after each turn.
    """

    def __init__(
        self,
        link: MqttLink,
        store: DeviceStore,
        options: DeviceOptions,
        later: Later | None = None,
        on_event: Observer | None = None,
    ) -> None:
        super().__init__(link, store, options, self._say_hello, later, on_event)
        self.inbox = Inbox(self, self._be_forgotten)
        self.notifier = ConditionNotifier()
        self._ranks_a_snapshot = later is not None
        # An erasure and a click must not interleave: nothing is stored of a forgotten client.
        self._recording = threading.RLock()
        self._is_shown = False  # as online at the broker, until its status or the last will says otherwise
        self._last_blocker: Blocker | None = None  # at the end of the last visit
        self._n_windows_ended = 0
        if self.forgotten:
            self.forget()
            log.warning("forgotten", client_id=self.client_id, federation=self.federation, hint=ENROL_AGAIN)
        else:
            self.voter.restore()
            self.models.restore()
            self.audit.restore()

    @property
    def is_settled(self) -> bool:
        """No update waits for its receipt, for sending, or for kernels."""
        return self.participation.pending is None and not self.is_making_update

    @property
    def blocker(self) -> Blocker | None:
        """The blocker, as `Device.blocker` says."""
        if self.visits.period_s is not None and not self.link.connected and not self.forgotten:
            return self._last_blocker  # between two visits, or at the beginning of one
        return blocker_of(self, time.monotonic())

    @property
    def visit_over_at(self) -> float:
        """When to disconnect if nothing arrives before, in monotonic seconds; infinity if it stays connected."""
        if self.visits.period_s is None:
            return float("inf")  # called twice in each turn
        if self.forgetting.waiting or self.forgetting.is_clearing:
            return float("inf")  # the answer is not retained, and a forgotten client does not come again
        is_heard = self.participation.joined or self.participation.left or self.membership.refusal is not None
        waits_for_nothing = self.is_settled and self.relearning.due is None and not self.outbox.is_fetching
        return self.visits.over_at(is_done=is_heard and waits_for_nothing)

    async def leave(self, timeout_s: float) -> bool:
        """Leave as `EdgeClient.leave` says."""
        if self.forgetting.state is not None:
            return False
        return await self.membership.leave(timeout_s)

    async def end_visit(self, *, was_there: bool) -> None:
        """Disconnect until the next visit.

        Args:
            was_there: the broker retains an online status, which was sent before the device knew of the pace.
        """
        self._last_blocker = blocker_of(self, time.monotonic())
        if was_there and self.link.connected:
            try:
                await self.outbox.clear(ClientTopic.STATUS)
            except UnavailableError as error:
                log.debug("retained_message_not_cleared", what=str(ClientTopic.STATUS), cause=str(error))
        self.visits.end_visit()
        self.participation.rests = True

    def rank(
        self,
        features: Rows,
        k: int,
        base: npt.ArrayLike | None = None,
        exploration: Exploration | None = None,
    ) -> Serp:
        """Rank candidate documents as `EdgeClient.rank` says."""
        chosen = self.exploration if exploration is None or self.forgotten else exploration
        with self.trainer.form():
            candidates = read_candidates(self.features.scaled(features), base)
            self.features.warn_unscaled(candidates.features, candidates.span)
            serp = make_serp(candidates, k, self._snapshot(), self.rng, exploration=chosen, gate=self.gate)
        if not self.forgotten:
            self.store.recent.remember(serp)
        return serp

    def record_clicks(self, serp: Serp | str, clicked: Iterable[int]) -> bool:
        """Record clicks as `EdgeClient.record_clicks` says."""
        with self._recording:
            if not self.forgotten:
                shown = self.store.recent.find(serp)
                return self.recorder.record(shown, clicks_on(shown.serp, clicked))
            if isinstance(serp, Serp):
                clicks_on(serp, clicked)  # a wrong position stays an error
            return False

    @property
    def weights(self) -> npt.NDArray[np.float64] | None:
        """See `Device.weights`."""
        working_model = self._snapshot()
        return None if working_model is None else working_model.weights.copy()

    def scores(self, features: Rows) -> npt.NDArray[np.float32]:
        """See `EdgeClient.scores`."""
        matrix, working_model = as_features(self.features.scaled(features)), self._snapshot()
        if working_model is None:
            return np.zeros(len(matrix), np.float32)
        check_width(matrix, working_model.n_features)
        with self.trainer.form():
            return working_model.scores(matrix)

    def _snapshot(self) -> WorkingModel | None:
        working_model = self.trainer.working_model
        if working_model is None or not self._ranks_a_snapshot:
            return working_model  # the same thread ranks and learns
        return working_model.snapshot()

    def begin_session(self) -> LastWill | None:
        """Begin the session of the next connection, and return its last will; a visit has none."""
        self.watch.begin_connection()  # before it: retained messages may arrive before `begin_connection` is called
        self.participation.is_fresh = False
        self.visits.begin_session()
        will = self.session.begin()
        self._is_shown = self.visits.period_s is None or self.forgotten
        return will if self._is_shown else None

    async def begin_connection(self) -> None:
        """Say hello over a new connection."""
        self.visits.note_reached(time.monotonic())
        self.outbox.begin_connection()
        self.forgetting.begin_connection(time.monotonic())
        await self._say_hello()

    async def _say_hello(self) -> None:
        if not self.participation.left:
            self.participation.begin_connection(time.monotonic())
        if not self.participation.left and self.visits.period_s is None and self.link.connected:
            await self.outbox.publish(ClientTopic.STATUS, self.session.status(online=True), retain=True)
        self.wake.set()

    def receive(self, message: InboundMessage) -> None:
        """Receive a message; log and ignore one that is not from the federator, or cannot be read."""
        self.visits.note_message(time.monotonic())
        try:
            self.inbox.receive(message)
        except MessageError as error:
            log.warning("message_refused", topic=message.topic, client_id=self.client_id, cause=str(error))
        finally:
            self.wake.set()

    def _be_forgotten(self) -> None:
        """Erase on the device what the federation has erased of this client."""
        is_news = not self.forgotten
        if is_news:
            log.warning("forgotten", client_id=self.client_id, federation=self.federation, hint=ENROL_AGAIN)
        with self._recording:
            self.forgetting.forget()
            self.forget()
        if is_news:
            self.emit(Forgotten())

    async def run(self) -> None:
        """Take turns until cancelled: when woken, and when something is due."""
        loop = asyncio.get_running_loop()
        alarm: asyncio.TimerHandle | None = None

        def ring() -> None:
            nonlocal alarm
            alarm = None
            self.wake.set()

        try:
            while True:
                self.wake.clear()
                await self.turn()
                self.notifier.notify()
                # While it rests, the visits wake it again.
                over_at = float("inf") if self.visits.is_resting else self.visit_over_at
                pause = min(min(self.next_due_at(), over_at) - time.monotonic(), _LONGEST_PAUSE_S)
                # An early alarm costs one empty turn; setting it in each turn costs more than the rest of such a turn.
                if alarm is None or loop.time() + pause < alarm.when():
                    if alarm is not None:
                        alarm.cancel()
                    alarm = loop.call_later(pause, ring)
                await self.wake.wait()
        finally:
            if alarm is not None:
                alarm.cancel()

    async def turn(self) -> None:
        """Learn what waited for kernels or clicks, and send what is due; if the broker is unreachable, later."""
        self._learn_what_waited()
        if self.link.connected:
            self.visits.follow_pace()
            self.watch.check(time.monotonic())
            await self.forgetting.send_due(time.monotonic())
            await self.outbox.send_due()
            await self.outbox.send_relearned(self.relearning)
        await self.forgetting.finish(connected=self.link.connected)

    def _learn_what_waited(self) -> None:
        try:
            n_before, self._n_windows_ended = self._n_windows_ended, self.store.click_window.n_ended()
            if self.trainer.learn_when_loaded() or self._n_windows_ended > n_before:
                self.trainer.catch_up()
                self.contributor.contribute()
        except Exception:
            # The turns also send, so they must continue; the waiting lists are learned with the next model.
            log.exception("pending_clicks_not_learned", client_id=self.client_id)

    def next_due_at(self) -> float:
        """Return when the next `turn` will have something to do, if nothing happens before; monotonic seconds."""
        in_s = min(
            _LOOK_FOR_KERNELS_S if self.trainer.is_loading else float("inf"), self.store.click_window.ends_in_s()
        )
        due_at = time.monotonic() + in_s
        return min(due_at, self.outbox.next_due_at(), self.forgetting.due_at) if self.link.connected else due_at

    async def say_goodbye(self) -> None:
        """Tell the federation that this device goes offline. Raises UnavailableError as `Outbox.publish` does."""
        is_member = not self.participation.left
        if (is_member and self.visits.period_s is None) or self.forgetting.waiting:
            await self.outbox.publish(ClientTopic.STATUS, self.session.status(online=False), retain=True)
        elif is_member and self._is_shown and not self.forgotten:
            # It learned of the pace in its first visit, and leaves before that ends: only it clears its status.
            await self.outbox.clear(ClientTopic.STATUS)
        await self.forgetting.finish(connected=True)
