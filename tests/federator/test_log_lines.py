"""What a federator's log says of who comes and goes, and of orders: how many, and at its default level not who."""

import pytest
import structlog
from support.federator_without_network import TOPICS

from foltr.broker.link import InboundMessage
from foltr.core.protocol.membership import Leave
from foltr.core.protocol.topics import ClientTopic
from foltr.federator.log_lines import log_findings
from foltr.federator.round import RoundPolicy
from foltr.storage.queries import list_events
from foltr.storage.records import NewEvent, NewModel

NAMES = ("anna", "bert", "carl")


@pytest.fixture
def lines():
    with structlog.testing.capture_logs() as captured:
        yield captured


def of_default_level(lines):
    return [line for line in lines if line["log_level"] != "debug"]


async def test_who_joins_leaves_or_is_revoked_is_a_line_and_an_event(serve, operator, lines):
    """Of those of one batch one line says how many; the events say who, as long as the client is known."""
    served = await serve(RoundPolicy(), enrolment_key=operator.key.public)
    devices = [operator.enrol(name) for name in NAMES]
    await served.join(devices)
    served.receive(devices[0], ClientTopic.LEAVE, Leave(federation="mail", client_id="anna"))
    roster = operator.roster(1, bert=99, carl=99)
    served.actor.receive(InboundMessage(TOPICS.roster, roster, retained=True))
    await served.turn()
    shown = of_default_level(lines)
    counts = {line["event"]: line["n_clients"] for line in shown if "n_clients" in line}
    assert counts == {"client_joined": 3, "client_left": 1, "client_revoked": 2}
    assert not any(name in str(shown) for name in NAMES)
    named = {(line["event"], line["client_id"]) for line in lines if "client_id" in line}
    assert {("client_left", "anna"), ("client_revoked", "bert"), ("client_revoked", "carl")} < named
    events = {(event.kind, event.client_id) for event in await list_events(served.db, "mail")}
    assert {("client_joined", "carl"), ("client_left", "anna"), ("client_revoked", "bert")} < events


def test_a_finding_says_where_to_read_whom_it_is_about(lines):
    """Not by itself."""
    raised = NewEvent(None, "defence_raised", "its evidence is strong", client_id="anna", round=7)
    log_findings(7, NewModel(8, b"", events=[raised]))
    (line,) = of_default_level(lines)
    assert (line["log_level"], line["hint"]) == ("warning", "which client: foltr rounds show 7")
    assert "anna" not in str(line)
