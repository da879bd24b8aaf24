"""What a helper of secure sums measures: what it was asked, what it opened and what it refused, without any client."""

from foltr.core.measures import Measures, label
from foltr.core.protocol.helper_messages import HelperRefusalCode, TicketFault
from foltr.core.protocol.receipts import ReceiptCode


class HelperMeasures(Measures):
    """The measures of one helper process."""

    def __init__(self, federation: str, helper: str) -> None:
        super().__init__(federation=federation, helper=helper)
        self.messages = self.counter(
            "foltr_helper_messages_received_total",
            "Messages that the broker delivered: requests of the federator, or what the operator announces.",
            label("kind", ("request", "announcement")),
        )
        self.dropped = self.counter(
            "foltr_helper_messages_dropped_total", "Messages dropped because the queue was full; requests are repeated."
        )
        self.ignored = self.counter(
            "foltr_helper_messages_ignored_total",
            "Messages that are malformed or not validly signed, by code.",
            label("code", ReceiptCode),
        )
        self.refused = self.counter(
            "foltr_helper_requests_refused_total",
            "Requests of the federator that were refused, by code.",
            label("code", HelperRefusalCode),
        )
        self.tickets_good = self.counter("foltr_helper_tickets_good_total", "Tickets that were checked and are valid.")
        self.tickets_refused = self.counter(
            "foltr_helper_tickets_refused_total", "Tickets that were excluded, by fault.", label("fault", TicketFault)
        )
        self.sums_opened = self.counter(
            "foltr_helper_sums_opened_total", "Sums of masks that were opened; each costs the privacy budget once."
        )
        self.keys_destroyed = self.counter(
            "foltr_helper_sealing_keys_destroyed_total", "Sealing keys of old policies that were destroyed."
        )
        self.answer_took = self.histogram(
            "foltr_helper_answer_duration_seconds",
            "How long the helper took for a message, until its answers were sent.",
        )
        self.broker_up = self.gauge("foltr_helper_broker_connected", "Whether it is connected to the broker.")
        self.waiting = self.gauge("foltr_helper_messages_waiting", "Messages in the queue.")
        self.working = self.gauge(
            "foltr_helper_work_age_seconds", "How long the present message has taken; 0 while the helper waits."
        )
