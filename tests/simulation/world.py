"""A whole federation in one thread and one seed: the real actor, engine and clients; simulated everything else.

`run` plays a scenario, then heals everything, lets time pass, and looks whether all is well.
"""

import gc
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from simulation.beats import BeatBroker, check_watches
from simulation.clock import Clock, Schedule, WorldTime
from simulation.database import SimulatedStore
from simulation.device import FEDERATION, Papers, SimulatedDevice
from simulation.disk import DeviceDisk
from simulation.ending import settle
from simulation.judge import Judge
from simulation.judge_erasure import ErasureJudge
from simulation.network import Fault, SimulatedBroker
from simulation.operator import SimulatedOperator
from simulation.process import FederatorProcess, Receipt
from simulation.restoring import is_behind, restore_database
from simulation.scenario import Operation, Scenario, Step, Trust, draw_unlearning
from simulation.seams import StandInKey, simulated

from foltr.broker.link import InboundMessage
from foltr.core.failpoints import Failpoint
from foltr.core.protocol.announcements import ModelAnnouncement, RoundAnnouncement
from foltr.core.protocol.enrolment import issue_enrolment
from foltr.core.protocol.orders import (
    ForgetClient,
    LiftQuarantine,
    OrderAnswer,
    QuarantineClient,
    RevokeClient,
    SetDeadline,
)
from foltr.core.protocol.receipts import ErasureNotice, ReceiptCode, UpdateReceipt
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.states import Pacing
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.core.protocol.trainings import PdgdTraining
from foltr.federator.plan import FederationPlan

_GRACE_S = 5.0
_IN_ROUND = (
    Failpoint.FEDERATION_CLAIMED,
    Failpoint.COLLECTING_STOPPED,
    Failpoint.AGGREGATED,
    Failpoint.ROUND_COMPLETED,
    Failpoint.ROUND_ABANDONED,
)
_IN_ERASURE = (
    Failpoint.IN_ERASURE_TRANSACTION,
    Failpoint.ERASED,
    Failpoint.KEY_DESTROYED,
    Failpoint.STEP_COMMITTED,
    Failpoint.IN_SWAP_TRANSACTION,
)
_FAULTS = {
    Operation.DROP: Fault.DROP,
    Operation.DUPLICATE: Fault.DUPLICATE,
    Operation.REORDER: Fault.REORDER,
    Operation.DELAY: Fault.DELAY,
}


class World:
    """The state of one run; a method per operation."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.rng = random.Random(f"world {scenario.seed}")  # noqa: S311
        self.schedule = Schedule()
        self.time = WorldTime(self.schedule)
        self.topics = Topics(FEDERATION)
        self.judge = Judge(ErasureJudge(lambda name: name in self.store.keys))
        self.store = SimulatedStore(self.judge.on_commit)
        self.broker = SimulatedBroker(self.topics, self.schedule)
        self.beats = BeatBroker(scenario.seed, self.schedule, self.time, self.topics)
        self.processes: list[FederatorProcess] = []
        self._make_key = self._real_key if scenario.trust is Trust.SIGNED else StandInKey
        trusting = scenario.trust is Trust.ANYONE
        self._enrolment_key = None if trusting else self._make_key(self.rng.randbytes(32))
        self._federator_key = None if trusting else self._make_key(self.rng.randbytes(32))
        self.serials: dict[str, int] = {}
        self.revoked: dict[str, int] = {}
        self.operator = SimulatedOperator(
            self._enrolment_key, self.broker, self.schedule, self.rng, self.store.order_outcome
        )
        self.clock_offset = 0.0
        self.plan = FederationPlan(
            FEDERATION,
            n_features=1,
            policy=scenario.policy,
            training=PdgdTraining(min_interactions=1, max_interactions=1),
            stop_after_round=scenario.stop_after_round,
            resume_grace_s=_GRACE_S,
            enrolment_key=None if self._enrolment_key is None else self._enrolment_key.public,
            unlearning=scenario.unlearning,
        )
        self.devices = [self._make_device(i) for i in range(scenario.n_devices)]
        self.beats.devices = self.devices

    # --- making things ----------------------------------------------------------------------------------------

    @staticmethod
    def _real_key(seed: bytes) -> SigningKey:
        return SigningKey(seed)

    def _make_device(self, i: int) -> SimulatedDevice:
        name = f"device-{i}"
        store = DeviceDisk(
            name,
            self.judge.clicks_of(name),
            max_interactions=self.scenario.device_backlog,
            max_kept=self.scenario.device_keeps,
        )
        device = SimulatedDevice(i, self.schedule, self.time, self.broker, store, self.rng, self.beats)
        self.broker.devices[name] = device
        if self._enrolment_key is not None:
            self._enrol(device)
        return device

    def _enrol(self, device: SimulatedDevice) -> None:
        serial = self.serials[device.client_id] = self.serials.get(device.client_id, 0) + 1
        key = self._make_key(self.rng.randbytes(32))
        enrolment = issue_enrolment(self._enrolment_key, FEDERATION, device.client_id, key.public, serial, 0.0)
        device.papers = Papers(device.client_id, key, enrolment, self._federator_key.public)

    def start_federator(self) -> None:
        process = FederatorProcess(
            self.plan,
            self.store,
            self.broker,
            self.schedule,
            self.time,
            self.rng,
            clock=Clock(self.clock_offset),
            key=self._federator_key,
            limits=self.scenario.limits,
            busy_s=self.scenario.busy_s,
            on_receipt=self._on_receipt,
            on_announced=self._on_announced,
            on_taken=self._on_taken,
            on_ended=self._on_ended,
            on_said=self.judge.on_said,
            beats=self.beats,
        )
        if is_behind(self):
            self.judge.behind.add(process)
        self.processes.append(process)

    @property
    def federator(self) -> FederatorProcess:
        return self.processes[-1]

    def newest_announced(self) -> int:
        """The epoch of what the broker retains."""
        return self.broker.predecessor(self._federator_key).epoch

    # --- what is seen -----------------------------------------------------------------------------------------

    def _on_receipt(self, process: FederatorProcess, receipt: Receipt) -> None:
        if isinstance(receipt, OrderAnswer):
            self.operator.hear(receipt)
            return
        if isinstance(receipt, ErasureNotice):
            self.judge.erasures.on_notice(receipt)
            return
        self.judge.on_mark(process, receipt)
        if isinstance(receipt, UpdateReceipt) and receipt.update_id is not None:
            self.judge.on_answer(process, receipt.update_id, receipt)
        elif isinstance(receipt, UpdateReceipt) and receipt.code is ReceiptCode.BAD_SIGNATURE:
            self.judge.on_bad_signature(process, receipt)
        self.judge.on_receipt(receipt)

    def _on_announced(self, _process: FederatorProcess, model: ModelAnnouncement, round_: RoundAnnouncement) -> None:
        self.judge.on_announced(model, round_)

    def _on_taken(self, process: FederatorProcess, message: InboundMessage) -> None:
        if message.topic.endswith("/updates"):
            self.judge.on_taken(process, message.payload)

    def _on_ended(self, process: FederatorProcess) -> None:
        # A fenced one may have thrown its successor out of the broker, as they share one session.
        successor = self.federator
        if self.broker.federator is process and successor is not process and not successor.down.is_cut:
            self.schedule.after(1.0, successor.reconnect)

    def check(self) -> None:
        slack_s = self.scenario.busy_s + 5.0 + 40.0 * self.federator.n_database_failures
        self.judge.check_deadline(self.federator, slack_s, _GRACE_S)
        for device in self.devices:
            pending = device.store.pending_update()
            if pending is not None:
                self.judge.on_sent(pending.payload, pending.update_id)
        check_watches(self)

    def pass_time(self, seconds: float) -> None:
        self.schedule.run_until(self.schedule.now + seconds)
        self.check()

    # --- operations -------------------------------------------------------------------------------------------

    def apply(self, step: Step) -> None:
        device = self.devices[step.who % len(self.devices)]
        if (fault := _FAULTS.get(step.operation)) is not None:
            wire = device.up if step.amount < 0.5 else device.down
            wire.faults.extend([fault] * (1 + int(step.amount * 20) % 3))
        else:
            getattr(self, f"_{step.operation}")(device, step.amount)
        self.pass_time(0.0)

    def _tick(self, _device: SimulatedDevice, amount: float) -> None:
        self.pass_time(0.05 * 600.0**amount)

    def _interact(self, device: SimulatedDevice, amount: float) -> None:
        for other in self.devices if amount < 0.3 else [device]:
            other.click()

    def _partition(self, device: SimulatedDevice, amount: float) -> None:
        device.up.is_cut = amount > 0.2
        device.down.is_cut = amount < 0.8
        if device.is_up:
            self.schedule.after(30.0 * amount, lambda: self._notice(device))

    def _notice(self, device: SimulatedDevice) -> None:
        if device.up.is_cut or device.down.is_cut:
            device.disconnect()

    def _heal(self, device: SimulatedDevice, _amount: float) -> None:
        self.heal_device(device)

    def heal_device(self, device: SimulatedDevice) -> None:
        """Its network is as it should be again."""
        device.up.mend()
        device.down.mend()
        if device.running and (not device.is_up or device.up.n_lost or device.down.n_lost):
            device.connect()

    def _device_crash(self, device: SimulatedDevice, _amount: float) -> None:
        device.crash()

    def _device_start(self, device: SimulatedDevice, _amount: float) -> None:
        if device.left:
            device.crash()
        if not device.running:
            device.start()

    def _device_leave(self, device: SimulatedDevice, _amount: float) -> None:
        device.leave()

    def _device_clock_set(self, device: SimulatedDevice, amount: float) -> None:
        device.clock.offset += 2e4 * (amount - 0.5)

    def _device_disk_full(self, device: SimulatedDevice, amount: float) -> None:
        device.store.n_failures_due = int(1 + 3 * amount)

    def _device_loses_store(self, device: SimulatedDevice, _amount: float) -> None:
        device.crash()
        device.store.lose()

    def _broker_crash(self, _device: SimulatedDevice, amount: float) -> None:
        self.crash_broker(amount)

    def crash_broker(self, amount: float) -> None:
        """It loses all that it retained and queued, and every connection."""
        self.broker.forget_everything()
        self.beats.forget_everything()
        for device in self.devices:
            device.disconnect()
            self.schedule.after(30.0 * self.rng.random(), lambda device=device: self._reconnect(device))
        self.federator.down.is_cut = True
        process = self.federator
        self.schedule.after(10.0 * amount, process.reconnect)

    def _reconnect(self, device: SimulatedDevice) -> None:
        if device.running and not device.is_up and not device.up.is_cut and not device.down.is_cut:
            device.connect()

    def _federator_partition(self, _device: SimulatedDevice, _amount: float) -> None:
        self.federator.down.is_cut = True

    def _federator_heal(self, _device: SimulatedDevice, _amount: float) -> None:
        self.federator.reconnect()

    def _database_away(self, _device: SimulatedDevice, amount: float) -> None:
        self.federator.n_database_failures = int(1 + 4 * amount)

    def _crash_idle(self, _device: SimulatedDevice, _amount: float) -> None:
        self.federator.kill()

    def _crash_before_commit(self, _device: SimulatedDevice, _amount: float) -> None:
        self.federator.crash_at = Failpoint.BATCH_DECIDED

    def _crash_after_commit(self, _device: SimulatedDevice, _amount: float) -> None:
        self.federator.crash_at = Failpoint.BATCH_COMMITTED

    def _crash_in_round(self, _device: SimulatedDevice, amount: float) -> None:
        self.federator.crash_at = _IN_ROUND[int(amount * len(_IN_ROUND)) % len(_IN_ROUND)]

    def _restart(self, _device: SimulatedDevice, _amount: float) -> None:
        if not self.federator.is_up:
            self.start_federator()

    def _stop(self, _device: SimulatedDevice, _amount: float) -> None:
        with self.time.of(self.federator.clock):
            self.federator.actor.stop()

    def _clock_skew(self, _device: SimulatedDevice, amount: float) -> None:
        self.clock_offset += 400.0 * (amount - 0.5)

    def _second_federator(self, _device: SimulatedDevice, _amount: float) -> None:
        self.start_federator()

    def _revoke(self, device: SimulatedDevice, amount: float) -> None:
        name, serial = device.client_id, self.serials[device.client_id]
        self.revoked[name] = serial
        self.operator.n_rosters += 1
        if amount < 0.6:
            self.operator.give(
                RevokeClient(federation=FEDERATION, client_id=name, void_below=serial + 1), twice=amount < 0.2
            )
        if amount > 0.4:
            self.operator.publish_roster(self.revoked)

    def _enrol_anew(self, device: SimulatedDevice, _amount: float) -> None:
        device.crash()
        self._enrol(device)
        self.judge.enrolled_anew.add(device.client_id)
        device.start()

    def _forget_me(self, device: SimulatedDevice, amount: float) -> None:
        self.ask_to_be_forgotten(device, 60.0 * amount)
        if amount < 0.3:
            # Another one leaves, too: at once, or while the first one is being unlearned.
            other = self.devices[(device.i + 1) % len(self.devices)]
            pause = 0.0 if amount < 0.1 else 20.0 * self.rng.random()
            self.schedule.after(pause, lambda: self.ask_to_be_forgotten(other, 60.0 * amount))

    def ask_to_be_forgotten(self, device: SimulatedDevice, timeout_s: float) -> None:
        if device.forget_me(timeout_s):
            self.judge.erasures.asked.add(device.client_id)

    def _order_to_forget(self, device: SimulatedDevice, amount: float) -> None:
        self.judge.erasures.asked.add(device.client_id)
        name = device.client_id
        order = ForgetClient(federation=FEDERATION, client_id=name, serial=self.serials[name])
        self.operator.give(order, twice=amount < 0.3)

    def _come_back(self, device: SimulatedDevice, _amount: float) -> None:
        """Under the same name, on another disk."""
        device.crash()
        device.store.lose()
        if self._enrolment_key is not None:
            self._enrol(device)
        device.start()

    def _everybody_away(self, _device: SimulatedDevice, amount: float) -> None:
        for device in self.devices:
            device.disconnect()
            self.schedule.after(120.0 * amount, lambda device=device: self._reconnect(device))

    def _keep_nothing(self, device: SimulatedDevice, _amount: float) -> None:
        device.store.keep_nothing()

    def _crash_in_erasure(self, _device: SimulatedDevice, amount: float) -> None:
        self.federator.crash_at = _IN_ERASURE[int(amount * len(_IN_ERASURE)) % len(_IN_ERASURE)]

    def _set_deadline(self, _device: SimulatedDevice, amount: float) -> None:
        number = max(self.store.tables.rounds, default=0)
        deadline = SetDeadline(federation=FEDERATION, round=number, max_time_s=0.5 + 40.0 * amount)
        self.operator.give(deadline, twice=amount < 0.3)

    def _quarantine(self, device: SimulatedDevice, amount: float) -> None:
        self.judge.quarantined.add(device.client_id)
        order = QuarantineClient(federation=FEDERATION, client_id=device.client_id, reason="it flips signs")
        self.operator.give(order, twice=amount < 0.3)

    def _let_out(self, device: SimulatedDevice, amount: float) -> None:
        self.let_out(device, twice=amount < 0.3)

    def let_out(self, device: SimulatedDevice, *, twice: bool = False) -> None:
        """The operator lets it out of quarantine."""
        self.operator.give(LiftQuarantine(federation=FEDERATION, client_id=device.client_id), twice=twice)

    def _old_copy(self, device: SimulatedDevice, amount: float) -> None:
        """The network delivers an update once more that the device made some time."""
        made = self.judge.payloads_of(device.client_id)
        if made:
            payload = made[int(amount * len(made)) % len(made)]
            self.broker.publish(self.topics.client(device.client_id, ClientTopic.UPDATES), payload)

    def _other_settings(self, _device: SimulatedDevice, amount: float) -> None:
        """The federator is started again with another pacing, and other numbers of interactions or plans for jobs."""
        self.federator.kill()
        policy, most = self.plan.policy, 1 + int(3 * amount) % 3
        if amount < 0.4:
            is_buffered = policy.pacing is Pacing.BUFFERED
            pacing = Pacing.DEADLINE if is_buffered else Pacing.BUFFERED
            limit = 0 if is_buffered else int(10 * amount)
            policy = replace(policy, pacing=pacing, staleness_limit=limit, over_selection=None)
        self.plan = replace(self.plan, policy=policy)
        if self.scenario.forgets:
            self.plan = replace(self.plan, unlearning=draw_unlearning(self.rng))
        else:
            # Jobs tell devices apart by what one interaction teaches.
            training = PdgdTraining(min_interactions=1, max_interactions=most)
            self.plan = replace(self.plan, training=training)
        self.start_federator()

    def _restore_database(self, _device: SimulatedDevice, amount: float) -> None:
        restore_database(self, amount)


def run(scenario: Scenario) -> World:
    """Play the scenario to its end. `BrokenPromiseError`, or what the code under test raises, says what is wrong."""
    world = World(scenario)
    with simulated(world), _without_collections():
        world.start_federator()
        for device in world.devices:
            device.start()
        for step in scenario.steps:
            world.apply(step)
        settle(world)
    return world


@contextmanager
def _without_collections() -> Iterator[None]:
    """A world is full of circles and ends as a whole: whoever looks for garbage before finds next to none."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
