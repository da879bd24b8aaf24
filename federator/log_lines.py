"""The log lines about what a federator has stored. The default level names no client; `debug` does.

Logs outlive a forgotten client, and erasure does not search them. The database has the names while the clients exist:
`foltr device list`, and the table of events.
"""

from collections import Counter
from collections.abc import Iterable

import structlog

from foltr.core.protocol.events import ORDERS, EventKind
from foltr.storage.records import NewEvent, NewModel

log = structlog.get_logger(__name__)

# There may be thousands of these at once, so one line has their number.
_MEMBERSHIP = (EventKind.CLIENT_JOINED, EventKind.CLIENT_LEFT, EventKind.CLIENT_REVOKED)
_CONNECTION = (EventKind.CLIENT_ONLINE, EventKind.CLIENT_OFFLINE)


def log_batch(events: Iterable[NewEvent]) -> None:
    """Log the numbers of those who joined, left or were revoked, and the outcome of the operator's orders."""
    n_clients: Counter[str] = Counter()
    for event in events:
        if event.kind == EventKind.ORDER_REFUSED:
            log.warning(event.kind, code=str(event.code), detail=event.detail, n=event.n)
        elif event.kind in _MEMBERSHIP:
            n_clients[event.kind] += 1
        elif event.kind in ORDERS:
            log.info(event.kind, round=event.round, detail=event.detail)
        if event.client_id is not None and event.kind in (*_MEMBERSHIP, *_CONNECTION, *ORDERS):
            log.debug(event.kind, client_id=event.client_id)
    for kind, n in n_clients.items():
        log.info(kind, n_clients=n)


def log_findings(number: int, model: NewModel) -> None:
    """Log what an operator should see of a round's aggregation; all of it is stored."""
    aggregation = model.aggregation
    if aggregation is not None and aggregation.fallback_reason is not None:
        log.warning("fallback_used", round=number, rule=aggregation.rule, cause=aggregation.fallback_reason)
    for event in model.events:
        say = log.info if event.kind == EventKind.ANCHOR_MOVED else log.warning
        hint = {} if event.client_id is None else {"hint": f"which client: foltr rounds show {number}"}
        say(event.kind, round=number, detail=event.detail, **hint)
        if event.client_id is not None:
            log.debug(event.kind, client_id=event.client_id)
