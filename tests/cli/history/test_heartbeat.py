"""Whom the broker is asked as, where nobody has said it."""

import asyncio

import pytest
from support.message_publisher import publish_once
from support.servers import free_port

from foltr.cli.history.heartbeat import receive_status
from foltr.cli.settings import Settings
from foltr.core.operator.credentials import BrokerAccess
from foltr.core.operator.folder import create_authority
from foltr.core.protocol.codec import encode
from foltr.core.protocol.heartbeat import FederatorStatus
from foltr.core.protocol.topics import Topics
from foltr.operations.situation import ReceivedStatus


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory's, where an operator's would be."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "foltr-operator"


def write_operator(folder, broker):
    access = BrokerAccess(broker_url=broker)
    with create_authority(folder, "mail", federator=access, operator=access):
        pass


async def test_the_operators_folder_in_the_working_directory_is_enough(folder, mqtt_broker):
    """Its broker is asked; for another federation nobody is."""
    settings = Settings()
    assert await receive_status(settings, "mail") is None
    write_operator(folder, mqtt_broker)
    assert await receive_status(settings, "mail") == ReceivedStatus()
    assert await receive_status(settings, "post") is None


async def test_a_file_that_nobody_named_is_no_error(folder):
    """What is wrong with it is said in place of what the broker knows; so it is where that is away."""
    nowhere = f"mqtt://127.0.0.1:{free_port()}"
    write_operator(folder, nowhere)
    assert nowhere in (await receive_status(Settings(), "mail")).unreachable
    (folder / "operator.json").write_text("{")
    assert "operator.json" in (await receive_status(Settings(), "mail")).unreachable


@pytest.mark.usefixtures("folder")
async def test_a_broker_that_nobody_named_counts_if_it_has_heard_the_federator(mqtt_broker):
    """Else it is another one's, and says nothing of this federation."""
    settings = Settings.model_construct(_fields_set=set(), broker_url=mqtt_broker, credentials=None)
    assert await receive_status(settings, "mail") is None
    beat = FederatorStatus(federation="mail", online=True, at=1000.0, interval_s=10.0, software_version="0.1")
    topic = Topics("mail").federator_status
    access = BrokerAccess(broker_url=mqtt_broker)
    await asyncio.to_thread(publish_once, access, "federator", topic, encode(beat, topic, 1), retain=True)
    assert (await receive_status(settings, "mail")).status == beat
    assert await receive_status(settings, "post") is None
