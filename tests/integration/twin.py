"""A device that does nothing but be there: ``python twin.py CREDENTIALS STORE``."""

import asyncio
import sys

from foltr.edge_client.client import EdgeClient


async def main(credentials: str, store: str) -> None:
    async with EdgeClient(credentials, store=store):
        await asyncio.sleep(3600)  # clock: stand-in


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
