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
            "Messages from the broker: the federator's requests and the operator's announcements.",
            label("kind", ("request", "announcement")),
        )
        self.dropped = self.counter(
            "foltr_helper_messages_dropped_total", "Messages without room; requests are repeated."
        )
        self.ignored = self.counter(
            "foltr_helper_messages_ignored_total",
            "Malformed or wrongly signed messages, by code.",
            label("code", ReceiptCode),
        )
        self.refused = self.counter(
            "foltr_helper_requests_refused_total",
            "Refused requests, by code.",
            label("code", HelperRefusalCode),
        )
        self.tickets_good = self.counter("foltr_helper_tickets_good_total", "Good tickets.")
        self.tickets_refused = self.counter(
            "foltr_helper_tickets_refused_total", "Refused tickets, by fault.", label("fault", TicketFault)
        )
        self.sums_opened = self.counter(
            "foltr_helper_sums_opened_total", "Opened sums of masks; each costs the privacy budget once."
        )
        self.keys_destroyed = self.counter(
            "foltr_helper_sealing_keys_destroyed_total", "Destroyed sealing keys of old policies."
        )
        self.answer_took = self.histogram("foltr_helper_answer_duration_seconds", "Time from a message to its answers.")
        self.broker_up = self.gauge("foltr_helper_broker_connected", "Whether it is connected to the broker.")
        self.waiting = self.gauge("foltr_helper_messages_waiting", "Messages that wait.")
        self.working = self.gauge("foltr_helper_work_age_seconds", "Time spent on the current work; 0 while it waits.")
