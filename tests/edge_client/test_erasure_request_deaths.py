"""kill -9 of a device at every step of asking to be forgotten, and of hearing of it: the wish is lost nowhere."""

import asyncio
import contextlib
import sys
from pathlib import Path

import pytest
from cli.commands import environment
from support.federator_by_hand import TOPICS, Federator
from support.waiting import PATIENCE_S

from foltr.core.failpoints import VARIABLE, Failpoint
from foltr.core.protocol.receipts import ErasureNotice, ReceiptCode
from foltr.core.protocol.topics import ClientTopic

PROGRAM = Path(__file__).with_name("asking.py")
INBOX = TOPICS.client("device-7", ClientTopic.INBOX)
# Where it dies, at which pass, and what the next life knows: before the wish is on the disk nobody has asked.
DEATHS = [(Failpoint.WISH_STORED, 1, "asked"), (Failpoint.IN_FORGETTING_TRANSACTION, 1, "forgetting")]
MORE_DEATHS = [
    (Failpoint.IN_WISH_TRANSACTION, 1, "None"),
    (Failpoint.WISH_SENT, 1, "asked"),
    (Failpoint.IN_WISH_TRANSACTION, 2, "asked"),  # it has heard, and notes that
    (Failpoint.WISH_STORED, 2, "forgetting"),
    (Failpoint.STORE_FORGOTTEN, 1, "forgetting"),
]


async def life(broker: str, store: Path, what: str, failpoints: str = "") -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, str(PROGRAM), broker, str(store), what),
        env=environment(**{VARIABLE: failpoints, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(PROGRAM.parents[1])}),
        stdout=asyncio.subprocess.PIPE,
    )


@contextlib.asynccontextmanager
async def answering(broker: str, *codes: ReceiptCode):
    """A federator that answers each wish with the next of these codes, the last one again and again; or never."""
    left = list(codes)
    async with Federator(broker) as federator:

        async def answer() -> None:
            while True:
                with contextlib.suppress(TimeoutError):
                    if await federator.next("forget") and left:
                        code = left.pop(0) if len(left) > 1 else left[0]
                        notice = ErasureNotice(federation="mail", client_id="device-7", code=code, receipt=b"signed")
                        await federator.say(INBOX, notice)

        task = asyncio.create_task(answer())
        yield federator
        task.cancel()


@pytest.mark.parametrize(
    ("failpoint", "at_pass", "known"),
    [*DEATHS, *(pytest.param(*death, marks=pytest.mark.nightly) for death in MORE_DEATHS)],
)
async def test_a_device_killed_while_it_asks_asks_again(mosquitto_server, path, failpoint, at_pass, known):
    """Once the wish is on the disk it is sent by the next life, which joins no more, until there is a receipt."""
    broker = mosquitto_server.url
    codes = () if failpoint is Failpoint.WISH_SENT else (ReceiptCode.FORGETTING, ReceiptCode.FORGOTTEN)
    async with answering(broker, *codes):
        dying = await life(broker, path, "ask", f"{failpoint}=kill@{at_pass}")
        assert await dying.stdout.readline() == b"None\n"
        assert await asyncio.wait_for(dying.wait(), PATIENCE_S) == -9
    mosquitto_server.kill()  # with all that it retained
    mosquitto_server.start()
    async with answering(broker, ReceiptCode.FORGOTTEN) as federator:
        n_joins = federator.n_heard("join")
        again = await life(broker, path, "wait" if known != "None" else "ask")
        assert (await again.stdout.readline()).decode().strip() == known
        assert await asyncio.wait_for(again.stdout.readline(), PATIENCE_S) == b"forgotten\n"
        assert await asyncio.wait_for(again.wait(), PATIENCE_S) == 0
        if known != "None":
            assert federator.n_heard("join") == n_joins
        assert federator.n_heard("updates") == 0
