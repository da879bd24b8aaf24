"""A worker's basis for decisions: the stored state of the federation, limited to the clients of a batch.

It is rebuilt for each batch, under the federation's lock, and uses the same functions as the writer. No I/O.
"""

from dataclasses import replace
from functools import lru_cache

from foltr.core.errors import UnavailableError
from foltr.core.protocol.enrolment import read_roster
from foltr.core.protocol.operator_keys import TrustedOperatorKey, trusted_in_storage
from foltr.core.protocol.roster import Roster
from foltr.core.protocol.trainings import Training
from foltr.federator.closing.stored_rules import stored_training
from foltr.federator.deciding.state import FederationState
from foltr.federator.plan import FederationPlan
from foltr.federator.round import RecordedUpdate
from foltr.federator.rows import shared_round
from foltr.storage.ingest_records import DecisionInputs
from foltr.storage.records import ModelRow


def training_of(text: str | None, federation: str) -> Training:
    """Read the leader's settings of the method.

    Raises:
        DataError: this foltr does not know them.
        UnavailableError: no leader has stored any.
    """
    if text is None:
        raise UnavailableError(f"federation {federation!r} has no round yet. Start its leader")
    return stored_training(text)


def state_of(ground: DecisionInputs, plan: FederationPlan) -> FederationState:
    """Make the state for decisions on a batch.

    Args:
        plan: with the federation's ranker and method; its other settings are stored with the round.
    """
    facts, row = ground.facts, ground.round
    current = shared_round(row, RecordedUpdate.by_client(ground.collected), ground.n_collected)
    state = FederationState(replace(plan, policy=current.policy, evaluation=ground.evaluation, pace=None))
    state.members.restore(ground.clients, None)
    if ground.roster is not None and plan.enrolment_key is not None:
        state.members.load_roster(_roster(ground.roster, plan.enrolment_key, plan.federation))
    state.members.restore_forgotten(facts.pseudonym_key, ground.forgotten)
    state.round, state.model_version = current, row.base_version
    state.oldest_base, state.restored = facts.oldest_base, list(facts.restored)
    state.model_hashes = dict(facts.model_hashes)
    state.anchor = None if row.anchor_version is None else _anchor(ground, row.anchor_version)
    return state


@lru_cache(maxsize=2)
def _roster(stored: bytes, enrolment_key: TrustedOperatorKey, federation: str) -> Roster:
    """Read a roster once: otherwise a sender of unknown names would have it read for each batch."""
    return read_roster(stored, trusted_in_storage(enrolment_key), federation)


def _anchor(ground: DecisionInputs, version: int) -> ModelRow:
    """Return the anchor for checking votes; a worker does not need its weights."""
    row = ground.round
    return ModelRow(row.federation, version, None, None, 0, b"", b"", row.opened_at, None)
