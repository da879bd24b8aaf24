"""The part of the site's server that learning needs: it enrols browsers, and runs the broker and the federator.

Started by visit.mjs. It reads a public key from each line of standard input, and answers with a line of credentials and
the broker's address. It ends after the last round.
"""

import argparse
import asyncio
import base64
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from foltr.broker.embedded import LOOPBACK, embedded_broker, free_port
from foltr.cli.output import configure_logging
from foltr.core.operator.credentials import BrokerAccess, Credentials, public_key_from
from foltr.core.protocol.enrolment import issue_enrolment
from foltr.core.protocol.schemas import FeatureSchema
from foltr.core.protocol.signing import SigningKey, key_to_text
from foltr.core.protocol.trainings import PdgdTraining
from foltr.federator.plan import FederationPlan
from foltr.federator.round import RoundPolicy
from foltr.federator.service import FederatorService
from foltr.storage.database import Database
from foltr.storage.migrate import upgrade

NAME: Final = "docs-search"
_SCHEMA: Final = FeatureSchema.read(Path(__file__).with_name("features.json"))
_LEARNING_RATE: Final = 3.0
"""That of `foltr federator run` by default."""
_LONGEST_ROUND_S: Final = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description="Enrol browsers, and run the federator")
    parser.add_argument("--visitors", type=int, required=True, help="each round waits for all of them")
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--searches", type=int, required=True, help="of each visitor in each round")
    options = parser.parse_args()
    if options.visitors < 1:
        parser.error(f"--visitors: {options.visitors} is below 1; name how many browsers take part")
    configure_logging("error", "console")
    training = PdgdTraining(
        learning_rate=_LEARNING_RATE, min_interactions=options.searches, max_interactions=options.searches
    )
    operator, federator = SigningKey.generate(), SigningKey.generate()
    plan = FederationPlan(
        NAME,
        _SCHEMA.n_features,
        RoundPolicy(options.visitors, options.visitors, 0.0, _LONGEST_ROUND_S),
        training,
        stop_after_round=options.rounds,
        enrolment_key=operator.public,
        schema=_SCHEMA,
    )
    asyncio.run(_serve(plan, operator, federator))


async def _serve(plan: FederationPlan, operator: SigningKey, federator: SigningKey) -> None:
    web = free_port()
    with tempfile.TemporaryDirectory() as folder, embedded_broker(websocket_port=web) as address:
        async with await Database.connect(f"sqlite:///{folder}/federation.sqlite") as database:
            await upgrade(database)
            service = FederatorService(plan, database, address, key=federator)
            enrolling = asyncio.create_task(_enrol(operator, federator.public, f"ws://{LOOPBACK}:{web}"))
            await service.run()
            enrolling.cancel()


async def _enrol(operator: SigningKey, federator_key: bytes, broker: str) -> None:
    """Answer each public key with credentials, and where the broker is. A known key gets the same ones again."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    serials: dict[bytes, int] = {}
    async for line in reader:
        key = public_key_from(line.decode().strip())
        serial = serials.setdefault(key, len(serials) + 1)
        name = f"visitor-{serial}"
        credentials = Credentials(
            role="device",
            federation=NAME,
            name=name,
            broker=BrokerAccess(broker_url=broker),
            signing_key=None,
            enrolment_key=key_to_text(operator.public),
            federator_key=key_to_text(federator_key),
            enrolment=base64.b64encode(issue_enrolment(operator, NAME, name, key, serial, time.time())).decode(),
        )
        print(json.dumps({"credentials": credentials.model_dump(), "broker": broker}), flush=True)


if __name__ == "__main__":
    main()
