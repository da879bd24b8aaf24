"""Messages that come at one moment, and what is decided on them in words that compare."""

from foltr.core.protocol.orders import OrderAnswer
from foltr.federator.engine import Backlog, Timed
from foltr.federator.engine import decide as decide_on
from foltr.federator.round import RoundPolicy

OPENED = 1_000.0
POLICY = RoundPolicy(min_clients=2, max_clients=5, min_time_s=10.0, max_time_s=60.0)


def decide(state, *readings, at=OPENED + 1, stored=None, orders=()):
    waiting = backlog(*readings, at=at, stored=stored).knowing(orders)
    decisions, rest = decide_on(state, waiting, at)
    assert rest.messages == []
    return decisions


def backlog(*readings, at=OPENED + 1, stored=None):
    return Backlog([Timed(reading, at) for reading in readings], stored or {})


def members(state, operator, *names):
    devices = [operator.enrol(name) for name in names]
    decide(state, *(device.joins() for device in devices))
    return devices


def told(decisions):
    receipts = [receipt for receipt in decisions.receipts if not isinstance(receipt, OrderAnswer)]
    return [(receipt.client_id, receipt.code.value) for receipt in receipts]


def answers(decisions):
    """What the operator is told: the number, what became of it, and why."""
    given = [receipt for receipt in decisions.receipts if isinstance(receipt, OrderAnswer)]
    return [(answer.number, str(answer.reply), answer.code and str(answer.code)) for answer in given]


def events(decisions):
    return [(event.kind, event.code and str(event.code), event.client_id) for event in decisions.events]


def end_round(state, version=1):
    """The round ends with a model, and the next one opens."""
    following, _ = state.next_round(version, OPENED + 20)
    state.round.stop_collecting()
    state.round.complete()
    state.advance_to(following, version)
