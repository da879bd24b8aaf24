"""Clients that ask to be forgotten, and devices that answer the steps of the job that follows."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from foltr.core.protocol.announcements import UnlearningRound
from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.membership import Forget
from foltr.core.protocol.receipts import ErasureNotice
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.states import Strategy
from foltr.core.protocol.topics import ClientTopic
from foltr.core.protocol.updates import DenseDelta, UnlearningUpdate
from foltr.federator.job import UnlearningPolicy
from foltr.federator.round import RoundPolicy

STEP = "foltr/v1/mail/unlearning/round"
N_FEATURES = 4
THREE = RoundPolicy(3, 3, 0.0, 60.0)
NAMES = ("alice", "bob", "carol")
KEY = SigningKey(b"federator" + bytes(23))
EAGER = UnlearningPolicy(Strategy.FED_ERASER, interval=1, every_s=0.0, swap_every_s=0.0, step_s=10.0, patience_s=30.0)
ROWS = np.array([[3.0, 0, 0, 0], [0, 4.0, 0, 0], [0, 0, -50.0, 0]])


async def play(served: Any, devices: Sequence[Any], number: int, base: int, values: Sequence[Sequence[float]]) -> None:
    """A round in which each device sends one of the rows."""
    for device, row in zip(devices, values, strict=True):
        served.update(device, number, base, body=delta(row))
    await served.turn()
    served.clock.at += served.plan.policy.min_time_s
    await served.turn()
    served.receipts.sent.clear()


async def one_leaves(joined: Any, *policy: RoundPolicy, **plan: Any) -> tuple[Any, list[Any]]:
    """All have taught a round, and the last one asks to be forgotten."""
    served, devices = await joined(*policy, **plan)
    await play(served, devices, 1, 0, ROWS)
    await forget(served, devices[2])
    return served, devices


def delta(values: Sequence[float]) -> DenseDelta:
    return DenseDelta(dim=len(values), values=pack_vector(values))


def ask(served: Any, device: Any) -> None:
    served.receive(device, ClientTopic.FORGET, Forget(federation="mail", client_id=device.client_id))


async def forget(served: Any, device: Any) -> None:
    ask(served, device)
    await served.turn()


def notices(served: Any) -> list[ErasureNotice]:
    return [one for one in served.receipts.sent if isinstance(one, ErasureNotice)]


def step_of(served: Any) -> UnlearningRound:
    step = served.retained.topics[STEP]
    assert isinstance(step, UnlearningRound)
    return step


def answer(
    served: Any, device: Any, values: Sequence[float], step: UnlearningRound | None = None, n_interactions: int = 1
) -> None:
    step = step_of(served) if step is None else step
    named = {"federation": "mail", "client_id": device.client_id, "job": step.job, "step": step.step}
    update = UnlearningUpdate(**named, n_interactions=n_interactions, body=delta(values))
    served.receive(device, ClientTopic.UNLEARNING, update)


async def end_step(served: Any, devices: Iterable[Any], values: Sequence[float]) -> None:
    """Have these devices answer the open step, and the federator go on, to the swap if that was the last one."""
    for device in devices:
        answer(served, device, values)
    await served.turn()
    await served.turn()


async def unlearn(
    served: Any, devices: Iterable[Any], values: Sequence[float] | Callable[[str, int], Sequence[float]]
) -> int:
    """Have these devices answer every step of the job; return the number of steps.

    Args:
        values: what each answers, or which client answers what to which step.
    """
    for n_steps in range(100):
        step = served.retained.topics.get(STEP)
        if step is None:
            return n_steps
        for device in devices:
            answer(served, device, values(device.client_id, step.step) if callable(values) else values)
        await served.turn()
        await served.turn()
    raise AssertionError("the job does not end")
