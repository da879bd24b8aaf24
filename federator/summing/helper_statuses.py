"""Knows which helpers the broker has reported gone, before a round needs them; and what is wrong with helpers."""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from foltr.core.errors import MessageError
from foltr.core.protocol.codec import Envelope, open_envelope
from foltr.core.protocol.helper_messages import HelperRefusal, HelperRefusalCode, HelperStatus
from foltr.core.protocol.signed_policies import SignedPolicy
from foltr.core.protocol.topics import Topics
from foltr.core.protocol.verdicts import Finding, Reason

# The broker retains one status of each helper, and a policy has few helpers.
_MOST_EARLY: Final = 64


class HelperStatuses:
    """The newest status of each helper of the newest policy. One that has sent none is not held to be gone.

    A status of a helper that the policy does not know, or with another key, is kept: the next policy may know it.

    Args:
        policy: the operator's newest known policy; None without secure sums.
    """

    def __init__(self, topics: Topics, policy: Callable[[], SignedPolicy | None]) -> None:
        self._topics, self._newest_policy = topics, policy
        self._newest: dict[bytes, tuple[int, bool]] = {}  # by signing key: the sequence, and whether it is online
        self._early = deque[tuple[Envelope, HelperStatus]](maxlen=_MOST_EARLY)
        self._read_under: bytes | None = None  # the policy that the early ones were read under, by its hash

    @property
    def offline(self) -> list[str]:
        """The helpers that have left the broker."""
        policy = self._policy()
        helpers = () if policy is None else policy.policy.helpers
        return [each.name for each in helpers if not self._newest.get(each.signing_key, (0, True))[1]]

    def receive(self, payload: bytes) -> None:
        """Take a helper's status; one of a stranger, or that its helper did not sign, changes nothing."""
        try:
            envelope = open_envelope(payload)
            status = envelope.read(HelperStatus)
        except MessageError:
            return
        if status.federation == self._topics.federation:
            self._take(envelope, status, self._policy())

    def receive_answer(self, payload: bytes) -> None:
        """Take an answer to a request: its helper is back, even if its version announces no status."""
        policy, offline = self._policy(), self.offline
        if policy is None or not offline:
            return
        try:
            envelope = open_envelope(payload)
        except MessageError:
            return
        for each in policy.policy.helpers:
            if each.name in offline and envelope.is_signed_by(each.signing_key, self._topics.helper_answers(each.name)):
                self._newest[each.signing_key] = self._newest[each.signing_key][0], True

    def _policy(self) -> SignedPolicy | None:
        """Return the newest policy, once the statuses that came before it are taken under it."""
        policy = self._newest_policy()
        if policy is not None and policy.hash != self._read_under:
            self._read_under = policy.hash
            early, self._early = self._early, deque(maxlen=_MOST_EARLY)
            for each in early:
                self._take(*each, policy)
        return policy

    def _take(self, envelope: Envelope, status: HelperStatus, policy: SignedPolicy | None) -> None:
        helper = None if policy is None else policy.policy.helper(status.helper)
        if helper is None or not envelope.is_signed_by(helper.signing_key, self._topics.helper_status(status.helper)):
            self._early.append((envelope, status))
            return
        newest, _ = self._newest.get(helper.signing_key, (0, True))
        # A last will may come after the next connection's status; a status only once its helper is there. The broker
        # repeats the newest one at each connection, also after an answer has shown that the helper is back.
        if status.online or envelope.sequence > newest:
            self._newest[helper.signing_key] = envelope.sequence, status.online


def helper_findings(offline: Collection[str], awaited: Mapping[str, HelperRefusal | None]) -> Iterator[Finding]:
    """Say what is wrong with helpers.

    Args:
        offline: those that have left the broker.
        awaited: those that the open round waits for, each with its refusal, if it answers and opens nothing.
    """
    for helper in sorted({*offline, *awaited}):
        refusal = awaited.get(helper)
        if helper in offline:
            yield Finding(Reason.HELPER_AWAITED, "It has left the broker.", helper)
        elif refusal is None:
            yield Finding(Reason.HELPER_AWAITED, "The open round waits for it.", helper)
        elif refusal.code is HelperRefusalCode.ROUND_OVER:
            why = f"{helper} refuses round {refusal.round}: {refusal.detail}. Rounds pass until they are above that."
            yield Finding(Reason.DATABASE_OLDER, why, "the database")
        else:
            yield Finding(Reason.HELPER_AWAITED, f"It refuses: {refusal.code}: {refusal.detail}.", helper)
