"""The log lines of what a federator has stored. No line of the default level names a client: `debug` does.

Logs outlive a client that is forgotten, and nobody looks for names in them. Who it was is in the database as long as
the client is: `foltr device list`, and the table of events.
"""

from collections import Counter
from collections.abc import Iterable

import structlog

from foltr.core.protocol.events import ORDERS, EventKind
from foltr.storage.records import NewEvent, NewModel

log = structlog.get_logger(__name__)

# Of these there may be thousands at once, so that one line says how many.
_MEMBERSHIP = (EventKind.CLIENT_JOINED, EventKind.CLIENT_LEFT, EventKind.CLIENT_REVOKED)
_CONNECTION = (EventKind.CLIENT_ONLINE, EventKind.CLIENT_OFFLINE)


def log_batch(events: Iterable[NewEvent]) -> None:
    """Log who joined, left or was revoked, by number, and what became of the operator's orders."""
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
    """Log what an operator should see of how a round was aggregated; all of it is stored."""
    aggregation = model.aggregation
    if aggregation is not None and aggregation.fallback_reason is not None:
        log.warning("fallback_used", round=number, rule=aggregation.rule, cause=aggregation.fallback_reason)
    for event in model.events:
        say = log.info if event.kind == EventKind.ANCHOR_MOVED else log.warning
        hint = {} if event.client_id is None else {"hint": f"which client: foltr rounds show {number}"}
        say(event.kind, round=number, detail=event.detail, **hint)
        if event.client_id is not None:
            log.debug(event.kind, client_id=event.client_id)
