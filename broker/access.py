"""What each user of the broker may read, write and subscribe to: its own topics, and announcements to everybody.

Mosquitto checks reading and writing against an access list. In MQTT 3.1.1 it acknowledges a publish that is not
allowed, and drops it. It grants every subscription, and keeps each level of a filter in memory, so one device, or the
holder of a one-time token, could use up all of it. A device that joins a shared subscription would take other devices'
updates. A plugin of Mosquitto (broker/foltr_subscriptions.c) refuses subscriptions that are not granted here.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from foltr.core.operator.credentials import DESK_USER, FEDERATOR_USER, OPERATOR_USER, worker_user
from foltr.core.protocol.topics import TOKEN_USERS, ClientTopic, Topics, check_name

# What a device sends; the inbox is the only one of its topics that it reads.
DEVICE_WRITES = tuple(topic for topic in ClientTopic if topic is not ClientTopic.INBOX)
# The plugin's own file says what it puts in place of these: the user's name, what follows the prefix that the rule
# names, a number from 0 to 999 (no model has more chunks), and the name of a group.
USER, NAME, NUMBER, GROUP = "%u", "%n", "%d", "%g"
_EVERYBODY = "*"


def helper_user(name: str) -> str:
    """Return a helper's user name at the broker; no device's name begins like it."""
    return f"@helper.{name}"


def access_list(federation: str, helpers: Iterable[str] = (), workers: Iterable[str] = ()) -> str:
    """The text of the access list for one federation. SettingsError if a name cannot be a level of a topic.

    Anything not granted is refused. %u is the name of the asking user, and a pattern holds for every user. So no
    pattern may match another user's topic, or one that the federator or the operator writes to.
    """
    topics = Topics(check_name("federation", federation))
    clients = f"{topics.root}/clients"
    own = "\n".join(f"pattern write {clients}/%u/{name}" for name in DEVICE_WRITES)
    to_all = "\n".join(f"pattern read {each.replace(NUMBER, '+')}" for each in _broadcast_topics(topics))
    from_clients = "\n".join(f"topic read {clients}/+/{name}" for name in DEVICE_WRITES)
    to_clear = "\n".join(f"topic write {clients}/+/{name}" for name in DEVICE_WRITES)
    of_helpers = "".join(_of_helper(topics, check_name("helper", name)) for name in sorted(helpers))
    of_workers = "".join(_of_worker(topics, check_name("worker", name)) for name in sorted(workers))
    return f"""\
# Access list of the federation {federation}, written by `foltr broker config`. Everything else is refused.

# A device speaks on its own topics and on no other's: %u is the user who asks, and no name holds a / or a wildcard.
{own}
pattern read {clients}/%u/inbox

# A device with a one-time token is a user named after it. It asks here to be enrolled, and reads the answer.
pattern write {topics.root}/tokens/%u/request
pattern read {topics.root}/tokens/%u/answer

# Messages of the federator and the operator to everybody. Mosquitto warns that these lines hold no %u; it has no other
# way to say "every user", because lines of `topic` above the first `user` are for clients without a name.
{to_all}

user {FEDERATOR_USER}
{from_clients}
# To clear what is retained there: an erased client's last status and request, and what no client may retain. Nobody
# but the services hears it there, and no device signs what the federator writes.
{to_clear}
topic write {clients}/+/inbox
topic write {topics.model}
topic write {topics.model_chunks}
topic write {topics.anchor}
topic write {topics.anchor_chunks}
topic write {topics.evaluation}
topic write {topics.pace}
topic write {topics.round}
topic write {topics.federator_status}
topic write {topics.audit_head}
topic write {topics.root}/unlearning/+
topic write {topics.operator_answers}
topic read {topics.roster}
topic read {topics.roster_chunks}
topic read {topics.policy}
topic read {topics.operator}
topic write {topics.helper_requests("+")}
topic read {topics.helper_answers("+")}
topic read {topics.helper_status("+")}
{of_helpers}{of_workers}
user {DESK_USER}
topic read {topics.enrolment_requests}
topic write {topics.root}/tokens/+/answer
topic readwrite {topics.desk_head}

user {OPERATOR_USER}
topic read {topics.root}/#
topic write {topics.roster}
topic write {topics.roster_chunks}
topic write {topics.federator_key}
topic write {topics.policy}
topic write {topics.schema}
topic write {topics.authorities}
topic write {topics.operator_key}
topic write {topics.kept_enrolments}
topic write {topics.operator}
# The operator may publish a device's request to be forgotten: its signature counts.
topic write {topics.client("+", ClientTopic.FORGET)}
# Where `foltr doctor` sends itself a message. One topic, and only the operator's: the broker keeps a retained message
# for each, and queues what a user sends to itself and does not take, so that a device could fill its memory.
topic readwrite foltr/doctor/{OPERATOR_USER}
# Counters of the broker, e.g. of dropped messages; they also tell who is connected.
topic read $SYS/#
"""


def _of_helper(topics: Topics, name: str) -> str:
    return f"""
user {helper_user(name)}
topic read {topics.helper_requests(name)}
topic read {topics.kept_enrolments}
topic write {topics.helper_answers(name)}
topic write {topics.helper_status(name)}
# What it has committed itself to: it reads its own, to find out that its store is an old copy.
topic readwrite {topics.helper_commitment(name)}
"""


def _of_worker(topics: Topics, name: str) -> str:
    """The lines of an ingest worker, which shares the updates with its group, and answers each.

    It writes only empty messages among the updates, to test whether the broker shares them out; no device signs those.
    """
    return f"""
user {worker_user(name)}
topic readwrite {topics.client("+", ClientTopic.UPDATES)}
topic write {topics.client("+", ClientTopic.INBOX)}
"""


@dataclass(frozen=True)
class SubscriptionRule:
    """One filter that a user, or every user with this name prefix, may subscribe to."""

    user: str
    filter: str

    def __str__(self) -> str:
        return f"{self.user} {self.filter}"


def subscription_rules(federation: str) -> list[SubscriptionRule]:
    """Return the allowed subscriptions of one federation. SettingsError if its name cannot be a level of a topic.

    Helpers and workers are known by their name prefixes, so a helper or worker let in later needs no new rule.
    """
    topics = Topics(check_name("federation", federation))
    clients = f"{topics.root}/clients"
    updates = topics.client("+", ClientTopic.UPDATES)
    filters = {
        _EVERYBODY: [*_broadcast_topics(topics), topics.unlearning_round, f"{clients}/{USER}/{ClientTopic.INBOX}"],
        f"{TOKEN_USERS}*": [f"{topics.root}/tokens/{USER}/answer"],
        helper_user("*"): [topics.helper_requests(NAME), topics.helper_commitment(NAME), topics.kept_enrolments],
        # Also without sharing: the test whether the broker shares a group's messages out needs it.
        worker_user("*"): [f"$share/{GROUP}/{updates}", f"{clients}/{GROUP}/{ClientTopic.UPDATES}"],
        DESK_USER: [topics.enrolment_requests, topics.desk_head],
        FEDERATOR_USER: [f"{topics.root}/#"],
        OPERATOR_USER: [f"{topics.root}/#", f"foltr/doctor/{OPERATOR_USER}", "$SYS/#"],
    }
    return [SubscriptionRule(user, each) for user, granted in filters.items() for each in granted]


def _broadcast_topics(topics: Topics) -> list[str]:
    """Return the topics on which the federator and the operator address everybody, as filters for the plugin."""
    return [
        *(topics.operator_key, topics.federator_key, topics.policy, topics.schema, topics.authorities),
        *(topics.anchor, topics.evaluation, topics.pace, topics.model, topics.round),
        *(topics.federator_status, topics.audit_head, topics.roster, topics.roster_chunks),
        *(topics.model_chunks[:-1] + NUMBER, topics.anchor_chunks[:-1] + NUMBER),
        f"{topics.root}/unlearning/+",
    ]
