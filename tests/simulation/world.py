"""A whole federation in one thread and one seed: the real actor, engine and clients; simulated everything else.

`run` plays a scenario, then heals everything, lets time pass, and looks whether all is well.
"""

import gc
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

from simulation.beats import BeatBroker, check_watches
from simulation.clock import Schedule, WorldTime
from simulation.database import SimulatedStore
from simulation.device import FEDERATION, SimulatedDevice
from simulation.ending import settle
from simulation.judge import Judge
from simulation.judge_erasure import ErasureJudge
from simulation.network import FAULTS, SimulatedBroker
from simulation.operator import SimulatedOperator
from simulation.process import FederatorProcess, Receipt
from simulation.restoring import is_behind, restore_database
from simulation.scenario import Operation, Scenario, Step, Trust, draw_unlearning
from simulation.seams import StandInKey, simulated

from foltr.core.failpoints import Failpoint
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


class World:
    """The state of one run, and what happens to it."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.rng = random.Random(f"world {scenario.seed}")  # noqa: S311
        self.schedule = Schedule()
        self.time = WorldTime(self.schedule)
        self.topics = Topics(FEDERATION)
        self.judge = Judge(ErasureJudge(lambda name: name in self.store.keys))
        self.store = SimulatedStore(self.judge.on_commit)
        self.broker = SimulatedBroker(self.topics, self.schedule)
        self.beats = BeatBroker(self)
        self.processes: list[FederatorProcess] = []
        self._make_key = SigningKey if scenario.trust is Trust.SIGNED else StandInKey
        trusting = scenario.trust is Trust.ANYONE
        self.enrolment_key = None if trusting else self._make_key(self.rng.randbytes(32))
        self.federator_key = None if trusting else self._make_key(self.rng.randbytes(32))
        self.serials: dict[str, int] = {}
        self.revoked: dict[str, int] = {}
        self.operator = SimulatedOperator(self)
        self.clock_offset = 0.0
        self.plan = FederationPlan(
            FEDERATION,
            n_features=1,
            policy=scenario.policy,
            training=PdgdTraining(min_interactions=1, max_interactions=1),
            stop_after_round=scenario.stop_after_round,
            resume_grace_s=_GRACE_S,
            enrolment_key=None if self.enrolment_key is None else self.enrolment_key.public,
            unlearning=scenario.unlearning,
        )
        self.devices: list[SimulatedDevice] = []
        for i in range(scenario.n_devices):
            device = SimulatedDevice(i, self)
            self.devices.append(device)
            self.broker.devices[device.client_id] = device
            self._enrol(device)

    def _enrol(self, device: SimulatedDevice) -> None:
        if self.enrolment_key is None:
            return
        serial = self.serials[device.client_id] = self.serials.get(device.client_id, 0) + 1
        key = self._make_key(self.rng.randbytes(32))
        enrolment = issue_enrolment(self.enrolment_key, FEDERATION, device.client_id, key.public, serial, 0.0)
        device.papers = SimpleNamespace(
            name=device.client_id,
            federation=FEDERATION,
            key=key,
            enrolment_bytes=enrolment,
            federator_public_key=self.federator_key.public,
            policy_bytes=None,
            is_pinned=False,
            operator_keys=None,
        )

    def start_federator(self) -> None:
        process = FederatorProcess(self)
        if is_behind(self):
            self.judge.behind.add(process)
        self.processes.append(process)

    @property
    def federator(self) -> FederatorProcess:
        return self.processes[-1]

    def newest_announced(self) -> int:
        """The epoch of what the broker retains."""
        return self.broker.predecessor(self.federator_key).epoch

    def hear(self, process: FederatorProcess, receipt: Receipt) -> None:
        """See what a process tells devices and the operator."""
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

    def reconnect_successor(self, ended: FederatorProcess) -> None:
        """One that was fenced may have thrown its successor out of the broker: they share one session."""
        successor = self.federator
        if self.broker.federator is ended and successor is not ended and not successor.down.is_cut:
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

    def apply(self, step: Step) -> None:
        device = self.devices[step.who % len(self.devices)]
        if step.operation in FAULTS:
            wire = device.up if step.amount < 0.5 else device.down
            wire.faults.extend([step.operation] * (1 + int(step.amount * 20) % 3))
        else:
            self._happen_to_device(step.operation, device, step.amount)
        self.pass_time(0.0)

    def _happen_to_device(self, operation: Operation, device: SimulatedDevice, amount: float) -> None:
        match operation:
            case Operation.INTERACT:
                for other in self.devices if amount < 0.3 else [device]:
                    other.click()
            case Operation.PARTITION:
                device.up.is_cut = amount > 0.2
                device.down.is_cut = amount < 0.8
                if device.is_up:
                    self.schedule.after(30.0 * amount, device.notice_partition)
            case Operation.HEAL:
                device.heal()
            case Operation.DEVICE_CRASH:
                device.crash()
            case Operation.DEVICE_START:
                if device.left:
                    device.crash()
                if not device.running:
                    device.start()
            case Operation.DEVICE_LEAVE:
                device.leave()
            case Operation.DEVICE_CLOCK_SET:
                device.clock.offset += 2e4 * (amount - 0.5)
            case Operation.DEVICE_DISK_FULL:
                device.store.n_failures_due = int(1 + 3 * amount)
            case Operation.DEVICE_LOSES_STORE:
                device.crash()
                device.store.lose()
            case Operation.KEEP_NOTHING:
                device.store.keep_nothing()
            case Operation.EVERYBODY_AWAY:
                for other in self.devices:
                    other.disconnect()
                    self.schedule.after(120.0 * amount, other.reconnect)
            case Operation.ENROL_ANEW:
                device.crash()
                self._enrol(device)
                self.judge.enrolled_anew.add(device.client_id)
                device.start()
            case Operation.COME_BACK:  # under the same name, on another disk
                device.crash()
                device.store.lose()
                self._enrol(device)
                device.start()
            case Operation.FORGET_ME:
                self._forget(device, amount)
            case Operation.OLD_COPY:  # the network delivers an update once more that the device made some time
                if made := self.judge.payloads_of(device.client_id):
                    payload = made[int(amount * len(made)) % len(made)]
                    self.broker.publish(self.topics.client(device.client_id, ClientTopic.UPDATES), payload)
            case _:
                self._happen_to_federator(operation, device, amount)

    def _forget(self, device: SimulatedDevice, amount: float) -> None:
        self.ask_to_be_forgotten(device, 60.0 * amount)
        if amount < 0.3:
            # Another one leaves, too: at once, or while the first one is being unlearned.
            other = self.devices[(device.i + 1) % len(self.devices)]
            pause = 0.0 if amount < 0.1 else 20.0 * self.rng.random()
            self.schedule.after(pause, lambda: self.ask_to_be_forgotten(other, 60.0 * amount))

    def ask_to_be_forgotten(self, device: SimulatedDevice, timeout_s: float) -> None:
        if device.forget_me(timeout_s):
            self.judge.erasures.asked.add(device.client_id)

    def _happen_to_federator(self, operation: Operation, device: SimulatedDevice, amount: float) -> None:
        process = self.federator
        match operation:
            case Operation.TICK:
                self.pass_time(0.05 * 600.0**amount)
            case Operation.BROKER_CRASH:
                self.crash_broker(amount)
            case Operation.FEDERATOR_PARTITION:
                process.down.is_cut = True
            case Operation.FEDERATOR_HEAL:
                process.reconnect()
            case Operation.DATABASE_AWAY:
                process.n_database_failures = int(1 + 4 * amount)
            case Operation.CRASH_IDLE:
                process.kill()
            case Operation.CRASH_BEFORE_COMMIT:
                process.crash_at = Failpoint.BATCH_DECIDED
            case Operation.CRASH_AFTER_COMMIT:
                process.crash_at = Failpoint.BATCH_COMMITTED
            case Operation.CRASH_IN_ROUND:
                process.crash_at = _IN_ROUND[int(amount * len(_IN_ROUND)) % len(_IN_ROUND)]
            case Operation.CRASH_IN_ERASURE:
                process.crash_at = _IN_ERASURE[int(amount * len(_IN_ERASURE)) % len(_IN_ERASURE)]
            case Operation.RESTART:
                if not process.is_up:
                    self.start_federator()
            case Operation.STOP:
                with self.time.of(process.clock):
                    process.actor.stop()
            case Operation.CLOCK_SKEW:
                self.clock_offset += 400.0 * (amount - 0.5)
            case Operation.SECOND_FEDERATOR:
                self.start_federator()
            case Operation.OTHER_SETTINGS:
                self._restart_with_other_settings(amount)
            case Operation.RESTORE_DATABASE:
                restore_database(self, amount)
            case _:
                self._order(operation, device, amount)

    def crash_broker(self, amount: float) -> None:
        """It loses all that it retained and queued, and every connection."""
        self.broker.forget_everything()
        self.beats.forget_everything()
        for device in self.devices:
            device.disconnect()
            self.schedule.after(30.0 * self.rng.random(), device.reconnect)
        self.federator.down.is_cut = True
        self.schedule.after(10.0 * amount, self.federator.reconnect)

    def _restart_with_other_settings(self, amount: float) -> None:
        """Start the federator with another pacing, and other numbers of interactions or plans for jobs."""
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

    def _order(self, operation: Operation, device: SimulatedDevice, amount: float) -> None:
        name, is_sent_twice = device.client_id, amount < 0.3
        match operation:
            case Operation.REVOKE:
                self._revoke(name, amount)
            case Operation.SET_DEADLINE:
                number = max(self.store.tables.rounds, default=0)
                deadline = SetDeadline(federation=FEDERATION, round=number, max_time_s=0.5 + 40.0 * amount)
                self.operator.give(deadline, twice=is_sent_twice)
            case Operation.QUARANTINE:
                self.judge.quarantined.add(name)
                quarantine = QuarantineClient(federation=FEDERATION, client_id=name, reason="it flips signs")
                self.operator.give(quarantine, twice=is_sent_twice)
            case Operation.LET_OUT:
                self.let_out(device, twice=is_sent_twice)
            case Operation.ORDER_TO_FORGET:
                self.judge.erasures.asked.add(name)
                order = ForgetClient(federation=FEDERATION, client_id=name, serial=self.serials[name])
                self.operator.give(order, twice=is_sent_twice)
            case _:
                raise AssertionError(f"nobody knows how to {operation}")

    def _revoke(self, name: str, amount: float) -> None:
        serial = self.revoked[name] = self.serials[name]
        self.operator.n_rosters += 1
        if amount < 0.6:
            order = RevokeClient(federation=FEDERATION, client_id=name, void_below=serial + 1)
            self.operator.give(order, twice=amount < 0.2)
        if amount > 0.4:
            self.operator.publish_roster(self.revoked)

    def let_out(self, device: SimulatedDevice, *, twice: bool = False) -> None:
        """The operator lets it out of quarantine."""
        self.operator.give(LiftQuarantine(federation=FEDERATION, client_id=device.client_id), twice=twice)


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
