"""Asks helpers whether they are online, after a round was abandoned because of them.

Theory of operation. A round that helpers do not open has cost each of its devices a participation, of which a client
has few in its life. So after such a round the next one is announced only once each of its helpers has answered. Each is
shown a page with one empty ticket of no client, and refuses it. A helper cannot open sums if it does not follow the
round's policy, has lost its key or the verify key, or has opened a later round (from before the federation was restored
from a backup). That is logged once, and it is asked again; in the last case until rounds that end at their deadlines
have brought the number up. Any other answer to the page shows that the helper is ready.

A restarted federator asks them again: how the last round ended is stored. A helper may answer and then open nothing, so
a pause follows as well (`foltr.federator.summing.pause`). Nothing here reads a clock, awaits or sends.
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
    """The helpers of a round that have not answered yet. Times are epoch seconds.

    Attributes:
        away: those helpers, each with its refusal, if it answers and opens nothing.
    """

    def __init__(self, policy: SignedPolicy, round_number: int, epoch: int) -> None:
        self.round = round_number
        self._epoch = epoch
        self._policy = policy
        self.away: dict[str, HelperRefusal | None] = {keys.name: None for keys in policy.policy.helpers}
        self._n_asked = 0
        self._told_away: set[str] = set()
        self._ask_at = 0.0

    @property
    def awaited(self) -> dict[str, HelperRefusal | None]:
        """Those that refuse, and those that had time to answer and did not."""
        return {helper: why for helper, why in self.away.items() if why is not None or self._n_asked > 1}

    def wake_at(self) -> float:
        """When to ask them again."""
        return self._ask_at

    def requests(self, now: float) -> list[CheckRequest]:
        """Return the requests to send now, and count them as sent."""
        if now < self._ask_at:
            return []
        self._ask_at = now + REPEAT_S
        if self._n_asked and self.away.keys() != self._told_away:
            self._told_away = set(self.away)
            log.warning("helpers_unresponsive", round=self.round, helpers=sorted(self.away))
        self._n_asked += 1
        return [self._request(helper) for helper in sorted(self.away)]

    def handle_answer(self, answer: HelperAnswer) -> None:
        """Take a helper's message, whose signature was checked."""
        if not isinstance(answer, CheckAnswer | HelperRefusal):
            return
        if (answer.policy_hash, answer.round, answer.digest) != (self._policy.hash, self.round, _DIGEST):
            return
        if isinstance(answer, HelperRefusal) and answer.code in _OPENS_NOTHING:
            self._warn_opens_nothing(answer)
        else:
            self.away.pop(answer.helper, None)

    def _warn_opens_nothing(self, refusal: HelperRefusal) -> None:
        if self.away.get(refusal.helper) is None:
            log.warning("helper_unusable", helper=refusal.helper, code=refusal.code, detail=refusal.detail)
        self.away[refusal.helper] = refusal

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
