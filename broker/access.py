"""The broker lets each client do what it must: clients prove who they are, and read and write their topics.

The access list judges what is read and written; what may be subscribed to is in broker/subscriptions.py. A publish that
is not allowed is acknowledged all the same, in MQTT 3.1.1, and dropped.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from foltr.core.operator.credentials import DESK_USER, FEDERATOR_USER, OPERATOR_USER, worker_user
from foltr.core.protocol.topics import ClientTopic, Topics, check_name

ACL_NAME = "acl"
PASSWORDS_NAME = "passwords"
CA_NAME = "ca.crt"
REVOKED_NAME = "ca.crl"
SERVER_CERTIFICATE_NAME = "server.crt"
SERVER_KEY_NAME = "server.key"
PID_NAME = "mosquitto.pid"
PLUGIN_NAME = "foltr_subscriptions.so"

# What a device sends; its inbox is the one topic of its own that it reads.
DEVICE_WRITES = ("join", "leave", "status", "updates", "chunks", "forget", "unlearning")


@dataclass(frozen=True)
class Anonymous:
    """Everybody who reaches the listener is let in and may do anything."""


@dataclass(frozen=True)
class Passwords:
    """A user name and a password for every client.

    Attributes:
        folder: where Mosquitto finds the files of this module's names.
        tls: encrypt; without it the passwords cross the network readable.
    """

    folder: Path
    tls: bool = True


@dataclass(frozen=True)
class ClientCertificates:
    """TLS both ways: a client is whom its certificate names.

    Attributes:
        folder: where Mosquitto finds the files of this module's names.
    """

    folder: Path


Access = Anonymous | Passwords | ClientCertificates


def uses_tls(access: Access) -> bool:
    match access:
        case Anonymous():
            return False
        case Passwords(tls=tls):
            return tls
        case ClientCertificates():
            return True


def listener_options(access: Access) -> str:
    """The lines of mosquitto.conf that belong to the listener above them."""
    if isinstance(access, Anonymous):
        return ""
    lines = [
        "# Off by default: then any client could take the MQTT client id of another, which throws that one out and",
        "# takes over its session with the messages in it. So one user is one session: a second connection of the",
        "# same user ends the first.",
        "use_username_as_clientid true",
    ]
    if uses_tls(access):
        lines += [
            "",
            "# The authority whose client certificates count.",
            f"cafile {access.folder / CA_NAME}",
            "# What this broker shows to clients, issued by that authority.",
            f"certfile {access.folder / SERVER_CERTIFICATE_NAME}",
            "# Its key: readable for the user below only.",
            f"keyfile {access.folder / SERVER_KEY_NAME}",
            "# The least version. Older ones are broken.",
            "tls_version tlsv1.2",
        ]
    if isinstance(access, ClientCertificates):
        lines += [
            "",
            "# Off by default: whoever has no certificate of the authority does not get as far as MQTT.",
            "require_certificate true",
            "# Off by default. The name in the certificate is the user of the access list, whatever a client claims.",
            "use_identity_as_username true",
            "# None by default: a revoked device could connect until its certificate ends. Asked at each handshake,",
            "# read again on SIGHUP.",
            f"crlfile {access.folder / REVOKED_NAME}",
        ]
    return "\n".join(["", *lines, ""])


def authentication_options(access: Access, data_dir: Path) -> str:
    """The lines of mosquitto.conf, for the whole broker, that go with ``allow_anonymous false``."""
    if isinstance(access, Anonymous):
        return ""
    lines = []
    if isinstance(access, Passwords):
        lines += [
            "# Users and hashes of their passwords; read again on SIGHUP.",
            f"password_file {access.folder / PASSWORDS_NAME}",
            "",
        ]
    lines += [
        "# By default every user may read and write everything. Read again on SIGHUP.",
        f"acl_file {access.folder / ACL_NAME}",
        "",
        "# None by default. Tells `foltr device enrol` whom to send that SIGHUP.",
        f"pid_file {data_dir / PID_NAME}",
    ]
    return "\n".join(["", *lines, ""])


def helper_user(name: str) -> str:
    """Return what a helper is called at the broker: no device has a name that begins so."""
    return f"@helper.{name}"


def access_list(federation: str, helpers: Iterable[str] = (), workers: Iterable[str] = ()) -> str:
    """The text of the access list for one federation. SettingsError if a name cannot be a level of a topic.

    What is not granted is refused. %u is the name of the user who asks, and a pattern holds for every user: so
    none of them may match a topic that is another's, or that the federator or the operator speaks on.
    """
    topics = Topics(check_name("federation", federation))
    clients = f"{topics.root}/clients"
    own = "\n".join(f"pattern write {clients}/%u/{name}" for name in DEVICE_WRITES)
    from_clients = "\n".join(f"topic read {clients}/+/{name}" for name in DEVICE_WRITES)
    to_clear = "\n".join(f"topic write {clients}/+/{name}" for name in DEVICE_WRITES)
    of_helpers = "".join(_of_helper(topics, check_name("helper", name)) for name in sorted(helpers))
    of_workers = "".join(_of_worker(topics, check_name("worker", name)) for name in sorted(workers))
    return f"""\
# Access list of the federation {federation}, written by `foltr broker config`. What is not granted is refused.

# A device speaks on its own topics and on no other's: %u is the user who asks, and no name holds a / or a wildcard.
{own}
pattern read {clients}/%u/inbox

# Whoever has a one-time token is a user named after it, asks here to be enrolled, and hears the answer.
pattern write {topics.root}/tokens/%u/request
pattern read {topics.root}/tokens/%u/answer

# What the federator and the operator tell everybody. Mosquitto warns that these lines hold no %u; it has no other
# way to say "every user", because lines of `topic` above the first `user` are for clients without a name.
pattern read {topics.model}
pattern read {topics.model_chunks}
pattern read {topics.anchor}
pattern read {topics.anchor_chunks}
pattern read {topics.evaluation}
pattern read {topics.pace}
pattern read {topics.round}
pattern read {topics.roster}
pattern read {topics.roster_chunks}
pattern read {topics.federator_key}
pattern read {topics.federator_status}
pattern read {topics.audit_head}
pattern read {topics.policy}
pattern read {topics.schema}
pattern read {topics.authorities}
pattern read {topics.operator_key}
pattern read {topics.root}/unlearning/+

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
# A device's wish to be forgotten may be brought by whoever serves its participant: what counts is who has signed it.
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
# What it has committed itself to: it reads its own, to find out that its store is an old copy.
topic readwrite {topics.helper_commitment(name)}
"""


def _of_worker(topics: Topics, name: str) -> str:
    """The lines of an ingest worker, which shares what it reads with others of its group, and answers each update.

    What it writes among the updates is empty, to find out whether the broker shares them out; no device signs that.
    """
    return f"""
user {worker_user(name)}
topic readwrite {topics.client("+", ClientTopic.UPDATES)}
topic write {topics.client("+", ClientTopic.INBOX)}
"""
