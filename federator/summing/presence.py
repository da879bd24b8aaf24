"""Asks helpers whether they are there, where a round was given up for want of them.

Theory of operation. A round that helpers do not open has cost each of its devices a participation, and those are
numbered for life. So after such a round devices do not hear of the next one before each of its helpers has answered:
each is shown a page with one ticket, which is empty and nobody's, and takes it out. One that does not obey the round's
policy, has no key of it any more or not its verify key, or has opened a later round (of before the federation went back
to a backup) would open nothing: that is told once, and it is asked again, in the last case until rounds that end at
their deadlines have brought the number up. Whatever else a helper says to the page comes from one that is there.

A federator that starts again asks them again: how the last round ended is stored. A helper may answer and then open
nothing, so such a round is followed by a pause as well (`foltr.federator.summing.pause`). Nothing here reads a clock,
awaits or sends.
"""

import structlog

from foltr.core.protocol.helper_messages import CheckAnswer, CheckRequest, HelperRefusal, HelperRefusalCode
from foltr.core.protocol.signed_policies import SignedPolicy
from foltr.core.protocol.signed_tickets import set_digest, ticket_hash
from foltr.federator.summing.helper_session import HelperAnswer

log = structlog.get_logger(__name__)

REPEAT_S = 5.0
_NO_TICKET = b""
_DIGEST = set_digest([ticket_hash(_NO_TICKET)])
_OPENS_NOTHING = (
    HelperRefusalCode.UNKNOWN_POLICY,
    HelperRefusalCode.KEY_DESTROYED,
    HelperRefusalCode.EPOCH_AHEAD,
    HelperRefusalCode.VERIFY_KEY_SEALED,
    HelperRefusalCode.ROUND_OVER,
    HelperRefusalCode.STORE_RESTORED,
)


class Presence:
    """The helpers of a round that have not answered yet whether they are there. Times are epoch seconds."""

    def __init__(self, policy: SignedPolicy, round_number: int, epoch: int) -> None:
        self.round = round_number
        self._epoch = epoch
        self._policy = policy
        self._away = {keys.name for keys in policy.policy.helpers}
        self._told: set[str] = set()
        self._n_asked = 0
        self._told_away: list[str] = []
        self._ask_at = 0.0

    @property
    def away(self) -> list[str]:
        """Who has not answered."""
        return sorted(self._away)

    def wake_at(self) -> float:
        """When they are to be asked again."""
        return self._ask_at

    def requests(self, now: float) -> list[CheckRequest]:
        """Return what is to be sent now, and count it as sent."""
        if now < self._ask_at:
            return []
        self._ask_at = now + REPEAT_S
        if self._n_asked and self.away != self._told_away:
            self._told_away = self.away
            log.warning("helpers_awaited", round=self.round, helpers=self.away)
        self._n_asked += 1
        return [self._request(helper) for helper in self.away]

    def take(self, answer: HelperAnswer) -> None:
        """Take what a helper says, whose signature was checked."""
        if not isinstance(answer, CheckAnswer | HelperRefusal):
            return
        if (answer.policy_hash, answer.round, answer.digest) != (self._policy.hash, self.round, _DIGEST):
            return
        if isinstance(answer, HelperRefusal) and answer.code in _OPENS_NOTHING:
            self._tell(answer)
        else:
            self._away.discard(answer.helper)

    def _tell(self, refusal: HelperRefusal) -> None:
        if refusal.helper not in self._told:
            self._told.add(refusal.helper)
            log.warning("helper_opens_nothing", helper=refusal.helper, code=refusal.code, detail=refusal.detail)

    def _request(self, helper: str) -> CheckRequest:
        return CheckRequest(
            federation=self._policy.policy.federation,
            helper=helper,
            policy_hash=self._policy.hash,
            epoch=self._epoch,
            round=self.round,
            cohort=0,
            first=0,
            tickets=[_NO_TICKET],
            enrolments=[b""],
        )
