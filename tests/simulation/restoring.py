"""A database is restored: what else goes wrong then, who notices that, and what the operator does about it."""

from typing import TYPE_CHECKING

from simulation.clock import Clock
from simulation.device import FEDERATION

from foltr.core.protocol.orders import ForgetClient

if TYPE_CHECKING:
    from simulation.world import World

_RESTORE_S = 30.0


def restore_database(world: "World", amount: float) -> None:
    """An older copy takes the place of the database; sometimes the broker is lost, too, or the clock set back."""
    for process in world.processes:
        process.kill()
    world.judge.restore(world.store.restore(amount))
    world.operator.forget_answers()
    chance = world.rng.random()
    if chance < 0.5:
        world.crash_broker(amount)
    world.pass_time(_RESTORE_S)
    if 0.3 < chance < 0.85:
        world.clock_offset -= 1000.0 * (chance - 0.3)
    else:
        world.clock_offset = max(process.clock.offset for process in world.processes)
    world.start_federator()
    forget_again(world)


def forget_again(world: "World") -> None:
    """The operator forgets again who was forgotten since the database was copied, under the newest enrolment."""
    for name in world.judge.erasures.to_forget_again():
        world.operator.give(ForgetClient(federation=FEDERATION, client_id=name, serial=world.serials[name]))


def is_behind(world: "World") -> bool:
    """Whether the clock is behind a claim that the database, restored, and the broker, killed, know nothing of."""
    federation, newest = world.store.tables.federation, _newest_epoch(world)
    if federation is None or newest <= federation.writer_epoch:
        return False
    return max(world.newest_announced(), int(Clock(world.clock_offset).wall(world.schedule.now)) - 1) < newest


def enter_epoch(world: "World") -> None:
    """The operator writes into the database what the devices' logs say was heard already."""
    world.store.enter_epoch(_newest_epoch(world))


def _newest_epoch(world: "World") -> int:
    """The newest claim of all, whatever became of it."""
    return max((process.actor.epoch for process in world.processes), default=0)
