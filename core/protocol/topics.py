"""The topics of a federation, under ``foltr/v1/{federation}/``; spelled here and nowhere else."""

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache

from foltr.core.errors import SettingsError
from foltr.core.protocol.fields import NAME_PATTERN, TOKEN_PATTERN

_NAME = re.compile(NAME_PATTERN)
_TOKEN = re.compile(TOKEN_PATTERN)
TOKEN_USERS = "@token."  # noqa: S105 (how names begin)


class ClientTopic(StrEnum):
    """The topics that a client writes; only it may read the inbox."""

    JOIN = "join"
    LEAVE = "leave"
    STATUS = "status"
    UPDATES = "updates"
    CHUNKS = "chunks"
    FORGET = "forget"
    UNLEARNING = "unlearning"
    INBOX = "inbox"

    @property
    def is_retained(self) -> bool:
        """Whether the broker retains the client's last message on it."""
        return self in (ClientTopic.STATUS, ClientTopic.FORGET)


_CLIENT_TOPICS = {str(topic): topic for topic in ClientTopic}
_LONGEST_CLIENTS = 64 + len("/") + max(map(len, _CLIENT_TOPICS))
_LONGEST_PROBERS = len("@ingest.") + _LONGEST_CLIENTS


def check_name(key: str, value: str) -> str:
    """Return ``value`` if it can be one level of a topic; SettingsError naming ``key`` otherwise."""
    if not _NAME.fullmatch(value):
        raise SettingsError(
            f"{key}: {value!r} is not a name: use 1 to 64 letters, digits, '.', '_' or '-', "
            "starting with a letter or digit"
        )
    return value


def token_user(token: str) -> str:
    """Return the user name of a one-time token's holder at the broker; no device's name begins like it."""
    return f"{TOKEN_USERS}{token}"


def _topic(place: str) -> "cached_property[str]":
    return cached_property(lambda topics: f"{topics.root}/{place}")


@dataclass(frozen=True)
class Topics:
    """The topics of one federation."""

    federation: str

    @cached_property
    def root(self) -> str:
        return f"foltr/v1/{self.federation}"

    model = _topic("model")
    round = _topic("round")
    roster = _topic("roster")
    roster_chunks = _topic("roster/chunks/+")
    """The filter of all chunks of a roster."""
    federator_key = _topic("federator-key")
    """The newest key of the federator, once the operator has given it another one."""
    federator_status = _topic("federator-status")
    """Whether the federator is online."""
    audit_head = _topic("audit-head")
    """The newest entry of the log of erasures."""
    operator_key = _topic("operator-key")
    """The newest enrolment key, once it has a successor."""
    kept_enrolments = _topic("kept-enrolments")
    """The enrolments of former enrolment keys that still count."""
    authorities = _topic("authorities")
    """The certificate authorities that vouch for the broker."""
    policy = _topic("policy")
    """The operator's policy of a federation with secure sums."""
    schema = _topic("schema")
    """The operator's newest feature schema."""
    operator = _topic("operator")
    operator_answers = _topic("operator/answers")
    unlearning_round = _topic("unlearning/round")
    """The present step of the newest unlearning job."""
    model_chunks = _topic("model/chunks/+")
    """The filter of all chunks of a model."""
    anchor = _topic("anchor")
    """The older model that devices compare the newest one with."""
    anchor_chunks = _topic("anchor/chunks/+")
    """The filter of all chunks of an anchor."""
    evaluation = _topic("evaluation")
    """Whether devices should report the ranker's quality by their users' clicks."""
    pace = _topic("pace")
    """How often devices visit, unless they should stay connected."""
    enrolment_requests = _topic("tokens/+/request")
    """The filter of all these requests."""
    desk_head = _topic("tokens/head")
    """The operator's desk's own record of how far enrolment has come."""
    _clients = _topic("clients/")
    _helpers = _topic("helpers/")
    _roster_chunks = _topic("roster/chunks/")

    def roster_chunk(self, index: int) -> str:
        return f"{self.root}/roster/chunks/{index}"

    def helper_requests(self, helper: str) -> str:
        """Return the topic of requests to a helper; with ``+``, the filter of all requests."""
        return f"{self.root}/helpers/{helper}/requests"

    def helper_answers(self, helper: str) -> str:
        """Return the topic of a helper's answers; with ``+``, the filter of all answers."""
        return f"{self.root}/helpers/{helper}/answers"

    def helper_commitment(self, helper: str) -> str:
        """Return the topic on which a helper retains its newest commitment: a restored store lacks it."""
        return f"{self.root}/helpers/{helper}/commitment"

    def helper_status(self, helper: str) -> str:
        """Return the topic on which a helper retains whether it is online; with ``+``, the filter of all statuses."""
        return f"{self.root}/helpers/{helper}/status"

    def is_helper_status(self, topic: str) -> bool:
        """Whether a helper says on this topic whether it is online."""
        return topic.startswith(self._helpers) and topic.endswith("/status")

    def is_helpers(self, topic: str) -> bool:
        """Whether a helper answers on this topic."""
        return topic.startswith(self._helpers) and topic.endswith("/answers")

    def is_operators(self, topic: str) -> bool:
        """Whether the operator addresses the federator on this topic."""
        return topic.startswith(self._roster_chunks) or topic in (self.operator, self.roster, self.policy)

    def unlearning_job(self, number: int) -> str:
        """Return the topic of a job's progress."""
        return f"{self.root}/unlearning/{number}"

    def model_chunk(self, index: int) -> str:
        return f"{self.root}/model/chunks/{index}"

    def anchor_chunk(self, index: int) -> str:
        return f"{self.root}/anchor/chunks/{index}"

    def is_anchors(self, topic: str) -> bool:
        """Whether this is the topic of the anchor, or of a chunk of it."""
        return topic == self.anchor or topic.startswith(f"{self.anchor}/chunks/")

    def enrolment_request(self, token: str) -> str:
        """Return the topic on which a one-time token's holder asks to be enrolled."""
        return f"{self.root}/tokens/{token_user(token)}/request"

    def token_of(self, topic: str) -> str | None:
        """Return the token that a topic of a request is for; None for other topics."""
        token = topic.removeprefix(f"{self.root}/tokens/{TOKEN_USERS}").removesuffix("/request")
        return token if _TOKEN.fullmatch(token) and topic == self.enrolment_request(token) else None

    def enrolment_answer(self, token: str) -> str:
        """Return the topic of the answer to that request."""
        return f"{self.root}/tokens/{token_user(token)}/answer"

    def enrolment(self, client_id: str) -> str:
        """Not a topic: it takes a topic's place in the operator's signature of an enrolment."""
        return f"{self.root}/enrolment/{client_id}"

    def ticket(self, client_id: str) -> str:
        """Not a topic: it takes a topic's place in a device's signature of a ticket."""
        return f"{self.root}/tickets/{client_id}"

    def client(self, client_id: str, topic: ClientTopic) -> str:
        # A member of an enumeration is slow to format, but quick to add.
        return f"{self._clients}{client_id}/" + topic

    def from_all_clients(self) -> tuple[str, ...]:
        """The filters a federator subscribes to."""
        return tuple(self.client("+", topic) for topic in ClientTopic if topic is not ClientTopic.INBOX)

    def probe(self, prober: str) -> str:
        """Return the topic to which a prober of the workers' group writes, like that of a device's updates.

        Args:
            prober: begins with ``@``, which no device's name does.
        """
        return self.client(prober, ClientTopic.UPDATES)

    def probe_answer(self, prober: str) -> str:
        """Return the topic on which a worker returns a probe."""
        return self.client(prober, ClientTopic.INBOX)

    def prober_of(self, topic: str) -> str | None:
        """Return the prober of the workers' group with this topic; None for a client's topic."""
        if not topic.startswith(f"{self._clients}@") or len(topic) > len(self._clients) + _LONGEST_PROBERS:
            return None
        name = topic.removeprefix(self._clients).removesuffix(f"/{ClientTopic.UPDATES}")
        return name if "/" not in name and topic == self.probe(name) else None

    @property
    def statuses(self) -> str:
        """The filter of all devices' statuses."""
        return self.client("+", ClientTopic.STATUS)

    def is_status(self, topic: str) -> bool:
        """Whether this is the topic of a client's status."""
        return topic.endswith(f"/{ClientTopic.STATUS}") and topic.startswith(f"{self.root}/clients/")

    def parse(self, topic: str) -> tuple[str, ClientTopic] | None:
        """Return (client_id, purpose) of a client's topic; None for topics outside this federation's clients."""
        if len(topic) > len(self._clients) + _LONGEST_CLIENTS:
            return None  # anybody may invent one of 64 KB, and thousands of answers are cached
        return _parse(self._clients, topic)


# A federator asks for a message's sender several times, from arrival to decision.
@lru_cache(maxsize=4096)
def _parse(prefix: str, topic: str) -> tuple[str, ClientTopic] | None:
    client_id, _, last = topic.removeprefix(prefix).partition("/")
    purpose = _CLIENT_TOPICS.get(last)
    if purpose is None or not topic.startswith(prefix) or not _NAME.fullmatch(client_id):
        return None
    return client_id, purpose
