"""The list of rights as it is written, for any federation and helpers."""

import pytest

from foltr.broker.access import access_list
from foltr.core.errors import SettingsError
from foltr.core.protocol.topics import ClientTopic


def test_the_list_names_every_topic_of_a_client():
    """A topic that is added to the protocol and forgotten here would be refused without a word."""
    topics = set(ClientTopic) - {ClientTopic.INBOX}
    assert {f"pattern write foltr/v1/fed/clients/%u/{topic}" for topic in topics} <= set(
        access_list("fed").splitlines()
    )


def test_no_pattern_reaches_another_users_topics():
    """A pattern holds for every user: it grants writing below the user's own name only."""
    patterns = [line.split()[1:] for line in access_list("fed").splitlines() if line.startswith("pattern")]
    assert all("%u" in topic.split("/") for access, topic in patterns if access != "read")
    assert all("+" not in topic.partition("%u")[0] for access, topic in patterns if "clients" in topic)


def test_a_name_that_would_change_the_list_is_refused():
    """It comes from a command line and ends in a file of rights. Helpers are listed in one order."""
    for federation in ("", "a/b", "a+", "#", "a\nuser x", "a b"):
        with pytest.raises(SettingsError, match="federation"):
            access_list(federation)
    with pytest.raises(SettingsError, match="helper"):
        access_list("fed", ["a\nuser x"])
    assert access_list("fed", ["south", "north"]) == access_list("fed", ["north", "south"])
