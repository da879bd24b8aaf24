"""The measures of a federator. `foltr.federator.transaction_metrics` counts stored data; the rest is read if asked."""

from foltr.core.measures import MINUTES, Measures, label
from foltr.core.protocol.events import EventKind
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.states import OPEN_ROUND, AbandonReason, RoundState
from foltr.core.protocol.topics import ClientTopic, Topics

TRANSACTIONS = ("commit_batch", "complete_round", "abandon_round", "erase_client", "commit_step", "complete_job")
"""Measured one by one; all others share one sum."""
_OPERATOR, _HELPER = "operator", "helper"


class FederatorMeasures(Measures):
    """The measures of one federator process."""

    def __init__(self, federation: str) -> None:
        super().__init__(federation=federation)
        self._topics = Topics(federation)
        kinds = label("kind", [*(kind for kind in ClientTopic if kind is not ClientTopic.INBOX), _OPERATOR, _HELPER])
        self.messages = self.counter(
            "foltr_federator_messages_received_total", "Messages that the broker delivered, by topic.", kinds
        )
        self.refused = self.counter(
            "foltr_federator_messages_refused_total",
            "Refused messages, by code; busy: no room.",
            label("code", ReceiptCode),
        )
        self.updates = self.counter(
            "foltr_federator_updates_accepted_total", "Stored updates; a client may withdraw one later."
        )
        self.events = self.counter("foltr_federator_events_total", "Stored events, by kind.", label("kind", EventKind))
        self.rounds = self.counter(
            "foltr_federator_rounds_total",
            "Ended rounds.",
            label("state", (RoundState.COMPLETED, RoundState.ABANDONED)),
        )
        self.abandoned = self.counter(
            "foltr_federator_rounds_abandoned_total",
            "Rounds without a model, by reason.",
            label("reason", AbandonReason),
        )
        self.erasures = self.counter("foltr_federator_erasures_total", "Clients whose data was erased.")
        self.round_took = self.histogram(
            "foltr_federator_round_duration_seconds",
            "From the opening of a completed round to its model.",
            None,
            MINUTES,
        )
        self.closing_took = self.histogram(
            "foltr_federator_round_closing_duration_seconds",
            "From a completed round's last update to its stored model, with the helpers' work.",
        )
        self.transaction_took = self.histogram(
            "foltr_federator_transaction_duration_seconds",
            "Time of a database transaction, each try for itself.",
            label("transaction", (*TRANSACTIONS, "other")),
        )
        self.transactions_failed = self.counter("foltr_federator_transactions_failed_total", "Failed transactions.")
        self.leads = self.gauge("foltr_federator_leads", "1 while this process leads, 0 while it stands by or starts.")
        self.broker_up = self.gauge(
            "foltr_federator_broker_connected", "Whether it is connected; absent while it stands by."
        )
        self.turning = self.gauge(
            "foltr_federator_turn_age_seconds", "Time spent on its current work; 0 while it waits."
        )
        self.waiting = self.gauge("foltr_federator_messages_waiting", "Messages not yet decided on.")
        self.swallowed = self.gauge(
            "foltr_federator_updates_undelivered_ratio",
            "Share of a leader's test messages that no ingest worker answered; absent without workers.",
        )
        self.clients = self.gauge(
            "foltr_federator_clients",
            "Clients; those online or in quarantine are members, too.",
            label("standing", ("member", "online", "quarantined")),
        )
        self.round_number = self.gauge("foltr_federator_round_number", "The open round.")
        self.round_state = self.gauge(
            "foltr_federator_round_state", "1 for the open round's state.", label("state", OPEN_ROUND)
        )
        self.round_opened = self.gauge("foltr_federator_round_opened_timestamp_seconds", "When the open round opened.")
        self.round_updates = self.gauge("foltr_federator_round_updates", "Updates of the open round.")
        self.round_quorum = self.gauge("foltr_federator_round_quorum", "Updates that the open round needs.")
        self.round_overdue = self.gauge(
            "foltr_federator_round_overdue_seconds", "Time since the open round should have ended."
        )
        self.model_version = self.gauge("foltr_federator_model_version", "The newest model.")
        self.reward = self.gauge(
            "foltr_federator_round_reward",
            "Mean reciprocal rank of the first click, in the newest evaluated round that this process alone collected.",
            label("order", ("shown", "base")),
        )

    def note_message(self, topic: str) -> None:
        """Count a message, by its topic without the client's name."""
        if self._topics.is_helpers(topic):
            kind = _HELPER
        elif self._topics.is_operators(topic):
            kind = _OPERATOR
        else:
            kind = str((self._topics.parse(topic) or ("", None))[1])
        self.messages.add(of=kind)


class WorkerMeasures(Measures):
    """The measures of one ingest worker."""

    def __init__(self, federation: str) -> None:
        super().__init__(federation=federation)
        self.received = self.counter("foltr_ingest_messages_received_total", "Updates from the broker.")
        self.updates = self.counter("foltr_ingest_updates_accepted_total", "Stored updates.")
        self.refused = self.counter(
            "foltr_ingest_messages_refused_total",
            "Refused updates, by code; busy: no room.",
            label("code", ReceiptCode),
        )
        self.batch_took = self.histogram(
            "foltr_ingest_batch_duration_seconds", "Time of a batch from reading to commit, with retries."
        )
        self.broker_up = self.gauge("foltr_ingest_broker_connected", "Whether it is connected to the broker.")
        self.waiting = self.gauge("foltr_ingest_messages_waiting", "Updates not yet decided on.")
        self.wanted = self.gauge("foltr_ingest_allowed", "Whether workers may store updates.")
