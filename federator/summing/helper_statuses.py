"""Knows which helpers the broker has reported gone, before a round needs them."""

from collections.abc import Callable

from foltr.core.errors import MessageError
from foltr.core.protocol.codec import open_envelope
from foltr.core.protocol.helper_messages import HelperStatus
from foltr.core.protocol.signed_policies import SignedPolicy
from foltr.core.protocol.topics import Topics


class HelperStatuses:
    """The newest status of each helper of the newest policy. One that has sent none is not held to be gone.

    Args:
        policy: the operator's newest known policy; None without secure sums.
    """

    def __init__(self, topics: Topics, policy: Callable[[], SignedPolicy | None]) -> None:
        self._topics, self._policy = topics, policy
        self._newest: dict[bytes, tuple[int, bool]] = {}  # by signing key: the sequence, and whether it is online

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
        policy = self._policy()
        helper = None if policy is None else policy.policy.helper(status.helper)
        on = self._topics.helper_status(status.helper)
        if helper is None or status.federation != self._topics.federation:
            return
        if not envelope.is_signed_by(helper.signing_key, on):
            return
        newest, _ = self._newest.get(helper.signing_key, (0, True))
        # A last will may come after the next connection's status; a status only once its helper is there.
        if status.online or envelope.sequence >= newest:
            self._newest[helper.signing_key] = envelope.sequence, status.online
