"""What each user may subscribe to: a few filters, each of bounded length, and nothing else.

Mosquitto grants every subscription, also beside an access list, and keeps each level of a filter in memory: so one
device, or whoever holds a one-time token, could take all of it. A device that joins a shared subscription would take
other devices' updates. A plugin of Mosquitto refuses what is not granted here (broker/foltr_subscriptions.c).
"""

from dataclasses import dataclass
from pathlib import Path

from foltr.broker.access import PLUGIN_NAME, helper_user
from foltr.core.operator.credentials import DESK_USER, FEDERATOR_USER, OPERATOR_USER, worker_user
from foltr.core.protocol.topics import TOKEN_USERS, ClientTopic, Topics, check_name

# What the plugin puts in the place of these is in its own file: the user's name, what follows the beginning that the
# rule names, a number from 0 to 999 (no model has more chunks), and the name of a group.
_USER, _NAME, _NUMBER, _GROUP = "%u", "%n", "%d", "%g"
_EVERYBODY = "*"


@dataclass(frozen=True)
class SubscriptionRule:
    """One filter that a user, or every user whose name begins so, may subscribe to."""

    user: str
    filter: str

    def __str__(self) -> str:
        return f"{self.user} {self.filter}"


def subscription_rules(federation: str) -> list[SubscriptionRule]:
    """Return what may be subscribed to in one federation. SettingsError if its name cannot be a level of a topic.

    Helpers and workers are known by how their names begin: those who are let in later need no other rules.
    """
    topics = Topics(check_name("federation", federation))
    clients = f"{topics.root}/clients"
    updates = topics.client("+", ClientTopic.UPDATES)
    filters = {
        # What the federator and the operator tell everybody, and the user's own inbox.
        _EVERYBODY: [
            *(topics.operator_key, topics.federator_key, topics.policy, topics.schema, topics.authorities),
            *(topics.anchor, topics.evaluation, topics.pace, topics.model, topics.round),
            *(topics.federator_status, topics.audit_head),
            *(topics.roster, topics.roster_chunks),
            *(topics.model_chunk(0)[:-1] + _NUMBER, topics.anchor_chunk(0)[:-1] + _NUMBER),
            *(topics.unlearning_round, f"{topics.root}/unlearning/+"),
            f"{clients}/{_USER}/{ClientTopic.INBOX}",
        ],
        f"{TOKEN_USERS}*": [f"{topics.root}/tokens/{_USER}/answer"],
        helper_user("*"): [topics.helper_requests(_NAME), topics.helper_commitment(_NAME), topics.kept_enrolments],
        # A plain one, too: by it is found out whether the broker shares out what comes to a group.
        worker_user("*"): [f"$share/{_GROUP}/{updates}", f"{clients}/{_GROUP}/{ClientTopic.UPDATES}"],
        DESK_USER: [topics.enrolment_requests, topics.desk_head],
        FEDERATOR_USER: [f"{topics.root}/#"],
        OPERATOR_USER: [f"{topics.root}/#", f"foltr/doctor/{OPERATOR_USER}", "$SYS/#"],
    }
    return [SubscriptionRule(user, each) for user, granted in filters.items() for each in granted]


def subscription_options(federation: str, folder: Path) -> list[str]:
    """Return the lines of mosquitto.conf by which subscriptions are judged."""
    rules = [f"plugin_opt_subscribe {rule}" for rule in subscription_rules(federation)]
    return [
        "# None by default: Mosquitto grants every subscription, and each takes memory, until one user has taken all.",
        "# With it a user may subscribe to the filters named below for its name, and to nothing else.",
        f"plugin {folder / PLUGIN_NAME}",
        f"# Each a user, or how users' names begin, and a filter. {_USER} is the name, {_NAME} what follows that",
        f"# beginning, {_NUMBER} a number from 0 to 999, {_GROUP} the name of a group. Read when the broker starts.",
        *rules,
    ]
