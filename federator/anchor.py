"""The anchor: an older model that may replace the newest, by devices' votes.

Devices compare the newest model with it. The round that is open, or was last, names it. It never contains updates of an
erased client, and is never older than the newest model from unlearning or a restore. With secure sums an anchor exists
if the operator's policy has votes.
"""

from foltr.core.aggregation.vote_result import VOTE_ROUNDS, RoundTally, Verdict, VoteResult, result_of_tallies
from foltr.federator.deciding.state import FederationState
from foltr.federator.round import Round
from foltr.federator.secure_terms import SecureTerms
from foltr.federator.store import FederationStore
from foltr.storage.records import ModelRow, RoundRow


async def resume_anchor(
    store: FederationStore, state: FederationState, shown: RoundRow | None, terms: SecureTerms | None
) -> None:
    """Load the anchor of the round that is open, or was last, with its policy."""
    version = None if shown is None else shown.anchor_version
    asked = state.plan.asks_for_votes(None if terms is None else terms.policy.policy)
    if asked and version is not None and version >= state.oldest_served:
        state.anchor = await store.get_anchor(version)


async def drop_erased_anchor(store: FederationStore, state: FederationState) -> bool:
    """Drop the anchor if it contains updates of an erased client; return whether it does."""
    if state.anchor is None or await store.get_anchor(state.anchor.version) is not None:
        return False
    state.anchor = None
    return True


def as_anchor(state: FederationState, model: ModelRow) -> ModelRow | None:
    """The model, if it may be the next round's anchor: None if devices do not vote, or it contains an erased client."""
    return model if state.asks_for_votes and model.tainted_at is None else None


async def count_votes(
    store: FederationStore, state: FederationState, current: Round, tally: RoundTally | None
) -> VoteResult:
    """Count the votes on the anchor, including those of a round that is about to end; zeros without voting.

    Args:
        tally: of the votes in the round's secure sums.
    """
    if state.anchor is None:
        return VoteResult(0, 0, 0, 0)
    if current.terms is None:
        return await store.count_votes(state.anchor.version, current.number, VOTE_ROUNDS)
    stored = await store.list_tallies(state.anchor.version, VOTE_ROUNDS)
    return result_of_tallies(stored if tally is None else [tally, *stored])


def verdict_on(newest: ModelRow, anchor: ModelRow | None, result: VoteResult) -> Verdict:
    """The verdict on the newest model; keeps it if it is the anchor itself, or is tainted and cannot become one."""
    verdict = result.verdict
    may_not = verdict is Verdict.MOVE_ANCHOR and newest.tainted_at is not None
    return Verdict.KEEP if anchor is None or anchor.version == newest.version or may_not else verdict
