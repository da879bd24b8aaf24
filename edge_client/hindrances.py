"""What keeps a device from taking part in its federation, and what to do about it, in words for whoever runs it."""

from dataclasses import dataclass

from broker.failures import Trouble
from broker.link import MqttLink
from edge_client.agent import Agent
from edge_client.forgetting import ENROL_AGAIN, refusal_in_words
from edge_client.objections import Objection
from foltr.protocol.explained import Explained
from foltr.protocol.receipts import MembershipReceipt, ReceiptCode


class Obstacle(Explained):
    """What is in the way; its meaning is where that leaves the device."""

    FORGOTTEN = "forgotten", "forgotten"
    ASKED_TO_BE_FORGOTTEN = "asked_to_be_forgotten", "asked to be forgotten"
    BROKER_AWAY = "broker_away", "without a broker"
    LOGIN_REFUSED = "login_refused", "not let in by the broker"
    SESSION_TAKEN_OVER = "session_taken_over", "thrown out by another process with its credentials"
    JOIN_REFUSED = "join_refused", "not taken in by the federation"
    FEDERATOR_AWAY = "federator_away", "connected, but without a federator"
    NO_POLICY = "no_policy", "connected, but without the policy of its operator"
    POLICY_BEYOND_LIMITS = "policy_beyond_limits", "connected, but under a policy beyond its limits"
    OTHER_FEATURES = "other_features", "connected, but with other features than the federation"


# They do not pass by themselves: somebody has to enrol the device, or give it its own credentials, or bring the
# application and its schema up to date.
REFUSALS = (Obstacle.LOGIN_REFUSED, Obstacle.JOIN_REFUSED, Obstacle.OTHER_FEATURES)
_OF_LINK = {
    Trouble.LOGIN_REFUSED: Obstacle.LOGIN_REFUSED,
    Trouble.TAKEN_OVER: Obstacle.SESSION_TAKEN_OVER,
}
_OF_BAR = {Objection.PINNED: Obstacle.NO_POLICY, Objection.BEYOND_LIMITS: Obstacle.POLICY_BEYOND_LIMITS}
_ENROL = {
    ReceiptCode.NOT_ENROLLED: "start it with the file that `foltr device enrol NAME` writes (--credentials)",
    ReceiptCode.REVOKED: "ask the operator for a new file: foltr device enrol NAME --replace",
    ReceiptCode.BAD_SIGNATURE: "start it with the newest file of this name: foltr device enrol NAME --replace",
}


def is_lasting(refusal: MembershipReceipt | None) -> bool:
    """Return whether a join was refused for a cause that only somebody's doing ends; versions pass with an upgrade."""
    return refusal is not None and refusal.code in _ENROL


@dataclass(frozen=True)
class Hindrance:
    """An obstacle; ``in_words`` says what happened, and what to do."""

    obstacle: Obstacle
    in_words: str


def hindrance_of(link: MqttLink, agent: Agent, now: float) -> Hindrance | None:
    """Return what keeps a device from taking part, the nearest first; None where nothing is known to."""
    if agent.forgotten:
        return Hindrance(Obstacle.FORGOTTEN, f"the client was forgotten: {ENROL_AGAIN}")
    outage = link.outage
    if outage is not None:
        trouble = link.trouble
        return Hindrance(
            Obstacle.BROKER_AWAY if trouble is None else _OF_LINK.get(trouble, Obstacle.BROKER_AWAY), str(outage)
        )
    forgetting = agent.forgetting
    if forgetting.state is not None:
        refused = None if forgetting.refusal is None else refusal_in_words(forgetting.refusal)
        told = refused or "nothing else is sent until the federation answers; see that its federator runs"
        return Hindrance(Obstacle.ASKED_TO_BE_FORGOTTEN, f"it asked to be forgotten, {forgetting.state}: {told}")
    refusal = agent.membership.refusal
    if refusal is not None:
        return Hindrance(Obstacle.JOIN_REFUSED, _refusal_in_words(refusal))
    bar = agent.policy.bar
    if bar is not None:
        return Hindrance(_OF_BAR[bar], f"{bar}: {agent.policy.remedy}")
    absence = agent.watch.absence(now)
    if absence is not None:
        start = "start it with `foltr federator run`; what is clicked waits on the device"
        return Hindrance(Obstacle.FEDERATOR_AWAY, f"{absence}: {start}")
    difference = agent.schema_difference
    if difference is not None:
        follow = "give the device the schema that the federator was started with; what is clicked waits on it"
        return Hindrance(Obstacle.OTHER_FEATURES, f"{difference}: {follow}")
    misfit = agent.trainer.misfit
    if misfit is not None:
        choose = "start a federation with `foltr federator run --features N`, or use its features"
        return Hindrance(Obstacle.OTHER_FEATURES, f"{misfit}: {choose}; what is clicked waits on the device")
    return None


def _refusal_in_words(receipt: MembershipReceipt) -> str:
    said = f"the federator does not take it in: {receipt.code}" + (f", {receipt.detail}" if receipt.detail else "")
    return said + (f"; {_ENROL[receipt.code]}" if receipt.code in _ENROL else "")
