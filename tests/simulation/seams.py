"""Where the world takes the place of what is real: time, chance, the database, the network and, mostly, signatures."""

import asyncio
import hashlib
import random
import sys
import uuid
import zlib
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from simulation.process import FederatorProcess, pause
from simulation.scenario import Trust

import foltr.broker.buffer
import foltr.core.protocol.codec
import foltr.core.protocol.signing
import foltr.core.unlearning.schedule
import foltr.edge_client.contribution
import foltr.edge_client.forgetting
import foltr.edge_client.membership
import foltr.federator.actor
import foltr.federator.batch_writer
import foltr.federator.closing.step_model
import foltr.federator.eraser
import foltr.federator.publishing.heartbeat
import foltr.federator.resumption
import foltr.federator.store
import foltr.storage.records
from foltr.core.erasure.receipt import ErasureReceipt
from foltr.core.failpoints import Failpoint

if TYPE_CHECKING:
    from simulation.world import World

_ABSENT = object()
# How often one looks whether something is done that runs beside it.
_LOOK_AGAIN_S = 0.1


class StandInKey:
    """A key whose signatures cost next to nothing, and which nobody here forges."""

    def __init__(self, seed: bytes) -> None:
        self.public = hashlib.sha256(seed).digest()

    def sign(self, data: bytes) -> bytes:
        return hashlib.sha512(self.public + data).digest()


def _verify_stand_in(public_key: bytes, data: bytes, signature: bytes) -> bool:
    return hashlib.sha512(public_key + data).digest() == signature


def sign_stand_in(receipt: ErasureReceipt, key: StandInKey) -> str:
    """As `foltr.core.erasure.receipt.sign_receipt`: the same receipt and key give the same text."""
    text = receipt.model_dump_json()
    return f"{text}.{key.sign(text.encode()).hex()}"


def _acting(world: "World") -> FederatorProcess | None:
    return next((process for process in world.processes if world.time.clock is process.clock), None)


async def _at_once(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


class _Task:
    """What runs beside its process, and ends with it at the latest."""

    def __init__(self, world: "World", coroutine: Coroutine[float, None, None]) -> None:
        self._world, self._coroutine, self._done = world, coroutine, False
        process = _acting(world)
        if process is None:
            raise AssertionError("a task of no process")
        self._process = process
        world.schedule.after(0.0, self._go_on)

    def _go_on(self) -> None:
        if not self._process.is_up:
            self.close()
            return
        with self._world.time.of(self._process.clock):
            try:
                seconds = self._coroutine.send(None)
            except StopIteration:
                self._done = True
            else:
                self._world.schedule.after(seconds, self._go_on)

    def close(self) -> None:
        self._coroutine.close()
        self._done = True

    def __await__(self) -> Generator[float, None, None]:
        while not self._done:
            yield _LOOK_AGAIN_S


async def _is_set_within(event: asyncio.Event, timeout_s: float) -> bool:
    """For whoever looks again only when the time is over."""
    if not event.is_set() and timeout_s > 0.0:
        await pause(timeout_s)
    return event.is_set()


@contextmanager
def simulated(world: "World") -> Iterator[None]:
    """Everything that would reach outside is the world's, as long as this lasts."""
    rng = random.Random(f"seams {world.scenario.seed}")  # noqa: S311

    def failpoint(name: Failpoint) -> None:
        acting = _acting(world)
        if acting is not None:
            acting.pass_failpoint(name)

    tasks: list[_Task] = []

    def create_task(coroutine: Coroutine[float, None, None], **_: object) -> _Task:
        tasks.append(_Task(world, coroutine))
        return tasks[-1]

    silence = _Silence()
    loop = SimpleNamespace(time=world.time.monotonic, call_later=world.schedule.after)
    asyncio_on_devices = SimpleNamespace(get_running_loop=lambda: loop, Event=asyncio.Event)
    replaced: list[tuple[Any, dict[str, Any]]] = [
        (foltr.broker.buffer, {"hash": lambda text: zlib.crc32(text.encode())}),
        (foltr.federator.actor, {"BATCH_LIMIT": world.scenario.batch_limit}),
        (foltr.federator.batch_writer, {"asyncio": SimpleNamespace(get_running_loop=lambda: loop)}),
        (
            foltr.federator.store,
            {
                "random": SimpleNamespace(uniform=rng.uniform),
                "asyncio": SimpleNamespace(sleep=pause, get_running_loop=lambda: loop),
            },
        ),
        (foltr.federator.resumption, {"secrets": SimpleNamespace(token_bytes=rng.randbytes)}),
        (foltr.federator.eraser, {"asyncio": SimpleNamespace(create_task=create_task, timeout=nullcontext)}),
        (foltr.federator.publishing.heartbeat, {"asyncio": SimpleNamespace(timeout=nullcontext, Event=asyncio.Event)}),
        (foltr.federator.closing.step_model, {"asyncio": SimpleNamespace(to_thread=_at_once)}),
        (foltr.edge_client.forgetting, {"asyncio": asyncio_on_devices}),
        (foltr.edge_client.membership, {"asyncio": asyncio_on_devices}),
        (
            foltr.edge_client.contribution,
            {"secrets": SimpleNamespace(token_hex=lambda n_bytes: rng.randbytes(n_bytes).hex())},
        ),
        (foltr.core.protocol.signing, {"time": world.time}),
        # Jobs tell devices apart by what one interaction teaches.
        (foltr.core.unlearning.schedule, {"FEWEST_INTERACTIONS": 1}),
        (foltr.storage.records, {"uuid4": lambda: uuid.UUID(int=rng.getrandbits(128))}),
    ]
    if world.scenario.trust is not Trust.SIGNED:
        replaced.append((foltr.core.protocol.codec, {"verify": _verify_stand_in, "verify_repeated": _verify_stand_in}))
        replaced.append((foltr.federator.eraser, {"sign_receipt": sign_stand_in}))
    on_devices = {"log": silence, "time": world.time, "is_set_within": _is_set_within}
    in_federators = {"log": silence, "failpoint": failpoint}
    replaced += [(module, _of(module, on_devices)) for module in _modules_of("foltr.edge_client.")]
    replaced += [(module, _of(module, in_federators)) for module in _modules_of("foltr.federator.")]
    before = [(module, name, vars(module).get(name, _ABSENT)) for module, names in replaced for name in names]
    try:
        for module, names in replaced:
            for name, new in names.items():
                setattr(module, name, new)
        yield
    finally:
        for task in tasks:
            task.close()
        for module, name, old in before:
            if old is _ABSENT:
                delattr(module, name)
            else:
                setattr(module, name, old)


@cache
def _modules_of(package: str) -> list[Any]:
    """All that a world needs are there before the first one begins."""
    return [module for name, module in sys.modules.items() if name.startswith(package)]


def _of(module: Any, names: dict[str, Any]) -> dict[str, Any]:
    return {name: names[name] for name in names.keys() & vars(module).keys()}


class _Silence:
    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_, **__: None
