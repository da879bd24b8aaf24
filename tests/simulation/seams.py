"""Where the world takes the place of what is real: time, chance, the database, the network and, mostly, signatures."""

import hashlib
import random
import sys
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from simulation.device import TinyStore
from simulation.process import pause
from simulation.scenario import Trust
from simulation.store import ERASURE_FUNCTIONS, FUNCTIONS

import edge_client.client
import edge_client.contribution
import federator.actor
import federator.collecting
import federator.eraser
import federator.unlearner
import foltr.codec
import foltr.identity
import storage.records
from foltr.failpoints import Failpoint

if TYPE_CHECKING:
    from simulation.world import World

_ABSENT = object()


class StandInKey:
    """A key whose signatures cost next to nothing, and which nobody here forges."""

    def __init__(self, seed: bytes) -> None:
        self.public = hashlib.sha256(seed).digest()

    def sign(self, data: bytes) -> bytes:
        return hashlib.sha512(self.public + data).digest()


def _verify_stand_in(public_key: bytes, data: bytes, signature: bytes) -> bool:
    return hashlib.sha512(public_key + data).digest() == signature


@contextmanager
def simulated(world: "World") -> Iterator[None]:
    """Everything that would reach outside is the world's, as long as this lasts."""
    rng = random.Random(f"seams {world.scenario.seed}")  # noqa: S311

    def make_store(*_: object, **__: object) -> TinyStore:
        return world.starting().store

    def make_link(*args: Any, **wanted: Any) -> Any:
        return world.starting().make_link(*args, **wanted)

    def failpoint(name: Failpoint) -> None:
        acting = next((process for process in world.processes if world.time.clock is process.clock), None)
        if acting is not None:
            acting.pass_failpoint(name)

    silence = _Silence()
    loop = SimpleNamespace(time=world.time.monotonic, call_later=world.schedule.after)
    replaced: list[tuple[Any, dict[str, Any]]] = [
        (
            federator.actor,
            FUNCTIONS
            | {
                "BATCH_LIMIT": world.scenario.batch_limit,
                "failpoint": failpoint,
                "log": silence,
                "random": SimpleNamespace(uniform=rng.uniform),
                "secrets": SimpleNamespace(token_bytes=rng.randbytes),
                "hash": lambda text: zlib.crc32(text.encode()),
                "asyncio": SimpleNamespace(sleep=pause, get_running_loop=lambda: loop),
            },
        ),
        (federator.collecting, _of(federator.collecting, FUNCTIONS)),
        *((module, _of(module, ERASURE_FUNCTIONS)) for module in (federator.eraser, federator.unlearner)),
        (
            edge_client.client,
            {"DeviceStore": make_store, "MqttLink": make_link},
        ),
        (
            edge_client.contribution,
            {"uuid": SimpleNamespace(uuid4=lambda: uuid.UUID(int=rng.getrandbits(128)))},
        ),
        (foltr.identity, {"time": world.time}),
        (storage.records, {"uuid4": lambda: uuid.UUID(int=rng.getrandbits(128))}),
    ]
    if world.scenario.trust is not Trust.SIGNED:
        replaced.append((foltr.codec, {"verify": _verify_stand_in, "verify_repeated": _verify_stand_in}))
    for name, module in sys.modules.items():
        if name.startswith("edge_client."):
            names = {"log": silence, "time": world.time}
            replaced.append((module, {name: new for name, new in names.items() if name in vars(module)}))
    before = [(module, name, vars(module).get(name, _ABSENT)) for module, names in replaced for name in names]
    try:
        for module, names in replaced:
            vars(module).update(names)
        yield
    finally:
        for module, name, old in before:
            if old is _ABSENT:
                delattr(module, name)
            else:
                setattr(module, name, old)


def _of(module: Any, functions: dict[str, Any]) -> dict[str, Any]:
    return {name: function for name, function in functions.items() if name in vars(module)}


class _Silence:
    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_, **__: None
