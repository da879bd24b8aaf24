"""Whether the ranker does worse than it did, by what devices say of their users' lists, and what is served again then.

The rounds that are compared are those since a model last took the place of others: since the newest one that was
restored, by whichever rule, and the newest one of unlearning. So a model is taken back at most once in as many rounds
as a comparison needs.
"""

from federator.deciding.state import FederationState
from federator.round import Round
from federator.store import FederationStore
from foltr.aggregation.effectiveness import Decline, RoundEvaluation, decline_in, reward_of_sums
from storage.records import ModelRow


async def find_decline(
    store: FederationStore, state: FederationState, current: Round, evaluation: RoundEvaluation | None
) -> tuple[Decline, ModelRow] | None:
    """Find that the rounds up to one that is about to end are a decline, and the model that is to be served again.

    None where the setting does not ask, where there is no decline, and where an erased client is in that model.

    Args:
        evaluation: what the round's secure sums say; of a trusted round None, as its updates are stored.
    """
    if not state.plan.evaluation_take_back:
        return None
    since = max([state.oldest_base, *(each.version for each in state.restored)])
    rewards = await store.list_rewards(since, current.number)
    if evaluation is not None:
        rewards.append(reward_of_sums(current.base_version, evaluation))
    decline = decline_in(rewards)
    if decline is None:
        return None
    model = await store.get_anchor(decline.base_version)
    return None if model is None else (decline, model)
