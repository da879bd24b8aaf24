"""What an ingest worker measures."""

from foltr.core.measures import Measures, label
from foltr.core.protocol.receipts import ReceiptCode


class WorkerMeasures(Measures):
    """The measures of one ingest worker."""

    def __init__(self, federation: str) -> None:
        super().__init__(federation=federation)
        self.received = self.counter(
            "foltr_ingest_messages_received_total", "Updates that the broker gave to this worker."
        )
        self.updates = self.counter("foltr_ingest_updates_accepted_total", "Updates that it has stored.")
        self.refused = self.counter(
            "foltr_ingest_messages_refused_total",
            "Updates that it has refused, with a stored event, by its code; busy: there was no room for them.",
            label("code", ReceiptCode),
        )
        self.batch_took = self.histogram(
            "foltr_ingest_batch_duration_seconds", "How long a batch took from reading to the commit, with its retries."
        )
        self.broker_up = self.gauge("foltr_ingest_broker_connected", "Whether it is connected to the broker.")
        self.waiting = self.gauge("foltr_ingest_messages_waiting", "Updates that arrived and are not decided on.")
        self.wanted = self.gauge("foltr_ingest_wanted", "Whether workers may store updates, as it found last.")
