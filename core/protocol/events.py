"""Every kind of row in the table ``events``, and its meaning; `docs/errors.md` is made from it."""

from foltr.core.protocol.described_enum import DescribedEnum


class EventKind(DescribedEnum):
    """What happened, with a sentence for people. A test compares the kinds with what the code writes."""

    FEDERATOR_STARTED = (
        "federator_started",
        "A federator has claimed the federation; any other one stops at its next write.",
    )
    ROUND_RESUMED = "round_resumed", "The federator found an open round and continues it with the updates it had."
    CLIENT_JOINED = "client_joined", "A client joined, or is back after it was offline."
    CLIENT_ONLINE = "client_online", "A member that was offline is connected again."
    CLIENT_OFFLINE = "client_offline", "A member disconnected, or its connection was lost."
    CLIENT_LEFT = "client_left", "A member left; its contributions stay."
    CLIENT_REVOKED = (
        "client_revoked",
        "A roster voided a member's enrolment; its update in the open round is withdrawn.",
    )
    UPDATE_REJECTED = "update_rejected", "An update, or a part of one, was refused; `code` says why."
    MESSAGE_REFUSED = (
        "message_refused",
        ("A join, leave or status was refused; `code` says why, the detail says which."),
    )
    INTAKE_FULL = "intake_full", "Messages were dropped, because the queue was full or a client sent too many."
    ROSTER_ADOPTED = "roster_adopted", "A newer roster of the operator is in force."
    ROSTER_REFUSED = "roster_refused", "A roster was older than the one known, or not the operator's."
    POLICY_ADOPTED = "policy_adopted", "A newer policy of the operator is in force from the next round on."
    POLICY_REFUSED = (
        "policy_refused",
        (
            "A policy was not the operator's, was older than the known one, or does not fit the settings; `code` says "
            "which."
        ),
    )
    TICKET_REFUSED = (
        "ticket_refused",
        "A client was excluded from its round's sum; the detail says why. Its participation is spent.",
    )
    ROUND_ABANDONED = "round_abandoned", "A round ended without a model; the detail says why."
    MODEL_ROLLED_BACK = (
        "model_rolled_back",
        (
            "Most devices found the newest model worse than the anchor, so an older model is served again. The "
            "detail has the counts, and says what to look for."
        ),
    )
    ANCHOR_MOVED = (
        "anchor_moved",
        "Most devices found the newest model better than the anchor: it is the anchor from now on.",
    )
    DEFENCE_RAISED = (
        "defence_raised",
        (
            "The evidence against a client became strong: it is excluded from the mean from now on. Without a "
            "client: half of the clients look suspicious, and the fallback is used."
        ),
    )
    DEFENCE_LOWERED = (
        "defence_lowered",
        (
            "The evidence became weak: the client counts again. Without a client: the mean is used again, or the "
            "rule could not read its records and starts from scratch."
        ),
    )
    QUARANTINE_PROPOSED = (
        "quarantine_proposed",
        "A client was suspicious in many rounds; nothing is done to it unless you decide so.",
    )
    DEADLINE_SET = "deadline_set", "The operator changed the deadline of the open round."
    CLIENT_QUARANTINED = (
        "client_quarantined",
        "The operator excluded a client's updates; the one in the open round is withdrawn.",
    )
    QUARANTINE_LIFTED = "quarantine_lifted", "The operator let a client's updates count again."
    PROPOSAL_DISMISSED = (
        "proposal_dismissed",
        "The operator dismissed a proposed quarantine; the findings so far are closed.",
    )
    KEY_ROTATED = "key_rotated", "The operator replaced the federator's key: start the federator with the new one."
    ORDER_REFUSED = (
        "order_refused",
        (
            "An order was refused: it was not the operator's, differs from the one with its number, or names another "
            "round or an unknown client."
        ),
    )
    UNLEARNING_STARTED = (
        "unlearning_started",
        "An unlearning job began; the detail has its strategy and its number of steps.",
    )
    ERASURE_OVERDUE = (
        "erasure_overdue",
        "An erasure missed its deadline: a model that learned from the client may be in service.",
    )
    UNLEARNING_APPROVAL_REQUIRED = (
        "unlearning_approval_required",
        "A job would put the first model in service and waits for the operator's order; the detail says what is lost.",
    )
    RESET_ALLOWED = "reset_allowed", "The operator ordered that a job may put the first model in service."
    UNLEARNING_STEP_MISSED = (
        "unlearning_step_missed",
        "Nobody answered a step of a job before its deadline; it is asked again.",
    )
    UNLEARNING_PAUSED = (
        "unlearning_paused",
        "No device has answered for long; the job continues once a device is online or out of quarantine.",
    )
    AUDIT_LOG_DIFFERS = (
        "audit_log_differs",
        (
            "The log of erasures lacks an entry that was published, or has another one in its place: the database is "
            "an older copy, or the log was cut."
        ),
    )
    DATABASE_OLDER = (
        "database_older",
        "The broker has the announcement of a later round, `round`, than the database: it is an older copy.",
    )
    UPDATES_UNDELIVERED = (
        "updates_undelivered",
        "Messages to the ingest workers' group reached none of them: a stranger is in the group, or a worker hangs.",
    )
    UNLEARNING_DONE = "unlearning_done", "A model without the clients that were forgotten is in service."


# Findings of a rule; `foltr.core.aggregation` names them, and they are stored with their round.
FINDINGS = (EventKind.DEFENCE_RAISED, EventKind.DEFENCE_LOWERED, EventKind.QUARANTINE_PROPOSED)
# The effects of the operator's orders.
ORDERS = (
    EventKind.DEADLINE_SET,
    EventKind.RESET_ALLOWED,
    EventKind.CLIENT_REVOKED,
    EventKind.CLIENT_QUARANTINED,
    EventKind.QUARANTINE_LIFTED,
    EventKind.PROPOSAL_DISMISSED,
    EventKind.KEY_ROTATED,
)
