"""The end of a run: everything is healed, time passes, and then all must be well."""

from typing import TYPE_CHECKING

from simulation.device import FEDERATION, SimulatedDevice
from simulation.promises import BrokenPromiseError
from simulation.restoring import enter_epoch, forget_again, is_behind

from foltr.core.protocol.audit_heads import AuditHead
from foltr.core.protocol.codec import decode
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.federator.publishing.audit_heads import head_of

if TYPE_CHECKING:
    from simulation.world import World


def settle(world: "World") -> None:
    """Heal everything; then every member with something to tell must be heard, and soon."""
    _mend(world)
    members = [device for device in world.devices if _is_member(world, device)]
    n_before = dict(world.judge.n_counted)
    for device in members:
        device.store.make_room()
        device.click()

    def is_heard(device: SimulatedDevice) -> bool:
        if not device.takes_part:
            return True  # its wish to be forgotten was on its way
        pending = device.store.pending_update()
        told = pending is None or not world.judge.is_counted(pending.update_id)
        return told and world.judge.n_counted.get(device.client_id, 0) > n_before.get(device.client_id, 0)

    give_up_at = world.schedule.now + 40.0 * world.scenario.policy.max_time_s + 600.0
    while not _finished(world) and not all(is_heard(device) for device in members):
        if world.schedule.now > give_up_at:
            unheard = [device.client_id for device in members if not is_heard(device)]
            raise BrokenPromiseError("whoever takes part is heard", f"{unheard}, {_state(world)}")
        world.pass_time(3.0)
        if not world.federator.is_up and not _finished(world):
            world.start_federator()
    if world.judge.erasures.asked:
        _settle_erasures(world)
    disks = {device.client_id: device.store for device in world.devices}
    world.judge.clicks.check_books(disks, world.store.tables)


def _settle_erasures(world: "World") -> None:
    """Whoever is forgotten is so in the end, and knows it, if its device is there."""
    judge = world.judge.erasures
    for device in world.devices:
        if device.is_asking:
            world.ask_to_be_forgotten(device, 60.0)
    # A step may be asked three times, and there is one for each round, in two attempts.
    give_up_at = world.schedule.now + 600.0 + 8.0 * world.plan.unlearning.step_s * len(world.store.tables.rounds)
    while unfinished := _unfinished_erasures(world):
        if world.schedule.now > give_up_at:
            raise BrokenPromiseError("who is to be forgotten is, and is told", f"{unfinished}, {_state(world)}")
        world.pass_time(3.0)
        if not world.federator.is_up and judge.unfinished():
            world.start_federator()


def _unfinished_erasures(world: "World") -> list[str]:
    judge = world.judge.erasures
    erased = judge.erased()
    unfinished = judge.unfinished()
    for device in world.devices:
        name = device.client_id
        if not world.federator.is_up:
            continue  # after the last round nobody is there to answer
        if device.is_asking:
            unfinished.append(f"{name} was not answered")
        if name not in erased:
            continue
        if device.takes_part:
            unfinished.append(f"{name} was not told")
        kept = (Topics(FEDERATION).client(name, topic) for topic in (ClientTopic.STATUS, ClientTopic.FORGET))
        unfinished += [f"{topic} is retained" for topic in kept if topic in world.broker.retained]
    if world.store.unpurged:
        unfinished.append("bytes are left")
    if world.federator.is_up and not _is_head_published(world):
        unfinished.append("the audit log's newest entry is not published")
    return unfinished


def _is_head_published(world: "World") -> bool:
    published = world.broker.retained.get(Topics(FEDERATION).audit_head)
    audit = world.store.tables.audit
    return published is not None and decode(published, AuditHead) == head_of(FEDERATION, audit[-1] if audit else None)


def _mend(world: "World") -> None:
    world.clock_offset = max(0.0, world.clock_offset)
    if world.federator in world.judge.behind or is_behind(world):
        # As the manual says, and what it says of it: devices believe the next federator. The one of now may have ended
        # before it claimed anything, and the clock may have been set back since.
        world.federator.kill()
        enter_epoch(world)
    process = world.federator
    process.n_database_failures, process.crash_at = 0, None
    if process.is_up:
        process.reconnect()
    else:
        world.start_federator()
    if world.operator.n_rosters:
        world.operator.publish_roster(world.revoked)
    forget_again(world)
    world.operator.send_unanswered()
    for device in world.devices:
        device.store.n_failures_due = 0
        device.heal()
        if not device.running:
            device.start()
    world.pass_time(5.0)
    for device in world.devices:
        if device.client_id in world.judge.quarantined:
            world.let_out(device)
    world.pass_time(1.0)


def _is_member(world: "World", device: SimulatedDevice) -> bool:
    serial = world.serials.get(device.client_id, 1)
    is_known = not device.left and serial > world.revoked.get(device.client_id, 0)
    judge = world.judge.erasures
    return is_known and device.takes_part and device.client_id not in judge.erased() | judge.again


def _finished(world: "World") -> bool:
    last = world.scenario.stop_after_round
    return last is not None and len(world.store.tables.rounds) >= last and not world.store.tables.open_rounds()


def _state(world: "World") -> str:
    round_ = world.federator.actor.state.round
    return f"federator {world.federator.state}, {round_}, at {world.schedule.now:.1f}"
