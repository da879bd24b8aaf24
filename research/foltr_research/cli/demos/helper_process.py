"""A helper of the demonstration in a separate process, which can be killed and restarted."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from foltr.core.operator.credentials import BrokerAccess, Credentials, write_credentials
from foltr.core.protocol.policies import HelperKeys
from foltr.core.protocol.signing import SigningKey, key_to_text
from foltr.helper.store import HelperStore

_COMMAND = (sys.executable, "-c", "from foltr.cli.main import main; main()")
_STOP_S = 10.0


@dataclass
class HelperProcess:
    """A helper's files, and its process while it runs.

    Attributes:
        keys: its public keys, which the policy needs.
        n_started: number of starts.
    """

    name: str
    keys: HelperKeys
    credentials: Path
    store: Path
    n_started: int = 0
    _process: asyncio.subprocess.Process | None = field(default=None, repr=False)

    @classmethod
    def prepare(
        cls, folder: Path, name: str, federation: str, access: BrokerAccess, enrolment_key: bytes, federator_key: bytes
    ) -> "HelperProcess":
        """Write the credentials and create the store of a new helper."""
        key = SigningKey.generate()
        credentials = Credentials(
            role="helper",
            federation=federation,
            name=name,
            broker=access,
            signing_key=key.to_text(),
            enrolment_key=key_to_text(enrolment_key),
            federator_key=key_to_text(federator_key),
        )
        file, store = folder / f"{name}.json", folder / f"{name}.sqlite"
        write_credentials(file, credentials)
        with contextlib.closing(HelperStore(store, f"{federation}/{name}", exclusive=True)) as opened:
            sealing_key, epoch_keys = opened.make_sealing_keys(1)
        keys = HelperKeys(name=name, signing_key=key.public, sealing_key=sealing_key, epoch_keys=epoch_keys)
        return cls(name, keys, file, store)

    def tell(self, known: Mapping[str, str]) -> None:
        """Add fields to its credentials."""
        credentials = Credentials.model_validate_json(self.credentials.read_text(encoding="utf-8"))
        write_credentials(self.credentials, credentials.model_copy(update=dict(known)))

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *_COMMAND,
            *("helper", "run", "--credentials", str(self.credentials), "--store", str(self.store)),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        self.n_started += 1

    async def kill(self) -> None:
        """Kill the process without warning, like a power failure."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        await self._end(signal.SIGTERM)

    async def wait(self) -> int:
        """Wait for the current process to end. Return its exit code."""
        return -1 if self._process is None else await self._process.wait()

    async def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        process.send_signal(number)
        try:
            await asyncio.wait_for(process.wait(), _STOP_S)
        except TimeoutError:
            process.kill()
            await process.wait()


@contextlib.asynccontextmanager
async def running(helpers: Sequence[HelperProcess]) -> AsyncIterator[None]:
    """Start helpers, and end their processes when the block ends, also after an error."""
    try:
        for helper in helpers:
            await helper.start()
        yield
    finally:
        for helper in helpers:
            await helper.stop()
