"""docs/sizing.md: its command steers a pace, and settings that contradict it are refused with the reason."""

import asyncio

from cli.commands import foltr, start, stop
from cli.snippets import blocks, with_variables
from support.databases import migrated_sqlite

from foltr.broker.address import BrokerAddress
from foltr.broker.link import MqttLink
from foltr.core.protocol.codec import decode
from foltr.core.protocol.paces import Pace
from foltr.core.protocol.topics import Topics


async def _retained(broker: str, topic: str) -> bytes:
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    link = MqttLink(
        BrokerAddress.parse(broker),
        client_id="listener",
        subscriptions=[topic],
        on_message=lambda message: heard.put_nowait(message.payload),
        persistent=False,
    )
    async with link:
        return await heard.get()


def test_the_command_of_the_page_tells_a_pace(mosquitto_server, tmp_path):
    """A federation in which nobody was yet begins with the shortest period."""
    database = migrated_sqlite(tmp_path / "foltr.sqlite")
    foltr("device", "enrol", "device-1", cwd=tmp_path, code=0)
    (line,) = "".join(blocks("docs/sizing.md", "sh")).splitlines()
    words, variables = with_variables(line)
    access = {"FOLTR_BROKER_URL": mosquitto_server.url, "FOLTR_DB_URL": database}
    federator = start(*words[1:], cwd=tmp_path, **variables, **access)
    try:
        payload = asyncio.run(_retained(mosquitto_server.url, Topics("default").pace))
    finally:
        code, said = stop(federator)
    assert code == 0, said
    assert decode(payload, Pace).period_s == 60.0


def test_what_does_not_go_with_a_target_is_refused(tmp_path):
    """Before anything is connected to, with the settings named."""
    for options, variables, said in (
        (["--max-clients", "9"], {}, "leave max_clients out"),
        (["--min-clients", "9"], {}, "updates_per_round: 5 is below min_clients (9)"),
        ([], {"FOLTR_OVER_SELECTION": "0.3"}, "over_selection: it chooses among connected devices"),
        ([], {"FOLTR_SHORTEST_PERIOD_S": "100", "FOLTR_LONGEST_PERIOD_S": "10"}, "is below shortest_period_s"),
    ):
        variables = {"FOLTR_UPDATES_PER_ROUND": "5", **variables}
        done = foltr("federator", "run", "--allow-unsigned", *options, cwd=tmp_path, **variables, code=2)
        assert said in done.stderr.replace("\n", " "), options
