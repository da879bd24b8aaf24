"""docs/sizing.md: its command steers a pace."""

import asyncio

from cli.commands import foltr, start, stop
from cli.operator.test_enrol import heard
from cli.snippets import blocks, with_variables
from support.databases import migrated_sqlite

from foltr.core.protocol.codec import decode
from foltr.core.protocol.paces import Pace
from foltr.core.protocol.topics import Topics
from foltr.operations.operator_access import access_to


def test_the_command_of_the_page_tells_a_pace(mosquitto_server, tmp_path):
    """A federation in which nobody was yet begins with the shortest period."""
    database = migrated_sqlite(tmp_path / "foltr.sqlite")
    foltr("device", "enrol", "device-1", cwd=tmp_path, code=0)
    (line,) = "".join(blocks("docs/sizing.md", "sh")).splitlines()
    words, variables = with_variables(line)
    access = {"FOLTR_BROKER_URL": mosquitto_server.url, "FOLTR_DB_URL": database}
    federator = start(*words[1:], cwd=tmp_path, **variables, **access)
    try:
        message = asyncio.run(heard(access_to(mosquitto_server.url), [Topics("default").pace]))
    finally:
        code, said = stop(federator)
    assert code == 0, said
    assert decode(message.payload, Pace).period_s == 60.0
