"""A device that asks to be forgotten, or waits until it is, to be killed: python asking.py BROKER STORE ask|wait."""

import asyncio
import sys
from unittest import mock

from support.federator_by_hand import device
from support.waiting import PATIENCE_S

from foltr.edge_client.events import Event, ForgetStateChanged


def say(state: object) -> None:
    sys.stdout.write(f"{state}\n")
    sys.stdout.flush()


async def main(broker: str, store: str, what: str) -> None:
    forgotten = asyncio.Event()

    def observe(event: Event) -> None:
        if event == ForgetStateChanged("forgotten"):
            forgotten.set()

    # Three seconds between two requests are too long for a test.
    again_soon = mock.patch("foltr.edge_client.forgetting.FORGET_AGAIN_S", 0.1)
    with again_soon:
        async with device(broker, store, on_event=observe) as client:
            say(client.forget_state)
            if what == "ask":
                await client.wait_connected(PATIENCE_S)
                say((await client.forget_me(timeout_s=PATIENCE_S)).state)
            else:
                await forgotten.wait()
                say(client.forget_state)


asyncio.run(main(*sys.argv[1:]))
